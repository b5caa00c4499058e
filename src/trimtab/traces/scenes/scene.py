"""A workload, the cluster it runs on and the speeds of its jobs there: what an experiment needs.

open_scene("log.swf.gz")                                      a file with its own cluster
open_scene("adlro:load=0.7,estimate=noisy,sizes=philly")      a generator with settings
open_scene("adlro", "adlro:volta=32,turing=16,radeon=16")     at its load on a larger cluster
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.build import uniform_profile
from trimtab.core import Cluster, Profile, Workload
from trimtab.errors import TraceError, TrimtabError
from trimtab.traces import check_no_machine, is_prepared, read
from trimtab.traces.colocated import scene as colocated
from trimtab.traces.readers import openb, pai
from trimtab.traces.readers.packed import read_bytes
from trimtab.traces.readers.swf import on_nodes, swf_cluster
from trimtab.traces.scenes import presets, synthetic
from trimtab.traces.scenes.cluster_file import profile_for, read_cluster
from trimtab.traces.scenes.gavel import gavel_profile, mapped, rates_of
from trimtab.traces.scenes.load import at_load, service_shares, thinned
from trimtab.traces.scenes.match import matched

DEFAULT = "mixed-gpu"
CLUSTER_FILE = "cluster.yaml"  # of a prepared folder
NODES_HEADER = b"sn,cpu_milli,memory_mib,gpu"
KNOWN = (
    f"{', '.join(presets.BY_NAME)}, adlro:volta=32 for other numbers, openb, pai, or openb:48 for "
    "48 nodes of that mix"
)


class Scene(NamedTuple):
    workload: Workload
    cluster: Cluster
    profile: Profile
    name: str  # of the trace, as results print it
    made: bool  # generated from the seed, so that every seed is another workload


def open_scene(
    trace: str = DEFAULT,
    cluster: str | None = None,
    *,
    seed: int = 0,
    start: int = 0,
    jobs: int | None = None,
    estimate: str = "requested",
    lenient: bool | None = None,
    load: float | None = None,
    gpu_jobs: float = 0.0,
    nodes: str | None = None,
    machine: str | None = None,
) -> Scene:
    """A trace file with its own or a given cluster, or a named generator with its preset.

    A generator may have settings, as in `adlro:load=0.7,jobs=500`. `start` and `jobs` cut rows out
    of a file; for a generator `jobs` is how many it makes. `load` cuts the cluster down, or
    stretches the arrivals of a log on one pool, until the trace offers it that much; `gpu_jobs` is
    the share of the jobs that become GPU work of Gavel's measured speeds. `lenient`, `nodes` and
    `machine` are as `traces.read` takes them.
    """
    if start < 0 or (jobs is not None and jobs < 1):
        raise TraceError(
            f"{trace}: --start {start} --jobs {jobs} selects nothing; give 0 or more, 1 or more"
        )
    if trace.partition(":")[0] in colocated.BY_NAME:
        check_no_machine(trace, nodes, machine)
        made = colocated_scene(trace, cluster, seed, jobs, load)
        return _fixed(made, estimate, None, gpu_jobs, seed, lenient)
    if trace.partition(":")[0] in synthetic.BY_NAME:
        check_no_machine(trace, nodes, machine)
        made = made_scene(trace, cluster, seed, jobs)
        return _fixed(made, estimate, load, gpu_jobs, seed, lenient)
    if not Path(trace).exists():
        names = ", ".join([*synthetic.BY_NAME, *colocated.BY_NAME])
        raise TraceError(
            f"{trace}: no such file, and not a generator ({names}); give a trace or one of these, "
            "with settings if need be, such as adlro:load=0.7"
        )
    if cluster is not None and (nodes == "whole" or machine is not None):
        option = f"--nodes {nodes}" if machine is None else f"--machine {machine}"
        raise TraceError(
            f"{trace}: {option} is about the log's own machine, but --cluster {cluster} gives "
            "another, whose nodes jobs share; leave one of them out"
        )
    work = read(trace, lenient=lenient, nodes=nodes, machine=machine)
    if start or jobs is not None:
        work = work.window(start, jobs)
    if cluster is None:
        rack, profile = own_cluster(trace, work)
    else:
        rack, profile = open_cluster(cluster, work)
        work = on_nodes(work, rack)
        if work.truth["service"].any() and is_prepared(trace):
            work = services_for(work, own_cluster(trace, work)[0], rack)
    scene = Scene(work, rack, profile, Path(trace).name, False)
    return _fixed(scene, estimate, load, gpu_jobs, seed, lenient)


def made_scene(trace: str, cluster: str | None, seed: int, jobs: int | None) -> Scene:
    """A generator's jobs on a cluster; one that offers a load offers it to that cluster.

    `jobs` goes before a setting of that name.
    """
    name, params = settings(trace, synthetic.BY_NAME)
    if jobs is not None:
        params["jobs"] = jobs
    if params.get("jobs", 1) < 1:
        raise TraceError(f"{trace}: jobs={params['jobs']} makes nothing; give 1 or more")
    takes = inspect.signature(synthetic.BY_NAME[name]).parameters
    try:
        work = synthetic.generate(name, seed=seed, **params)
        if cluster is None:
            own = inspect.signature(presets.BY_NAME[name][0]).parameters
            shared = {key: value for key, value in params.items() if key in own}
            nodes, profile = presets.preset(name, **shared)
        else:
            nodes, profile = open_cluster(cluster, work)
            if "cluster" in takes:
                params |= {"cluster": nodes, "profile": profile}
                work = synthetic.generate(name, seed=seed, **params)
    except (TrimtabError, ValueError, TypeError, ArithmeticError) as problem:
        if ":" not in trace:
            raise
        raise TraceError(f"{trace}: {problem}") from problem
    return Scene(work, nodes, profile, trace, True)


def colocated_scene(
    trace: str, cluster: str | None, seed: int, jobs: int | None, load: float | None
) -> Scene:
    """A scene whose services, machines and batch jobs are made together."""
    name, params = settings(trace, colocated.BY_NAME)
    if cluster is not None or jobs is not None:
        option = f"--cluster {cluster}" if cluster is not None else f"--jobs {jobs}"
        raise TraceError(
            f"{trace}: {option} does not go with it: it makes its own machines, and as many jobs "
            f"as its load wants; give {name}:machines=500,load=0.9"
        )
    if load is not None:
        params["load"] = load
    work, nodes, profile = colocated.BY_NAME[name](rng=np.random.default_rng(seed), **params)
    return Scene(work, nodes, profile, trace, True)


def settings(text: str, known: Mapping[str, Callable[..., Any]]) -> tuple[str, dict[str, Any]]:
    """Name and keyword arguments of `adlro:load=0.7,mix=1/2/1`: each of its default's type.

    The numbers of a tuple stand between slashes. TraceError, with all there are, for another.
    """
    name, colon, given = text.partition(":")
    default = {
        key: one.default
        for key, one in inspect.signature(known[name]).parameters.items()
        if isinstance(one.default, int | float | str | tuple)
    }
    found: dict[str, Any] = {}
    for part in given.split(",") if colon else ():
        key, _, value = part.partition("=")
        try:
            found[key] = _typed(value, default[key])
        except (KeyError, ValueError):
            listed = ", ".join(f"{key}={_text(value)}" for key, value in default.items())
            raise TraceError(
                f"{text}: {part!r} is no setting of {name}; known, with their defaults: {listed}"
            ) from None
    return name, found


def _typed(text: str, default: Any) -> Any:
    """The text as a value of the default's type; ValueError where it is none."""
    if not isinstance(default, tuple):
        return type(default)(text)
    values = tuple(float(part) for part in text.split("/"))
    if len(values) != len(default):
        raise ValueError(text)
    return values


def _text(value: Any) -> str:
    return "/".join(f"{part:g}" for part in value) if isinstance(value, tuple) else str(value)


def _fixed(
    scene: Scene,
    estimate: str,
    load: float | None,
    gpu_jobs: float,
    seed: int,
    lenient: bool | None,
) -> Scene:
    """A scene with its last choices made."""
    work, nodes, profile = scene.workload.with_estimate(estimate), scene.cluster, scene.profile
    if gpu_jobs:
        work = mapped(work, nodes, seed=seed, gpu_jobs=gpu_jobs)
        profile = gavel_profile(work.kinds, nodes.kinds)
    work, nodes, profile = matched(work, nodes, profile, lenient=bool(lenient))
    if load is not None:
        work, nodes = at_load(work, nodes, profile, load)
    return scene._replace(workload=work, cluster=nodes, profile=profile)


def services_for(work: Workload, own: Cluster, nodes: Cluster) -> Workload:
    """The work with as large a share of services on other nodes as they had on their own."""
    before, after = service_shares(work, own), service_shares(work, nodes)
    ratio = [before[name] / after[name] for name in after if after[name] > 0 and name in before]
    return thinned(work, min([1.0, *ratio]))


def described(
    trace: str,
    cluster: str | None = None,
    *,
    lenient: bool | None = None,
    nodes: str | None = None,
    machine: str | None = None,
) -> tuple[Workload, Cluster | None, Profile | None]:
    """A trace with the cluster that it or `cluster` names, without one where nobody names any."""
    options: dict[str, Any] = {"lenient": lenient, "nodes": nodes, "machine": machine}
    if cluster is None and Path(trace).exists() and not is_prepared(trace):
        work = read(trace, **options)
        if "max_nodes" not in work.meta:
            return work, None, None
    scene = open_scene(trace, cluster, **options)
    return scene.workload, scene.cluster, scene.profile


def own_cluster(trace: str, work: Workload) -> tuple[Cluster, Profile]:
    """The cluster that a trace names itself: a log's machine or a prepared folder's nodes."""
    if "max_nodes" in work.meta:
        nodes = swf_cluster(work)
        return nodes, uniform_profile(len(work.kinds), len(nodes.kinds))
    if is_prepared(trace) and (Path(trace) / CLUSTER_FILE).is_file():
        return open_cluster(trace, work)
    raise TraceError(
        f"{trace}: the trace does not say which cluster it ran on; give one with --cluster "
        f"(a YAML file, an openb node list, pai_machine_spec, or one of {KNOWN})"
    )


def open_cluster(cluster: str, work: Workload) -> tuple[Cluster, Profile]:
    """A cluster with the speeds of these jobs on it.

    From a YAML file, a list of nodes, a prepared folder, a preset (also with settings,
    `adlro:volta=32`) or a mix such as `openb:48`.
    """
    if presets.is_mix(cluster):
        nodes = presets.mix_cluster(cluster)
        return nodes, speeds(work, nodes)
    if cluster.partition(":")[0] in presets.BY_NAME:
        name, params = settings(cluster, {key: make for key, (make, _) in presets.BY_NAME.items()})
        nodes, profile = presets.preset(name, **params)
        own = profile.rate.shape[0] == len(work.kinds) and not _measured(work)
        return nodes, profile if own else speeds(work, nodes)
    path = Path(cluster) / CLUSTER_FILE if is_prepared(cluster) else Path(cluster)
    if not path.is_file():
        raise TraceError(f"{path}: no such file, and not a preset ({KNOWN})")
    if is_openb_nodes(str(path)):
        nodes = openb.read_cluster(path)
        return nodes, speeds(work, nodes)
    if pai.is_machines(path):
        nodes = pai.read_machines(path)
        return nodes, speeds(work, nodes)
    nodes, section = read_cluster(path)
    if not section and _measured(work):
        return nodes, speeds(work, nodes)
    return nodes, profile_for(section, work.kinds, nodes.kinds, str(path))


def speeds(work: Workload, nodes: Cluster) -> Profile:
    """Gavel's speeds if a job kind bears the name of one of its job types; else 1 everywhere."""
    if _measured(work):
        return gavel_profile(work.kinds, nodes.kinds)
    return uniform_profile(len(work.kinds), len(nodes.kinds))


def _measured(work: Workload) -> bool:
    return any(rates_of(kind) for kind in work.kinds)


def is_openb_nodes(path: str) -> bool:
    return read_bytes(path)[: len(NODES_HEADER)] == NODES_HEADER
