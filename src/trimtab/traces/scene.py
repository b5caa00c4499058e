"""A workload, the cluster it runs on and the speeds of its jobs there: what an experiment needs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from trimtab.core import Cluster, Profile, Workload, uniform_profile
from trimtab.errors import TraceError
from trimtab.traces import file_kind, openb, presets, read, synthetic
from trimtab.traces.cluster_file import profile_for, read_cluster
from trimtab.traces.swf import read_bytes, swf_cluster

DEFAULT = "mixed-gpu"
NODES_HEADER = b"sn,cpu_milli,memory_mib,gpu"


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
    lenient: bool = False,
) -> Scene:
    """A trace file with its own or a given cluster, or a named generator with its preset.

    `start` and `jobs` cut rows out of a file; for a generator `jobs` is how many it makes.
    """
    if start < 0 or (jobs is not None and jobs < 1):
        raise TraceError(
            f"{trace}: --start {start} --jobs {jobs} selects nothing; give 0 or more, 1 or more"
        )
    if trace in synthetic.BY_NAME:
        params = {} if jobs is None else {"jobs": jobs}
        work = synthetic.generate(trace, seed=seed, **params)
        nodes, profile = presets.preset(trace)
        if cluster is not None:
            nodes, profile = open_cluster(cluster, work)
        return Scene(work.with_estimate(estimate), nodes, profile, trace, True)
    if not Path(trace).exists():
        names = ", ".join(synthetic.BY_NAME)
        raise TraceError(
            f"{trace}: no such file, and not a generator ({names}); give a trace or one of these"
        )
    work = read(trace, lenient=lenient)
    if start or jobs is not None:
        work = work.window(start, jobs)
    if cluster is not None:
        nodes, profile = open_cluster(cluster, work)
    elif "max_nodes" in work.meta:
        nodes = swf_cluster(work)
        profile = uniform_profile(len(work.kinds), len(nodes.kinds))
    else:
        raise TraceError(
            f"{trace}: the trace does not say which cluster it ran on; give one with --cluster "
            f"(a YAML file, an openb node list, or one of {', '.join(presets.BY_NAME)})"
        )
    return Scene(work.with_estimate(estimate), nodes, profile, Path(trace).name, False)


def open_cluster(cluster: str, work: Workload) -> tuple[Cluster, Profile]:
    """A cluster from a YAML file, an openb node list or a preset, with the speeds of these jobs on
    it.
    """
    if cluster in presets.BY_NAME:
        nodes, profile = presets.preset(cluster)
        if profile.rate.shape[0] != len(work.kinds):
            profile = uniform_profile(len(work.kinds), len(nodes.kinds))
        return nodes, profile
    if not Path(cluster).exists():
        raise TraceError(
            f"{cluster}: no such file, and not a preset ({', '.join(presets.BY_NAME)})"
        )
    if is_openb_nodes(cluster):
        nodes = openb.read_cluster(cluster)
        return nodes, uniform_profile(len(work.kinds), len(nodes.kinds))
    nodes, section = read_cluster(cluster)
    if not section:
        return nodes, uniform_profile(len(work.kinds), len(nodes.kinds))
    return nodes, profile_for(section, work.kinds, nodes.kinds, cluster)


def is_openb_nodes(path: str) -> bool:
    return read_bytes(path)[: len(NODES_HEADER)] == NODES_HEADER


def is_openb_pods(path: str) -> bool:
    return Path(path).exists() and file_kind(path) == "openb"
