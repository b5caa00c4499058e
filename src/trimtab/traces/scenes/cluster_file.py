"""Clusters as YAML: groups of like nodes, links between regions, and how fast each job kind runs.

    source: our cluster, March 2025
    nodes:
      - {kind: a100, count: 4, cpu: 128, mem_gb: 1024, gpu: 8, gpu_mem_gb: 80, peak_w: 6500}
      - {kind: cpu, count: 20, cpu: 64, mem_gb: 256, region: west}
    links: {all: {west: 0.6}}           # rate of a gang that spans the two regions; or, in GB/s,
    #   link_gb_s: {all: {all: 50, west: 12.5}}    a node's share of the network
    live_migration: true                # a running job can move and lose nothing; false if not said
    site: {partitions: [{name: gpu, nodes: "gpu[01-04]", max_s: 86400}]}    # site_section.py
    profile:
      rates: {training: {a100: 2.1, cpu: 0.05}}    # work seconds a second; 1 where none is given
      slow: {training: {inference: 0.2}}           # extra time beside such a neighbour; 0 if not
      source: measured in February

A group may have `gpu_kind: a100`, `features: [nvlink, ib]` and `names`, a list or, as Slurm writes
it, "gpu[01-04]": what jobs and the rules of the site name; and a `weight`: Slurm fills the least
first. A file may also be just the list of
groups. `resources: [cpu, mem_gb, gpu, disk_gb]` adds resources;
`kinds` and `regions` list their names in another order than that of the groups.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.build import cluster, uniform_profile
from trimtab.columns import quantised
from trimtab.core import Cluster, Profile
from trimtab.errors import TraceError
from trimtab.files import write_whole
from trimtab.site import Site
from trimtab.traces.readers.hostlist import expanded, folded
from trimtab.traces.scenes.site_section import read_site, site_table
from trimtab.traces.scenes.yaml_fields import (
    check_names,
    checked_number,
    checked_text,
    checked_texts,
    read_yaml,
    short,
    tables,
    yaml_text,
)

RESOURCES = ("cpu", "mem_gb", "gpu")
TOP = (
    *("nodes", "links", "link_gb_s", "live_migration", "profile", "source"),
    *("resources", "kinds", "regions", "site"),
)
GROUP = (
    *("kind", "count", "region", "gpu_mem_gb", "idle_w", "peak_w", "names"),
    *("gpu_kind", "features", "weight"),
)
PROFILE = ("rates", "slow", "source", "measured")  # the last: of older files, `source` says it
MAX_COUNT = 1_000_000
EXCHANGE = 0.2  # of a gang's time on the fastest links of the file is exchange: modelled


def read_cluster(path: str | Path) -> tuple[Cluster, dict[str, Any]]:
    """The cluster in a YAML file, and its `profile` section as written (empty if there is none)."""
    path = Path(path)
    content = read_yaml(path)
    if isinstance(content, list):
        content = {"nodes": content}
    if not isinstance(content, dict):
        raise TraceError(f"{path}: holds {content!r}; want a list of groups of nodes, or `nodes:`")
    check_names(content, TOP, f"{path}")
    resources = content.get("resources", list(RESOURCES))
    if not isinstance(resources, list) or not resources or len(set(resources)) < len(resources):
        raise TraceError(f"{path}: resources={resources!r}; list each resource's name once")
    groups = content.get("nodes")
    if not isinstance(groups, list) or not groups:
        raise TraceError(f"{path}: nodes={groups!r}; list at least one group with kind and count")
    checked = [_group(group, g, resources, path) for g, group in enumerate(groups, 1)]
    made = _cluster(checked, resources, content, path)
    live = content.get("live_migration", False)
    if not isinstance(live, bool):
        raise TraceError(f"{path}: live_migration={live!r}; write true or false")
    made = replace(made, live_migration=live)
    profile = content.get("profile") or {}
    check_names(profile, PROFILE, f"{path}: profile")
    for kind, rates in tables(profile, "rates", f"{path}: profile").items():
        check_names(rates, made.kinds, f"{path}: profile: rates: {kind}", "node kind")
    return made, profile


def save_cluster(
    made: Cluster,
    path: str | Path,
    profile: dict[str, Any] | None = None,
    comments: Mapping[str, str] | None = None,
) -> None:
    """Write a cluster as YAML that `read_cluster` reads back to the same arrays and rules.

    `comments` stand above the fields of their names, the one of "" at the top.
    """
    content: dict[str, Any] = {"source": made.source, "resources": list(made.resources)}
    content |= {"kinds": list(made.kinds), "regions": list(made.regions)}
    content["nodes"] = [_as_written(group) for group in _groups(made)]
    if (made.link != 1).any():
        content["links"] = {
            start: dict(zip(made.regions, made.link[i].tolist()))
            for i, start in enumerate(made.regions)
        }
    if made.live_migration:
        content["live_migration"] = True
    if made.site is not None and (table := site_table(made.site)):
        content["site"] = table
    if profile:
        content["profile"] = profile
    given = comments or {}
    top = "".join(f"# {line}\n" for line in given.get("", "").splitlines())
    write_whole(path, top + yaml_text(content, given))


def _groups(made: Cluster) -> list[dict[str, Any]]:
    """Nodes that are alike and follow each other, together."""
    groups: list[dict[str, Any]] = []
    for node in range(len(made)):
        row = made.nodes[node]
        group: dict[str, Any] = {"kind": made.kinds[row["kind"]], "count": 1}
        group |= {name: _decimal(made.capacity[node, r]) for r, name in enumerate(made.resources)}
        group |= {name: short(row[name]) for name in ("gpu_mem_gb", "idle_w", "peak_w")}
        group["region"] = made.regions[row["region"]]
        if made.site is not None and made.site.gpu_kind:
            group["gpu_kind"] = made.site.gpu_kind[node]
        if made.site is not None and made.site.features:
            group["features"] = list(made.site.features[node])
        if made.site is not None and made.site.weight:
            group["weight"] = short(made.site.weight[node])
        group["names"] = [] if made.names is None else [str(made.names[node])]
        if groups and {**groups[-1], "count": 1, "names": []} == {**group, "names": []}:
            groups[-1]["count"] += 1
            groups[-1]["names"] += group["names"]
        else:
            groups.append(group)
    return groups


def _decimal(value: float) -> int | float:
    """The fewest digits that are read back to the same amount."""
    digits = np.array([round(float(value), places) for places in range(7)] + [float(value)])
    return short(digits[quantised(digits) == value][0])


def _as_written(group: dict[str, Any]) -> dict[str, Any]:
    """A group without what is as usual, its nodes as a list of hosts."""
    usual = {"gpu_mem_gb": 0, "idle_w": 0, "peak_w": 0, "region": "all", "names": [], "count": 1}
    usual |= {"gpu_kind": "", "features": [], "weight": 1}
    text = {name: value for name, value in group.items() if usual.get(name) != value}
    hosts = folded(group["names"])
    if hosts and not set(hosts) & set(" #") and expanded(hosts) == group["names"]:
        text["names"] = hosts
    return text


def profile_for(
    section: dict[str, Any], kinds: Sequence[str], node_kinds: Sequence[str], where: str = "profile"
) -> Profile:
    """The profile section of a cluster file as arrays, for jobs and nodes of these kinds.

    A pair without a rate runs at 1, and job kinds that the workload lacks are passed over, unless
    the name looks like a misspelt one. `where` (the file) begins the message of an error.
    """
    made = uniform_profile(len(kinds), len(node_kinds))
    rate, slow = made.rate.copy(), made.slow.copy()
    rates = tables(section, "rates", where)
    lacking = [kind for kind in kinds if kind not in rates]
    for kind, row in rates.items():
        if kind not in kinds:
            near = difflib.get_close_matches(str(kind), lacking, n=1, cutoff=0.8)
            check_names({kind: row} if near else {}, lacking, f"{where}: rates", "job kind")
            continue
        check_names(row, node_kinds, f"{where}: rates: {kind}", "node kind")
        for node_kind, value in row.items():
            number = checked_number(value, f"{where}: rates: {kind}: {node_kind}", 0.0)
            rate[kinds.index(kind), node_kinds.index(node_kind)] = number
    for kind, row in tables(section, "slow", where).items():
        for other, value in row.items():
            number = checked_number(value, f"{where}: slow: {kind}: {other}", 0.0)
            if kind in kinds and other in kinds:
                slow[kinds.index(kind), kinds.index(other)] = number
    named = {node_kind for kind in kinds for node_kind in rates.get(kind, ())}
    return replace(
        made,
        rate=rate,
        slow=slow,
        guessed=tuple(kind for kind in node_kinds if kind not in named and len(node_kinds) > 1),
        source=str(section.get("source", f"{where}: no source given")),
    )


def _group(group: Any, g: int, resources: list[str], path: Path) -> dict[str, Any]:
    """A group with every field filled in and checked."""
    if not isinstance(group, dict):
        raise TraceError(
            f"{path}: group {g}: {group!r} is not a group; write kind: ..., count: ..."
        )
    where = f"{path}: group {g} ({group.get('kind', 'no kind')})"
    check_names(group, (*GROUP, *resources), where)
    if not isinstance(group.get("kind"), str):
        raise TraceError(f"{where}: kind={group.get('kind')!r} is not a name; add kind: a100")
    filled: dict[str, Any] = {"count": 1, "region": "all", "names": None} | group
    for name in (*resources, "gpu_mem_gb", "idle_w", "peak_w"):
        filled[name] = checked_number(group.get(name, 0), f"{where}: {name}", 0.0)
    for name, least, most in (("count", 1, MAX_COUNT), ("gpu", 0, 64)):
        value = filled.get(name, 0)
        if checked_number(value, f"{where}: {name}", least) != int(value) or value > most:
            raise TraceError(f"{where}: {name}={value!r}; give a whole number in {least}..{most}")
    if filled["peak_w"] < filled["idle_w"]:
        raise TraceError(
            f"{where}: peak_w={filled['peak_w']:g} is below idle_w={filled['idle_w']:g}; "
            f"give the draw at full load"
        )
    if not isinstance(filled["region"], str):
        raise TraceError(f"{where}: region={filled['region']!r} is not a name; put it in quotes")
    filled["gpu_kind"] = checked_text(group.get("gpu_kind", ""), f"{where}: gpu_kind")
    filled["features"] = tuple(checked_texts(group.get("features", []), f"{where}: features"))
    filled["weight"] = checked_number(group.get("weight", 1), f"{where}: weight", 0.0)
    names = filled["names"]
    if isinstance(names, str):
        names = filled["names"] = expanded(names, f"{where}: names")
    if names is not None and (not isinstance(names, list) or len(names) != filled["count"]):
        raise TraceError(f"{where}: names={names!r}; list {filled['count']} names, or none")
    filled["count"] = int(filled["count"])
    return filled


def _cluster(
    groups: list[dict[str, Any]], resources: list[str], content: dict[str, Any], path: Path
) -> Cluster:
    count = [group["count"] for group in groups]
    kinds = _named(content, "kinds", [group["kind"] for group in groups], path)
    regions = _named(content, "regions", [group["region"] for group in groups], path)
    ruled = "site" in content or any(
        group["gpu_kind"] or group["features"] or group["weight"] != 1 for group in groups
    )
    named = ruled or any(group["names"] for group in groups)
    names = _names(groups, path) if named else None

    def spread(values: Iterable[Any]) -> Array:
        return np.repeat(np.array(list(values)), count, axis=0)

    return cluster(
        spread([[group[name] for name in resources] for group in groups]),
        resources=resources,
        kind=spread(kinds.index(group["kind"]) for group in groups),
        kinds=kinds,
        region=spread(regions.index(group["region"]) for group in groups),
        regions=regions,
        gpu_mem_gb=spread(group["gpu_mem_gb"] for group in groups),
        idle_w=spread(group["idle_w"] for group in groups),
        peak_w=spread(group["peak_w"] for group in groups),
        names=names,
        link=_links(content, regions, path),
        source=str(content.get("source", path.name)),
        site=_site(groups, resources, content, names or [], path) if ruled else None,
    )


def _site(
    groups: list[dict[str, Any]],
    resources: list[str],
    content: dict[str, Any],
    names: list[str],
    path: Path,
) -> Site:
    """The site's rules, and by which features and GPU models its nodes are called."""
    nodes = [group for group in groups for _ in range(group["count"])]
    kinds = [group["kind"] for group in nodes]
    weighed = any(group["weight"] != 1 for group in groups)
    made = read_site(content.get("site") or {}, f"{path}: site", names, kinds, resources)
    return replace(
        made,
        features=tuple(group["features"] for group in nodes),
        gpu_kind=tuple(group["gpu_kind"] for group in nodes),
        weight=tuple(group["weight"] for group in nodes) if weighed else (),
    )


def _named(content: dict[str, Any], field: str, used: list[str], path: Path) -> list[str]:
    """Names in the file's own order, or else as they first appear."""
    listed = content.get(field, list(dict.fromkeys(used)))
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise TraceError(f"{path}: {field}={listed!r}; list the names, or leave {field} out")
    for name in used:
        check_names({name: "of a group"}, listed, f"{path}: {field}", field.removesuffix("s"))
    return listed


def _names(groups: list[dict[str, Any]], path: Path) -> list[str]:
    names: list[str] = []
    for group in groups:
        given = group["names"] or [
            f"{group['kind']}-{len(names) + i}" for i in range(group["count"])
        ]
        names += [str(name) for name in given]
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise TraceError(f"{path}: the node name {name!r} stands {times} times; give each its own")
    return names


def _links(content: dict[str, Any], regions: list[str], path: Path) -> Array:
    """Rates of gangs by the regions that they span; 1 inside a region and where none is given.

    Of bandwidths: 1 on the fastest of the file; elsewhere the exchange takes longer in proportion.
    """
    if not content.get("link_gb_s"):
        return _both_ways(content, "links", regions, path, "a rate", most=1.0)
    if content.get("links"):
        raise TraceError(f"{path}: has both links and link_gb_s; give the rates or the bandwidths")
    gb_s = _both_ways(content, "link_gb_s", regions, path, "a bandwidth", most=np.inf)
    fastest = np.nanmax(gb_s)
    return 1 / (1 - EXCHANGE + EXCHANGE * fastest / np.where(np.isnan(gb_s), fastest, gb_s))


def _both_ways(
    content: dict[str, Any], field: str, regions: list[str], path: Path, what: str, most: float
) -> Array:
    """(regions, regions) both ways from those given one way; others are the most, or NaN."""
    made = np.full((len(regions), len(regions)), most if np.isfinite(most) else np.nan)
    given = tables(content, field, f"{path}")
    for both in (True, False):  # what is written for a direction wins over its mirror image
        for start, ends in given.items():
            check_names({start: 0, **ends}, regions, f"{path}: {field}", "region")
            for end, value in ends.items():
                where = f"{path}: {field}: {start}: {end}"
                number = checked_number(value, where, 0.0)
                if not 0 < number <= most:
                    bound = f"in (0, {most:g}]" if np.isfinite(most) else "above 0"
                    raise TraceError(f"{where}={value!r}; give {what} {bound}")
                made[regions.index(start), regions.index(end)] = number
                if both:
                    made[regions.index(end), regions.index(start)] = number
    return made
