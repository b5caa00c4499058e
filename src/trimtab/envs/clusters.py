"""Clusters that play episodes of one workload: their arrays, and windows of the workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.build import uniform_profile
from trimtab.codecs.grid import GridCodec
from trimtab.codecs.queue import COLUMNS, QueueCodec, describe_all
from trimtab.core import Cluster, Event, Profile, Workload
from trimtab.envs.engine import EPISODE, GRID, QUEUE, SETTINGS, TOTAL_NAMES, begin_one
from trimtab.errors import TraceError, UnknownName
from trimtab.rules.names import PLACES
from trimtab.rules.world import World
from trimtab.sim.backend import events_of
from trimtab.sim.world import Models, check_hostable, expected_mix, fitted, hosted, make_world
from trimtab.traces.scenes.scene import open_cluster, open_scene

# contended, so that policies differ: `trimtab envs` shows by how much
DEFAULT = "adlro:load=1.1,estimate=noisy,jobs=25000"
TRAIN_SHARE = 0.8  # of the jobs, the earliest


def leading(workload: Workload) -> int:
    """How many rows every episode begins with: services that are pinned where they run."""
    loose = workload.truth["pinned"] == 0
    return int(loose.argmax()) if loose.any() else len(workload)


def window_of(workload: Workload, first: int, jobs: int) -> Workload:
    """Rows `first .. first + jobs`, behind those that every episode has."""
    fixed = leading(workload)
    if fixed == 0:
        return workload.window(first, jobs)
    rows = np.arange(len(workload))
    return workload.only((rows < fixed) | ((rows >= first) & (rows < first + jobs)))


def episode_of(workload: Workload, first: int, jobs: int) -> Workload:
    """One episode's workload: as `window_of`, times counted from the first job's unless services
    tell the time.
    """
    part = window_of(workload, first, jobs)
    if leading(workload):
        return part
    rows, truth = part.jobs.copy(), part.truth.copy()
    zero_s = rows["submit_s"][0]
    rows["submit_s"] -= zero_s
    rows["deadline_s"] -= zero_s
    truth["cancel_s"] -= zero_s
    return replace(part, jobs=rows, truth=truth)


def ground(
    workload: Workload | None,
    cluster: Cluster | str | None,
    profile: Profile | None,
    trace: str | None,
    load: float | None,
    lenient: bool,
) -> tuple[Workload, Cluster, Profile | None]:
    """What episodes are windows of: a workload that is given, or a trace by its name."""
    if workload is None:
        if isinstance(cluster, Cluster):
            raise TraceError(
                f"{cluster.source}: give the workload that runs on it, or the cluster's file or "
                "name beside a trace"
            )
        scene = open_scene(trace or DEFAULT, cluster, load=load, lenient=lenient)
        made = hosted(scene.workload, scene.cluster) if lenient else scene.workload
        return made, scene.cluster, profile or scene.profile
    if trace is not None or load is not None or lenient:
        raise TraceError(
            f"{workload.source}: a workload is given, so leave out trace, load and lenient; "
            "open_scene takes them and makes one"
        )
    if cluster is None:
        raise TraceError(f"{workload.source}: give the cluster that it runs on")
    if isinstance(cluster, str):
        cluster, own = open_cluster(cluster, workload)
        profile = profile or own
    return workload, cluster, profile


def rows_of(workload: Workload, jobs: int, part: str | None) -> tuple[int, int]:
    """The row of the first window of `jobs` jobs in a part, and how many windows it has."""
    fixed = leading(workload)
    cut = fixed + int(TRAIN_SHARE * (len(workload) - fixed))
    ends = {None: (fixed, len(workload)), "train": (fixed, cut), "test": (cut, len(workload))}
    if part not in ends:
        raise UnknownName(f"part {part!r} is unknown; give train or test, or none for all")
    begin, end = ends[part]
    if not 0 < jobs <= end - begin:
        of = f" of {part}" if part else ""
        raise TraceError(
            f"{workload.source}: jobs={jobs}; an episode{of} has 1..{end - begin} jobs"
        )
    return begin, end - begin - jobs + 1


def weights_of(reward: Mapping[str, float], scale: float) -> Array:
    """One weight a field of core.TOTALS, divided by the scale."""
    for name in reward:
        if name not in TOTAL_NAMES:
            raise UnknownName(
                f"reward {name!r} is unknown; the totals are {', '.join(TOTAL_NAMES)}"
            )
    return np.array([reward.get(name, 0.0) / scale for name in TOTAL_NAMES])


def most(counts: Array, jobs: int) -> int:
    """The largest sum of a window of `jobs` consecutive counts."""
    sums = np.concatenate(([0], np.cumsum(counts)))
    return int((sums[jobs:] - sums[:-jobs]).max())


class Clusters:
    """The arrays of `count` clusters that play episodes of one workload, and what steps them.

    The workload is one that is given, or that of a `trace`, as `trimtab compare` opens it: a log of
    yours or a generator, on a `cluster` that is given or named, at a `load`, without bad and
    impossible rows where `lenient`. `part` keeps to its first four fifths ("train") or to the rest
    ("test"), of which no window of the first has a job.

    `reward` weighs the changes of core.TOTALS; it is divided by `scale`: None = jobs x the mean
    requested seconds, so that with the default the rewards of an episode sum to -(mean wait / mean
    request).
    """

    def __init__(
        self,
        count: int,
        workload: Workload | None = None,
        cluster: Cluster | str | None = None,
        profile: Profile | None = None,
        models: Models | None = None,
        *,
        trace: str | None = None,
        load: float | None = None,
        lenient: bool = False,
        part: str | None = None,
        codec: str = "queue",
        jobs: int = 256,
        window: int | None = None,
        place: str = "best",
        seed: int = 0,
        reward: Mapping[str, float] | None = None,
        scale: float | None = None,
        record: bool = False,
    ) -> None:
        workload, cluster, profile = ground(workload, cluster, profile, trace, load, lenient)
        self.first, self.windows = rows_of(workload, jobs, part)
        workload, cluster = fitted(workload, cluster)
        check_hostable(workload, cluster)
        self.workload, self.cluster, self.jobs, self.record = workload, cluster, jobs, record
        self.profile = profile or uniform_profile(len(workload.kinds), len(cluster.kinds))
        self.models = models or Models()
        self.lends = cluster.lending is not None and self.models.lends
        if record and self.lends:
            raise TraceError(
                f"{cluster.source}: lends to batch jobs, which may be evicted any number of times, "
                "so that no log of an episode has room for all events; leave record out"
            )
        self.codec = made_codec(codec, cluster, window, place, seed, self.lends)
        self._lay(count)
        shape = self.codec.shape
        self.out = np.zeros((count, int(np.prod(shape))), np.float32)
        self.observation = self.out.reshape(count, *shape)  # a view
        self.mask = np.zeros((count, self.codec.actions), np.int8)
        self._fits = np.zeros((count, self.codec.window), np.int8)
        self.episode = np.zeros(count, EPISODE)
        self._table = np.zeros((len(workload), COLUMNS), np.float32)
        self._total = np.zeros(len(cluster.resources))
        describe_all(self.source, self._total, self._table)
        mean_s = float(workload.jobs["request_s"][leading(workload) :].mean())
        scale = scale or jobs * max(mean_s, 1.0)
        self.weights = weights_of({"waiting_s": -1.0} if reward is None else reward, scale)
        self.settings = np.zeros(1, SETTINGS)
        self.settings["world"], self.settings["source"] = self.world._address, self.source._address
        self.settings["codec"] = GRID if isinstance(self.codec, GridCodec) else QUEUE
        self.settings["window"], self.settings["place"] = self.codec.window, PLACES[place]
        self.settings["seed"] = seed
        self.settings["first"], self.settings["windows"] = self.first, self.windows
        self.settings["fixed"] = leading(workload)
        self._rest = (
            self.episode,
            self.weights,
            self._table,
            self._total,
            self.mask,
            self._fits,
            self.out,
        )

    def _lay(self, count: int) -> None:
        """Make the world of all clusters, with room for the busiest window, and the workload's."""
        workload, jobs = self.workload, self.jobs
        fixed, cluster = leading(workload), self.cluster
        rows = workload.jobs[fixed:]
        full = make_world([workload], [cluster], self.profile, self.models, runs=1, pieces=1)
        names = (
            *("jobs", "truth", "demand", "child_ptr", "child_idx", "capacity"),
            *("quota_cap", "quota_ptr", "quota_idx", "quota_nodes", "gate", "reserved"),
        )
        self.source = World(**{name: np.asarray(getattr(full, name)) for name in names})
        pieces = most(rows["instances"], jobs)
        runs = most(np.where(rows["gang"] == 1, 1, rows["instances"]), jobs)
        tries = self.models.retries + 1
        log = jobs * (3 + tries) + pieces * (1 + tries) + 2 * len(self.models.outages)
        world = make_world(
            [window_of(workload, fixed, jobs)] * count,
            [cluster] * count,
            self.profile,
            self.models,
            runs=runs,
            pieces=pieces,
            log=log if self.record else 0,
            mix=expected_mix(workload),
        )
        edges, likes = np.diff(full.child_ptr[0])[fixed:], int(workload.jobs["like"].max()) + 1
        members = np.diff(full.quota_ptr[0])
        self.world = world.replaced(
            quota_idx=np.zeros((count, most(members, jobs) if len(members) else 0), np.int64),
            child_idx=np.zeros((count, most(edges, jobs)), np.int64),
            cancel=np.zeros((count, most(np.isfinite(workload.truth["cancel_s"]), jobs)), np.int64),
            refused=np.zeros((count, likes), np.int64),
            prefer=np.zeros((count, likes), np.int64),
        )

    def drawn(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> int:
        """The row where an episode begins: that of the options, or one at random."""
        asked = first_row(options, self)
        return int(self.first + rng.integers(self.windows) if asked is None else asked)

    def begin(self, c: int, first: int) -> None:
        begin_one(self.settings, c, first, *self._rest)

    def events(self, c: int = 0) -> list[Event]:
        """What happened in the present episode, where the env was made with record=True."""
        return events_of(self.world.log[c, : int(self.world.head[c]["log"])])

    def totals(self, c: int = 0) -> dict[str, float]:
        """The running totals of the present episode."""
        return {name: self.world.totals[c][name].item() for name in TOTAL_NAMES}


def made_codec(
    codec: str, cluster: Cluster, window: int | None, place: str, seed: int, lends: bool
) -> QueueCodec | GridCodec:
    if codec == "queue":
        return QueueCodec(128 if window is None else window, place, seed)
    if codec == "grid":
        nodes, resources = len(cluster), len(cluster.resources)
        return GridCodec(nodes, resources, 8 if window is None else window, place, seed, lends)
    raise UnknownName(f"codec {codec!r} is unknown; envs know queue and grid")


def first_row(options: Mapping[str, Any] | None, of: Clusters) -> Array | None:
    """The rows asked for in `options={"start": ..}`, checked."""
    if not options or "start" not in options:
        return None
    rows = np.asarray(options["start"], np.int64)
    last = of.first + of.windows - 1
    if (rows < of.first).any() or (rows > last).any():
        raise TraceError(
            f"start={options['start']}; an episode starts at a row in {of.first}..{last}"
        )
    return rows
