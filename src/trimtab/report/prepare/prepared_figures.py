"""What a prepared trace is like, as figures under the names of PUBLISHED, with what they need.

Any part may be missing: a folder without machines has no load, one without instances no use. A
column is read at a time, so that a trace of any length needs little memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trimtab.arrays import Array
from trimtab.traces.alibaba2018.published import PUBLISHED
from trimtab.traces.alibaba2018.statistics import job_shape, quantiles
from trimtab.traces.prepare.result import manifest_of, numbers, opened
from trimtab.traces.readers.parquet import KEY

DAY_S = 86_400
LARGE = 6000  # instances; PUBLISHED says why they count apart
WIDE = 10  # instances from which a task may have stragglers


class Work(NamedTuple):
    """The tasks of a prepared trace and the jobs they make up."""

    path: Path
    is_task: Array  # (rows,) the others are services
    kinds: list[str]
    submit_s: Array  # (tasks,) of its job
    instances: Array  # (tasks,)
    kind: Array  # (tasks,) row of kinds
    job_submit_s: Array  # (jobs,)
    size: Array  # (jobs,) tasks
    depth: Array  # (jobs,) tasks on the longest path

    def column(self, name: str) -> Array:
        """(tasks,) one more column of the file."""
        return numbers(self.path, name)[self.is_task]


def read_work(folder: Path) -> Work | None:
    """None where no workload was prepared or it has no task."""
    path = folder / "workload.parquet"
    is_task = numbers(path, "service") == 0
    if not is_task.any():
        return None
    with opened(path) as file:
        kinds = json.loads(file.schema_arrow.metadata[KEY])["kinds"]
    depth_of = task_depth(path)[is_task]
    dag, submit_s = numbers(path, "meta.dag")[is_task], numbers(path, "submit_s")[is_task]
    job_submit_s = np.zeros(dag.max() + 1)
    job_submit_s[dag] = submit_s
    depth = np.zeros(len(job_submit_s), np.int32)
    np.maximum.at(depth, dag, depth_of)
    size = np.bincount(dag)
    del dag, depth_of
    instances = numbers(path, "instances")[is_task].astype(np.int32)
    kind = numbers(path, "kind")[is_task].astype(np.int8)
    return Work(path, is_task, kinds, submit_s, instances, kind, job_submit_s, size, depth)


def task_depth(path: Path) -> Array:
    """(rows,) tasks on the longest path that ends with each, itself included."""
    with opened(path) as file:
        after = file.read(["after"])["after"]
    length = pc.list_value_length(after).to_numpy()
    parent = pc.list_flatten(after).to_numpy().astype(np.int32)
    del after
    depth = np.ones(len(length), np.int32)
    waits = np.flatnonzero(length)
    first = (np.cumsum(length) - length)[waits]
    for _ in waits:  # a round settles one more level; cycles were dropped when the file was made
        best = 1 + np.maximum.reduceat(depth[parent], first)
        if (best == depth[waits]).all():
            break
        depth[waits] = best
    return depth


def last_window(folder: Path, name: str) -> Array:
    """(machines,) a column of the last window."""
    for window, values in _node_groups(folder, name, last=True):
        return values[window == window[-1]]
    return np.zeros(0)


def mean_imbalance(folder: Path, first: int, count: int) -> Array:
    """(windows,) how far machines are from their region's mean CPU use, on average; NaN = gap."""
    total, seen = np.zeros(count), np.zeros(count)
    for window, values in _node_groups(folder, "imbalance"):
        known = np.isfinite(values)
        at = window[known] - first
        total += np.bincount(at, np.abs(values[known]), count)
        seen += np.bincount(at, minlength=count)
    return np.where(seen > 0, total / np.maximum(seen, 1), np.nan)


def _node_groups(folder: Path, name: str, last: bool = False) -> Iterator[tuple[Array, Array]]:
    """(window, value) of one row group at a time: the file is by far the largest."""
    path = folder / "node.parquet"
    if not path.exists():
        return
    with opened(path) as file:
        for group in range(file.num_row_groups)[-1 if last else 0 :]:
            table = file.read_row_group(group, ["window", name])
            yield table["window"].to_numpy(), table[name].to_numpy()


def region_names(folder: Path, regions: int) -> list[str]:
    """As in cluster.yaml."""
    path = folder / "machines.parquet"
    table = pq.read_table(path, columns=["region", "region_name"])
    names = dict(zip(table["region"].to_pylist(), table["region_name"].to_pylist()))
    return [f"domain-{names.get(region, region)}" for region in range(regions)]


def quantile_rows(folder: Path) -> list[tuple[str, float, float]]:
    """(figure, published, here) of all that the folder tells, under the names of PUBLISHED.

    The rates by hour are left out (`rates_by_hour` has them), and so are task durations: a prepared
    trace keeps how long instances ran, not when a task began and ended.
    """
    folder = Path(folder)
    return beside_published(figures(folder, manifest_of(folder), read_work(folder)))


def beside_published(found: Mapping[str, float]) -> list[tuple[str, float, float]]:
    return [
        (name, float(published), float(found[name]))
        for name, published in PUBLISHED.items()
        if np.isfinite(found.get(name, np.nan))
    ]


def figures(folder: Path, manifest: Mapping[str, Any], work: Work | None) -> dict[str, float]:
    if "batch_task" not in manifest["tables"]:  # load of other machines: nothing to hold it against
        return {}
    found = _machine_figures(folder) | _use_figures(folder) | _service_figures(folder)
    if work is None:
        return found
    found |= _task_figures(work, manifest["options"]["machine_mem_gb"]) | job_shape(
        work.size, work.depth
    )
    found |= _rate_figures(work, manifest["windows"]["machines"])
    return found | (_instance_figures(work) if "batch_instance" in manifest["tables"] else {})


def _machine_figures(folder: Path) -> dict[str, float]:
    path = folder / "machines.parquet"
    if not path.exists():
        return {}
    table = pq.read_table(path, columns=["rack_name", "region_name", "cores", "memory"])
    pairs = set(zip(table["rack_name"].to_pylist(), table["region_name"].to_pylist()))
    racks, regions = {rack for rack, _ in pairs}, {region for _, region in pairs}
    return {
        "machines": len(table),
        "machine.cpu_num": table["cores"].to_numpy().mean(),
        "machine.mem_size": table["memory"].to_numpy().mean(),
        "failure_domains_1": len(racks),
        "failure_domains_2": len(regions),
        "failure_domains_2_of_one_1.mean": len(pairs) / len(racks),
    }


def _use_figures(folder: Path) -> dict[str, float]:
    """Use of the cluster in its windows."""
    time_s = numbers(folder / "cluster.parquet", "time_s")
    cpu, mem = (100 * numbers(folder / "cluster.parquet", name) for name in ("cpu", "mem"))
    seen = np.isfinite(cpu) & np.isfinite(mem)
    if not seen.any():
        return {}
    time_s, cpu, mem = time_s[seen], cpu[seen], mem[seen]
    found = {f"cluster_cpu_percent.{name}": getattr(cpu, name)() for name in ("mean", "min", "max")}
    found |= {f"cluster_mem_percent.{n}": getattr(mem, n)() for n in ("mean", "min", "max")}
    hour = (time_s // 3600 % 24).astype(int)
    count = np.bincount(hour, minlength=24)
    found["cluster_cpu_percent.sd"] = cpu.std()
    if (count > 0).all():
        by_hour = np.bincount(hour, cpu, minlength=24) / count
        found["cluster_cpu_percent.hour_min"] = by_hour.min()
        found["cluster_cpu_percent.hour_max"] = by_hour.max()
    return found


def _service_figures(folder: Path) -> dict[str, float]:
    """What is deployed in the last window."""
    services = last_window(folder, "services")
    if not services.any():
        return {}
    return {
        "containers_a_machine": services.mean(),
        "containers.machine_share": (services > 0).mean(),
        "containers.cores_reserved": numbers(folder / "cluster.parquet", "density")[-1],
    }


def _task_figures(work: Work, machine_mem_gb: float) -> dict[str, float]:
    count = work.instances
    plan_mem = np.round(work.column("demand.mem_gb") / machine_mem_gb * 100, 6)
    found = quantiles("plan_mem", plan_mem, 50, 90)
    span_s = work.column("meta.span_s")
    found |= quantiles("task_duration_s", span_s, 25, 50, 75, 90, 95, 99)
    found["task_duration_s.mean"] = span_s.mean()
    del plan_mem  # a column at a time
    plan_cpu = np.round(work.column("demand.cpu") * 100, 6)
    return {
        **quantiles("task_instances", count, 50, 75, 90, 95, 99),
        "task_instances.mean": count.mean(),
        "task_instances.mean_under_6000": count[count < LARGE].mean(),
        "plan_cpu.share_100": (plan_cpu == 100).mean(),
        "plan_cpu.share_50": (plan_cpu == 50).mean(),
        **found,
        "tasks.independent_share": (work.kind == work.kinds.index("independent")).mean(),
    }


def _rate_figures(work: Work, machines: int) -> dict[str, float]:
    """Rates over the whole days after day 0, and how jobs come in a second."""
    found: dict[str, float] = {}
    counts = _whole_days(work.submit_s)
    if len(counts):
        found["tasks.day_0_share"] = ((work.submit_s > 0) & (work.submit_s < DAY_S)).mean()
        found["tasks_a_machine_hour"] = counts.mean() / machines if machines else np.nan
    job_s = work.job_submit_s[work.job_submit_s >= DAY_S].astype(np.int64)
    if not len(job_s):
        return found
    low_s, high_s = int(job_s.min()), int(job_s.max()) + 1
    a_second = np.bincount(job_s - low_s)
    # within each hour, so that the day's shape does not count as burstiness
    hour = np.arange(low_s, high_s) // 3600
    hour -= hour[0]
    seconds = np.bincount(hour)
    mean = np.bincount(hour, a_second) / seconds
    square = np.bincount(hour, a_second**2) / seconds
    found["jobs_a_second.dispersion"] = (square - mean**2).sum() / mean.sum()
    return found


def rates_by_hour(work: Work) -> Array:
    """(24,) submissions by hour of the day against their mean; empty without a whole day."""
    counts = _whole_days(work.submit_s)
    return counts.mean(axis=0) / counts.mean() if len(counts) else np.zeros(0)


def _whole_days(submit_s: Array) -> Array:
    """(days, 24) submissions an hour, of the days after day 0 that are covered from end to end."""
    first_s, last_s = np.quantile(submit_s, (0.001, 0.999))
    # a trace that stops an hour early still has its last day
    first, last = max(1, int(np.ceil(first_s / DAY_S - 0.05))), int(last_s / DAY_S + 0.05)
    if last <= first:
        return np.zeros((0, 24))
    counts = np.bincount((submit_s // 3600).astype(np.int64), minlength=24 * last)
    return counts[24 * first : 24 * last].reshape(-1, 24)


def _instance_figures(work: Work) -> dict[str, float]:
    straggle = work.column("meta.straggle")
    # 0.5 stands for tasks below the trace's clock of whole seconds: they have no mean to exceed
    ran = (work.instances >= WIDE) & (work.column("work_s") > 0.5)
    return {
        **quantiles("cpu_used_of_planned", work.column("meta.use_ratio"), 50, 90),
        **quantiles("mem_used_of_planned", work.column("meta.mem_ratio"), 50, 90),
        **quantiles("straggler", straggle[ran], 50, 90, 99),
    }
