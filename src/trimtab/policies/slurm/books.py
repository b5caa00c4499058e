"""What Slurm keeps between passes: usage of each account and user, and the priority of each job."""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Snapshot
from trimtab.policies.slurm.fair_share import classic, decay_of, fair_tree, grown, tree_of
from trimtab.policies.slurm.priority import Request, Whole, priority
from trimtab.policies.slurm.rows import Rows
from trimtab.policies.slurm.settings import Settings
from trimtab.policies.slurm.table import Table

CPU, MEM = 0, 1  # columns of the resources
UNSEEN = -1


class Books:
    """Usage by account and user, and frozen priorities: both move on once a calculation period."""

    def __init__(self, snapshot: Snapshot, settings: Settings) -> None:
        self.settings = settings
        self.rows = Rows(snapshot)
        self.next_tick_s = snapshot.now_s + settings.calc_s
        self._decay = decay_of(settings.half_life_s)
        jobs = len(snapshot.jobs)
        self._leaf = np.full(jobs, UNSEEN)  # row of the tree, of jobs seen in the queue
        self._part = np.zeros(jobs, np.int64)  # where the job was last started
        self._priority = np.zeros((jobs, self.rows.most_parts))
        self._pairs: set[tuple[str, str]] = set()
        self._tree = tree_of(self.rows.accounts)
        self._usage = np.zeros(len(self._tree.names))
        self._factor = self._fair_share()
        self._active = np.zeros(0, np.int64)  # jobs that ran at the last look
        self._counted_s = np.zeros(jobs)  # up to when their use is in the books

    def look(self, snapshot: Snapshot) -> bool:
        """Bring the books to now; true where a calculation period has ended since the last look."""
        now_s = snapshot.now_s
        ticks = 0
        if now_s >= self.next_tick_s:
            ticks = 1 + int((now_s - self.next_tick_s) // self.settings.calc_s)
            self._pass_periods(snapshot, ticks)
        self._note_runs(snapshot)
        new = snapshot.queue[self._leaf[snapshot.queue] == UNSEEN]
        if len(new):
            self._admit(snapshot, new)
        if ticks:
            self._factor = self._fair_share()
            self._rate(snapshot, snapshot.queue)
        elif len(new):
            self._rate(snapshot, new)
        return ticks > 0

    def _pass_periods(self, snapshot: Snapshot, ticks: int) -> None:
        """Old use decays and running jobs add theirs, period by period."""
        period_s, active = self.settings.calc_s, self._active
        first_s = self.next_tick_s
        rate = self._cpus(snapshot, active)
        self._usage *= self._decay**period_s
        self._add(active, rate, first_s - self._counted_s[active])
        if ticks > 1:
            each = np.bincount(self._leaf[active], rate, len(self._usage))
            self._usage = grown(self._usage, each, self._decay, period_s, ticks - 1)
        self._counted_s[active] = first_s + (ticks - 1) * period_s
        self.next_tick_s = first_s + ticks * period_s

    def _note_runs(self, snapshot: Snapshot) -> None:
        """Who ended adds the rest of its use; who began is watched from its start."""
        running = np.unique(snapshot.runs["job"][snapshot.running])
        gone = np.setdiff1d(self._active, running, assume_unique=True)
        if len(gone):
            end_s = snapshot.state["end_s"][gone]
            end_s = np.where(np.isfinite(end_s), end_s, snapshot.now_s)
            self._add(gone, self._cpus(snapshot, gone), end_s - self._counted_s[gone])
        fresh = np.setdiff1d(running, self._active, assume_unique=True)
        self._counted_s[fresh] = snapshot.now_s
        unseen = fresh[self._leaf[fresh] == UNSEEN]
        if len(unseen):  # it ran before the policy came
            self._admit(snapshot, unseen)
        self._active = running

    def _add(self, jobs: Array, cpus: Array, span_s: Array) -> None:
        """CPU-seconds, decayed by the span they were used in."""
        span_s = np.maximum(span_s, 0.0)
        np.add.at(self._usage, self._leaf[jobs], cpus * span_s * self._decay**span_s)

    def _cpus(self, snapshot: Snapshot, jobs: Array) -> Array:
        return np.asarray(snapshot.demand[jobs, CPU] * snapshot.jobs["instances"][jobs])

    def _admit(self, snapshot: Snapshot, jobs: Array) -> None:
        """Find the new jobs' places in the tree, which grows where it lacks them."""
        named = [self.rows.owner(snapshot, job) for job in jobs.tolist()]
        lacking = {pair for pair in named if pair not in self._tree.row_of}
        if lacking:
            self._pairs |= lacking
            old = self._tree
            self._tree = tree_of(self.rows.accounts, self._pairs)
            usage = np.zeros(len(self._tree.names))
            place = np.array([self._tree.row_of[name] for name in old.names])
            usage[place] = self._usage
            seen = self._leaf != UNSEEN
            self._leaf[seen] = place[self._leaf[seen]]
            self._usage = usage
            self._factor = self._fair_share()
        self._leaf[jobs] = [self._tree.row_of[pair] for pair in named]

    def _fair_share(self) -> Array:
        if not self.settings.weights.fair_share:
            return np.zeros(len(self._usage))
        if self.settings.fair_tree:
            return fair_tree(self._tree, self._usage)
        return classic(self._tree, self._usage, self.settings.damping)

    def _rate(self, snapshot: Snapshot, jobs: Array) -> None:
        """Write the priority of these jobs in each of their partitions."""
        if not self.settings.multifactor or not any(self.settings.weights):
            return
        rows, settings = self.rows, self.settings
        ptr, parts = rows.parts_of(snapshot, jobs)
        owner = np.repeat(np.arange(len(jobs)), np.diff(ptr))
        job = jobs[owner]
        instances = snapshot.jobs["instances"][job]
        qos = rows.qos_priority[rows.qos_of(snapshot, job)]
        factor = rows.factor[parts]
        ask = Request(
            age_s=np.floor(snapshot.now_s) - np.floor(snapshot.state["queued_s"][job]),
            fair_share=self._factor[self._leaf[job]],
            cpus=snapshot.demand[job, CPU] * instances,
            nodes=np.asarray(instances if rows.apart else np.ones(len(job))),
            mem_gb=snapshot.demand[job, MEM] * instances
            if snapshot.demand.shape[1] > MEM
            else np.zeros(len(job)),
            gpus=snapshot.jobs["gpus"][job] * instances,
            limit_s=snapshot.jobs["request_s"][job],
            qos=qos if settings.raw_qos else qos / max(rows.qos_priority.max(), 1.0),
            partition=factor if settings.raw_partition else factor / max(rows.factor.max(), 1.0),
            site=np.zeros(len(job)),
        )
        whole = Whole(
            float(snapshot.capacity[:, CPU].sum()),
            float(len(snapshot.capacity)),
            *(total[parts] for total in rows.totals),
        )
        place = np.arange(len(parts)) - ptr[owner]
        self._priority[job, place] = priority(ask, whole, settings)

    def table(self, snapshot: Snapshot) -> tuple[Table, Array]:
        """The queue as entries in Slurm's order, and their priorities.

        Those of a reservation first, then by the partition's tier, by priority, and as submitted.
        """
        rows, jobs = self.rows, snapshot.queue
        ptr, part = rows.parts_of(snapshot, jobs)
        owner = np.repeat(np.arange(len(jobs)), np.diff(ptr))
        job = jobs[owner]
        rank = self._priority[job, np.arange(len(part)) - ptr[owner]]
        reserved = rows.reserved(snapshot)
        order = np.lexsort((job, -rank, -rows.tier[part], reserved[job] < 0))
        job, part, rank = job[order], part[order], rank[order]
        hunter, prey, turn = self._prey(snapshot, job, part)
        run_s = snapshot.jobs["request_s"][job] - snapshot.state["kept_s"][job]
        table = Table(
            job=job,
            part=part,
            run_s=snapshot.startup_s + np.minimum(np.maximum(run_s, 1.0), rows.max_s[part]),
            now_only=np.zeros(len(job), np.int64),
            user=rows.user_of(snapshot, job),
            account=self._leaf[job],
            hunter=hunter,
            prey=prey,
            turn=turn,
            part_nodes=rows.part_nodes,
            level=rows.level,
            apart=int(rows.apart),
        )
        return table, rank

    def _prey(self, snapshot: Snapshot, job: Array, part: Array) -> tuple[Array, Array, Array]:
        """Who may preempt which runs, and in what order: the least important, smallest first."""
        settings, rows, slots = self.settings, self.rows, len(snapshot.runs)
        if not settings.preempt:
            return np.zeros(len(job), np.int64), np.zeros((0, slots), np.int8), snapshot.running[:0]
        running = snapshot.running
        held = snapshot.runs["job"][running]
        if settings.preempt == "qos":
            own = rows.qos_of(snapshot, held)
            hunter, may = rows.qos_of(snapshot, job), rows.qos_preempts
            worth = rows.qos_priority[own]
        else:
            own, hunter = self._part[held], part
            worth = rows.tier[own].astype(np.float64)
            may = (rows.tier[:, None] > rows.tier[None, :]) & rows.yields[None, :]
        prey = np.zeros((len(may), slots), np.int8)
        prey[:, running] = may[:, own]
        order = np.lexsort((held, snapshot.jobs["instances"][held], worth))
        return hunter, prey, running[order]

    def begun(self, table: Table, began: Array) -> None:
        """Remember where jobs were started."""
        jobs = np.flatnonzero(began)
        self._part[jobs] = table.part[began[jobs] - 1]

    def cancels(self, snapshot: Snapshot, job: int) -> bool:
        """Whether the job is ended and not queued again when it is preempted."""
        if self.settings.preempt == "qos":
            return self.settings.preempt_mode == "cancel"
        return bool(self.rows.cancels[self._part[job]])
