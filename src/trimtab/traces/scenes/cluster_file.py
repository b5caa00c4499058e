"""Clusters as YAML: groups of like nodes, links between regions, and how fast each job kind runs.

    source: our cluster, March 2025
    nodes:
      - {kind: a100, count: 4, cpu: 128, mem_gb: 1024, gpu: 8, gpu_mem_gb: 80, peak_w: 6500}
      - {kind: cpu, count: 20, cpu: 64, mem_gb: 256, region: west}
    links: {all: {west: 0.6}}           # rate of a gang that spans the two regions; or, in GB/s,
    #   link_gb_s: {all: {all: 50, west: 12.5}}    a node's share of the network
    live_migration: true                # a running job can move and lose nothing; false if not said
    profile:
      rates: {training: {a100: 2.1, cpu: 0.05}}    # work seconds a second; 1 where none is given
      slow: {training: {inference: 0.2}}           # extra time beside such a neighbour; 0 if not
      source: measured in February

A file may also be just the list of groups. `resources: [cpu, mem_gb, gpu, disk_gb]` adds resources;
`kinds` and `regions` list their names in another order than that of the groups.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from trimtab.arrays import Array
from trimtab.build import cluster, uniform_profile
from trimtab.core import Cluster, Profile
from trimtab.errors import TraceError
from trimtab.files import write_whole

RESOURCES = ("cpu", "mem_gb", "gpu")
TOP = (
    *("nodes", "links", "link_gb_s", "live_migration", "profile", "source"),
    *("resources", "kinds", "regions"),
)
GROUP = ("kind", "count", "region", "gpu_mem_gb", "idle_w", "peak_w", "names")
PROFILE = ("rates", "slow", "source", "measured")  # the last: of older files, `source` says it
MAX_COUNT = 1_000_000
EXCHANGE = 0.2  # of a gang's time on the fastest links of the file is exchange: modelled


def read_cluster(path: str | Path) -> tuple[Cluster, dict[str, Any]]:
    """The cluster in a YAML file, and its `profile` section as written (empty if there is none)."""
    path = Path(path)
    content = _parsed(path)
    if isinstance(content, list):
        content = {"nodes": content}
    if not isinstance(content, dict):
        raise TraceError(f"{path}: holds {content!r}; want a list of groups of nodes, or `nodes:`")
    _known(content, TOP, f"{path}")
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
    _known(profile, PROFILE, f"{path}: profile")
    for kind, rates in _section(profile, "rates", f"{path}: profile").items():
        _known(rates, made.kinds, f"{path}: profile: rates: {kind}", "node kind")
    return made, profile


def save_cluster(made: Cluster, path: str | Path, profile: dict[str, Any] | None = None) -> None:
    """Write a cluster as YAML that `read_cluster` reads back to the same arrays."""
    groups: list[dict[str, Any]] = []
    for node in range(len(made)):
        row = made.nodes[node]
        group: dict[str, Any] = {"kind": made.kinds[row["kind"]], "count": 1}
        group |= {name: _short(made.capacity[node, r]) for r, name in enumerate(made.resources)}
        group |= {name: _short(row[name]) for name in ("gpu_mem_gb", "idle_w", "peak_w")}
        group["region"] = made.regions[row["region"]]
        names = [] if made.names is None else [str(made.names[node])]
        same = {"count", "names"}
        if groups and all(groups[-1][key] == group[key] for key in group if key not in same):
            groups[-1]["count"] += 1
            groups[-1]["names"] += names
        else:
            groups.append(group | {"names": names})
    content: dict[str, Any] = {"source": made.source, "resources": list(made.resources)}
    content |= {"kinds": list(made.kinds), "regions": list(made.regions)}
    content["nodes"] = [{k: v for k, v in group.items() if v != []} for group in groups]
    if len(made.regions) > 1:
        content["links"] = {
            start: dict(zip(made.regions, made.link[i].tolist()))
            for i, start in enumerate(made.regions)
        }
    if made.live_migration:
        content["live_migration"] = True
    if profile:
        content["profile"] = profile
    write_whole(path, yaml.safe_dump(content, sort_keys=False, width=100))


def _short(value: float) -> int | float:
    return int(value) if value == int(value) else float(value)


def profile_for(
    section: dict[str, Any], kinds: Sequence[str], node_kinds: Sequence[str], where: str = "profile"
) -> Profile:
    """The profile section of a cluster file as arrays, for jobs and nodes of these kinds.

    A pair without a rate runs at 1, and job kinds that the workload lacks are passed over, unless
    the name looks like a misspelt one. `where` (the file) begins the message of an error.
    """
    made = uniform_profile(len(kinds), len(node_kinds))
    rate, slow = made.rate.copy(), made.slow.copy()
    rates = _section(section, "rates", where)
    lacking = [kind for kind in kinds if kind not in rates]
    for kind, row in rates.items():
        if kind not in kinds:
            near = difflib.get_close_matches(str(kind), lacking, n=1, cutoff=0.8)
            _known({kind: row} if near else {}, lacking, f"{where}: rates", "job kind")
            continue
        _known(row, node_kinds, f"{where}: rates: {kind}", "node kind")
        for node_kind, value in row.items():
            number = _number(value, f"{where}: rates: {kind}: {node_kind}", 0.0)
            rate[kinds.index(kind), node_kinds.index(node_kind)] = number
    for kind, row in _section(section, "slow", where).items():
        for other, value in row.items():
            number = _number(value, f"{where}: slow: {kind}: {other}", 0.0)
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


def _parsed(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read ({error}); give a cluster's YAML file") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f":{where.line + 1}" if where else ""
        problem = getattr(error, "problem", None) or error
        raise TraceError(f"{path}{line}: is not YAML ({problem}); mend that line") from None


def _group(group: Any, g: int, resources: list[str], path: Path) -> dict[str, Any]:
    """A group with every field filled in and checked."""
    if not isinstance(group, dict):
        raise TraceError(
            f"{path}: group {g}: {group!r} is not a group; write kind: ..., count: ..."
        )
    where = f"{path}: group {g} ({group.get('kind', 'no kind')})"
    _known(group, (*GROUP, *resources), where)
    if not isinstance(group.get("kind"), str):
        raise TraceError(f"{where}: kind={group.get('kind')!r} is not a name; add kind: a100")
    filled: dict[str, Any] = {"count": 1, "region": "all", "names": None} | group
    for name in (*resources, "gpu_mem_gb", "idle_w", "peak_w"):
        filled[name] = _number(group.get(name, 0), f"{where}: {name}", 0.0)
    for name, least, most in (("count", 1, MAX_COUNT), ("gpu", 0, 64)):
        value = filled.get(name, 0)
        if _number(value, f"{where}: {name}", least) != int(value) or value > most:
            raise TraceError(f"{where}: {name}={value!r}; give a whole number in {least}..{most}")
    if filled["peak_w"] < filled["idle_w"]:
        raise TraceError(
            f"{where}: peak_w={filled['peak_w']:g} is below idle_w={filled['idle_w']:g}; "
            f"give the draw at full load"
        )
    if not isinstance(filled["region"], str):
        raise TraceError(f"{where}: region={filled['region']!r} is not a name; put it in quotes")
    names = filled["names"]
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
    named = any(group["names"] for group in groups)

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
        names=_names(groups, path) if named else None,
        link=_links(content, regions, path),
        source=str(content.get("source", path.name)),
    )


def _named(content: dict[str, Any], field: str, used: list[str], path: Path) -> list[str]:
    """Names in the file's own order, or else as they first appear."""
    listed = content.get(field, list(dict.fromkeys(used)))
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise TraceError(f"{path}: {field}={listed!r}; list the names, or leave {field} out")
    for name in used:
        _known({name: "of a group"}, listed, f"{path}: {field}", field.removesuffix("s"))
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
    given = _section(content, field, f"{path}")
    for both in (True, False):  # what is written for a direction wins over its mirror image
        for start, ends in given.items():
            _known({start: 0, **ends}, regions, f"{path}: {field}", "region")
            for end, value in ends.items():
                where = f"{path}: {field}: {start}: {end}"
                number = _number(value, where, 0.0)
                if not 0 < number <= most:
                    bound = f"in (0, {most:g}]" if np.isfinite(most) else "above 0"
                    raise TraceError(f"{where}={value!r}; give {what} {bound}")
                made[regions.index(start), regions.index(end)] = number
                if both:
                    made[regions.index(end), regions.index(start)] = number
    return made


def _section(content: dict[str, Any], name: str, where: str) -> dict[str, dict[str, Any]]:
    """A table of tables, such as rates: {job kind: {node kind: rate}}."""
    section = content.get(name) or {}
    if not isinstance(section, dict) or not all(isinstance(row, dict) for row in section.values()):
        raise TraceError(f"{where}: {name}={section!r}; write {name}: {{one: {{other: number}}}}")
    return section


def _known(given: Any, known: Sequence[str], where: str, what: str = "field") -> None:
    if not isinstance(given, dict):
        raise TraceError(f"{where}: {given!r} is not a table; write name: value lines")
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
            guess = f"did you mean {near[0]!r}? " if near else ""
            raise TraceError(
                f"{where}: {what} {name!r} (value {given[name]!r}) is unknown; {guess}"
                f"known: {', '.join(known)}"
            )


def _number(value: Any, where: str, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise TraceError(f"{where}={value!r} is not a number; give one without quotes or a unit")
    if value < least:
        raise TraceError(f"{where}={value!r} is below {least:g}; give a larger number")
    return float(value)
