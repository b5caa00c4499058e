"""The compiled pool starts every job when a plain Python reading of the rules does."""

import numpy as np
import pytest

from trimtab.errors import TraceError
from trimtab.sim import pool, pool_queue
from trimtab.sim.pool import CONSERVATIVE, EASY, NO_BACKFILL, run_pool


def ranks(*keys) -> np.ndarray:
    """Place of every row in the order of the keys, the first key first, ties by row."""
    order = np.lexsort(keys[::-1])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank


def starts(rows, capacity, backfill, rank=None, instances=None, after=None):
    """Starts and ends; rows are (submit_s, run_s, request_s, width), after is {child: parents}."""
    submit_s, run_s, request_s, width = np.array(rows, float).reshape(-1, 4).T
    rank = ranks(submit_s) if rank is None else rank
    instances = np.ones(len(rows)) if instances is None else instances
    parents = [(after or {}).get(row, []) for row in range(len(rows))]
    after_ptr = np.cumsum([0, *map(len, parents)])
    after_idx = np.array([parent for some in parents for parent in some], np.int64)
    start_s, end_s = run_pool(
        submit_s, run_s, request_s, width, rank, capacity, backfill, instances, after_ptr, after_idx
    )
    return start_s.tolist(), end_s.tolist()


def naive(rows, capacity, backfill, rank, instances, after):
    """The rules as a reader would write them: lists, no index, everything anew at every instant."""
    jobs = len(rows)
    start_s, end_s = [None] * jobs, [None] * jobs
    left, come, queue, running = (
        list(map(int, instances)),
        set(),
        [],
        [],
    )  # running: (end, due, job)
    free = capacity
    instants = {row[0] for row in rows}

    def start(job, now):
        nonlocal free
        _, run_s, request_s, width = rows[job]
        running.append((now + run_s, now + request_s, job))
        instants.add(now + run_s)
        free -= width
        left[job] -= 1
        start_s[job] = now if start_s[job] is None else start_s[job]
        if left[job] == 0:
            queue.remove(job)

    def profile(now):
        """(time, units that become free then) of every running instance, soonest first."""
        return sorted((max(due, now + 1), rows[job][3]) for _, due, job in running)

    while instants:
        now = min(instants)
        instants.remove(now)
        ended = [one for one in running if one[0] <= now]
        running = [one for one in running if one[0] > now]
        free += sum(rows[job][3] for _, _, job in ended)
        for _, _, job in ended:
            if left[job] == 0 and all(other != job for _, _, other in running):
                end_s[job] = now
        new = [
            job
            for job in range(jobs)
            if job not in come
            and rows[job][0] <= now
            and all(end_s[parent] is not None for parent in after.get(job, []))
        ]
        come.update(new)
        queue = sorted(queue + new, key=lambda job: rank[job])
        if not ended and not new:
            continue
        while queue and rows[queue[0]][3] <= free:
            start(queue[0], now)
        if not queue:
            continue
        if backfill == EASY:
            head = queue[0]
            total, shadow_s, extra = free, None, 0
            for due_s, units in profile(now):
                if shadow_s is None or due_s == shadow_s:
                    total += units
                    if total >= rows[head][3]:
                        shadow_s, extra = due_s, total - rows[head][3]
            for job in queue[1:]:
                _, _, request_s, width = rows[job]
                for _ in range(left[job]):
                    in_time = now + request_s <= shadow_s
                    if width <= free and (in_time or width <= extra):
                        start(job, now)
                        extra -= 0 if in_time else width
        elif backfill == CONSERVATIVE:
            changes = [(now, free), *profile(now)]  # (time, units more from then on)
            chosen = []
            for job in queue:
                _, _, request_s, width = rows[job]
                for _ in range(left[job]):
                    for at in sorted({time_s for time_s, _ in changes}):
                        over = at + max(request_s, 1)
                        steps = [t for t, _ in changes if at <= t < over]
                        if all(sum(u for t, u in changes if t <= step) >= width for step in steps):
                            break
                    changes += [(at, -width), (over, width)]
                    chosen += [job] if at == now else []
            for job in chosen:
                start(job, now)
    return start_s, end_s


def random_case(rng):
    """A small workload full of ties: few times, widths up to the pool, some DAGs and arrays."""
    jobs, capacity = int(rng.integers(1, 14)), int(rng.integers(1, 9))
    span, longest = int(rng.integers(1, 25)), int(rng.integers(1, 12))
    submit_s = rng.integers(0, span, jobs) * rng.choice([1, 0.5])
    run_s = rng.integers(rng.integers(0, 2), longest + 1, jobs)
    request_s = rng.choice(
        [run_s, rng.integers(0, longest + 1, jobs), run_s + rng.integers(0, 4, jobs)]
    )
    width = rng.integers(1, capacity + 1, jobs)
    rows = [tuple(row) for row in np.stack([submit_s, run_s, request_s, width], 1).tolist()]
    rank = ranks(*[(submit_s,), (request_s, submit_s), (rng.random(jobs),)][rng.integers(3)])
    instances = rng.integers(1, 5, jobs) if rng.random() < 0.4 else np.ones(jobs, np.int64)
    after = {}
    if rng.random() < 0.4:
        order = rng.permutation(jobs)
        for i in range(1, jobs):
            after[int(order[i])] = order[:i][rng.random(i) < 1.5 / jobs].tolist()
    return rows, capacity, rank, instances, after


@pytest.mark.parametrize("backfill", [NO_BACKFILL, EASY, CONSERVATIVE])
def test_every_start_is_that_of_the_plain_reading(backfill):
    for seed in range(1500):
        rows, capacity, rank, instances, after = random_case(np.random.default_rng(seed))
        expected = naive(rows, capacity, backfill, rank, instances, after)
        got = starts(rows, capacity, backfill, rank, instances, after)
        assert got == expected, f"seed {seed}"


@pytest.mark.parametrize("backfill", [NO_BACKFILL, EASY, CONSERVATIVE])
def test_a_long_queue_starts_as_in_the_plain_reading(backfill):
    # more jobs than one word of the index holds, most of them waiting, more widths than bands
    for seed in range(4):
        rng = np.random.default_rng(seed)
        jobs = 300 if backfill != CONSERVATIVE else 70
        submit_s, run_s = rng.integers(0, 60 + 300 * seed, jobs), rng.integers(0, 30, jobs)
        request_s = rng.choice([run_s, rng.integers(0, 40, jobs)])
        width = np.minimum(rng.geometric(0.1, jobs), 48)
        rows = [tuple(map(float, row)) for row in zip(submit_s, run_s, request_s, width)]
        instances = np.ones(jobs) if seed % 2 else rng.integers(1, 4, jobs)
        for rank in (ranks(submit_s), ranks(request_s, submit_s), ranks(-width)):
            expected = naive(rows, 48, backfill, rank, instances, {})
            assert starts(rows, 48, backfill, rank, instances) == expected


def test_each_compiled_function_runs_as_python(monkeypatch):
    rows, capacity, rank, instances, after = random_case(np.random.default_rng(5))
    compiled = [starts(rows, capacity, backfill, rank, instances, after) for backfill in range(3)]
    for module in (pool, pool_queue):
        for name, function in vars(module).copy().items():
            if hasattr(function, "py_func"):
                monkeypatch.setattr(module, name, function.py_func)
    assert [starts(rows, capacity, b, rank, instances, after) for b in range(3)] == compiled


def test_an_end_frees_its_units_for_an_arrival_at_the_same_instant():
    #        submit run request width
    rows = [(0, 10, 10, 4), (10, 5, 5, 4)]
    assert starts(rows, 4, NO_BACKFILL) == ([0, 10], [10, 15])


def test_without_backfilling_the_head_blocks_those_behind_it():
    # job 1 wants 4 of the 2 that are free; job 2 would fit and waits until 1 has run from 10 to 15
    rows = [(0, 10, 10, 2), (1, 5, 5, 4), (2, 3, 3, 2)]
    assert starts(rows, 4, NO_BACKFILL)[0] == [0, 10, 15]


def test_easy_starts_a_job_that_ends_by_the_shadow_time():
    # shadow time 10, extra 4 - 4 = 0: job 2 is over by then (2 + 8 = 10), job 3 is not (3 + 8 = 11)
    # and starts after job 1, which runs 10..15
    rows = [(0, 10, 10, 2), (1, 5, 5, 4), (2, 8, 8, 1), (3, 8, 8, 1)]
    assert starts(rows, 4, EASY)[0] == [0, 10, 2, 15]


def test_easy_starts_a_long_job_on_extra_units_and_uses_them_up():
    # at 10 the head takes 3 of 5 and leaves 2 extra: jobs 2 and 3 take 1 each, job 4 would take a
    # third; the head runs 10..15 and leaves none, job 4 starts at 15
    rows = [(0, 10, 10, 3), (1, 5, 5, 3), (2, 50, 50, 1), (2, 50, 50, 1), (2, 50, 50, 1)]
    assert starts(rows, 5, EASY)[0] == [0, 10, 2, 2, 15]


def test_the_shadow_time_counts_all_that_end_at_that_very_time():
    # the head wants 3; jobs 0 and 1 both end at 10: extra is 1 + 2 + 2 - 3 = 2, and job 3 takes 1
    rows = [(0, 10, 10, 2), (0, 10, 10, 2), (1, 5, 5, 3), (2, 90, 90, 1)]
    assert starts(rows, 5, EASY)[0] == [0, 0, 10, 2]


def test_a_late_job_is_expected_to_end_next_second():
    # job 0 said 5 and takes 20; at 8 it is late and the shadow time is 8 + 1 = 9: job 2 (8 + 1 = 9)
    # may run, job 3 (8 + 2 = 10) may not and waits for the head, 20..25
    rows = [(0, 20, 5, 2), (1, 5, 5, 4), (8, 1, 1, 1), (8, 2, 2, 1)]
    assert starts(rows, 4, EASY)[0] == [0, 20, 8, 25]


def test_what_was_refused_may_start_once_a_late_job_moves_the_shadow_time():
    # jobs 0 and 1 hold 2 of 5 each until 20 and said 5 and 7; the head wants 3. At 2 the shadow is
    # 5, extra 1 + 2 - 3 = 0: job 3 (30 s) is refused. At 6 job 4 arrives, job 0 is late and now
    # expected at 7 like job 1, extra 1 + 2 + 2 - 3 = 2: job 3 starts. At 20 the rest has room
    rows = [(0, 20, 5, 2), (0, 20, 7, 2), (1, 5, 5, 3), (2, 30, 30, 1), (6, 30, 30, 1)]
    assert starts(rows, 5, EASY)[0] == [0, 0, 20, 6, 20]


def test_conservative_holds_a_reservation_that_easy_would_break():
    # pool of 4; job 0 holds 3 until 10. The head, job 1, wants 4: 10..15. Job 2 wants 3: 15..20.
    # Job 3 (1 unit, 12 s) would delay the head: 3 + 12 > 10. Job 4 (1 unit, 6 s) would not: 4 + 6.
    rows = [(0, 10, 10, 3), (1, 5, 5, 4), (2, 5, 5, 3), (3, 12, 12, 1), (4, 6, 6, 1)]
    assert starts(rows, 4, CONSERVATIVE)[0] == [0, 10, 15, 15, 4]
    # pool of 5: the head wants 4 at 10 and leaves 1 extra. Job 2 (5 units) is reserved 15..20. EASY
    # lets job 3 (1 unit, 30 s) take the extra unit, 3..33; conservative does not: 3 + 30 > 15.
    rows = [(0, 10, 10, 3), (1, 5, 5, 4), (2, 5, 5, 5), (3, 30, 30, 1)]
    assert starts(rows, 5, EASY)[0] == [0, 10, 33, 3]
    assert starts(rows, 5, CONSERVATIVE)[0] == [0, 10, 15, 20]


def test_a_static_key_orders_the_queue_and_ties_go_by_submit_then_row():
    # all but job 0 wait until 10; row 1 asks for 7, rows 2, 3 and 4 for 3, and row 4 came first
    rows = [(0, 10, 10, 1), (1, 7, 7, 1), (2, 3, 3, 1), (2, 3, 3, 1), (1, 3, 3, 1)]
    submit_s, _, request_s, _ = np.array(rows).T
    assert starts(rows, 1, NO_BACKFILL, ranks(request_s, submit_s))[0] == [0, 19, 13, 16, 10]


def test_rows_need_not_come_in_order_of_submission():
    assert starts([(5, 2, 2, 1), (0, 3, 3, 1), (4, 9, 9, 1)], 1, NO_BACKFILL)[0] == [13, 0, 4]


def test_instances_start_as_room_appears_and_end_with_the_last():
    # 5 instances of 10 s on 2 units: two at 0, two at 10, one at 20
    assert starts([(0, 10, 10, 1)], 2, NO_BACKFILL, instances=[5]) == ([0], [30])


def test_an_array_with_instances_left_blocks_those_behind_it():
    # two of job 0's three instances run 0..10; the third waits for one unit as the head, so job 1
    # (2 units) waits too: third instance 10..20 beside nothing wider than 1, job 1 at 20
    rows = [(0, 10, 10, 1), (0, 5, 5, 2)]
    assert starts(rows, 2, NO_BACKFILL, instances=[3, 1]) == ([0, 20], [20, 25])


def test_easy_starts_only_as_many_instances_as_the_extra_units_allow():
    # job 0 holds 2 of 6 until 10; the head wants 5: extra is 6 - 5 = 1. Of job 2's three instances
    # (20 s > 10) one starts at 2 on the extra unit; the head runs 10..15; the other two start at 15
    rows = [(0, 10, 10, 2), (1, 5, 5, 5), (2, 20, 20, 1)]
    assert starts(rows, 6, EASY, instances=[1, 1, 3]) == ([0, 10, 2], [10, 15, 35])


def test_a_child_is_queued_at_the_instant_its_last_parent_ends():
    # child 2 waits for 0 (ends 4) and 1 (ends 7) and takes the unit before job 3, which came later
    rows = [(0, 4, 4, 1), (0, 7, 7, 1), (1, 2, 2, 2), (2, 3, 3, 2)]
    assert starts(rows, 2, NO_BACKFILL, after={2: [0, 1]})[0] == [0, 0, 7, 9]


def test_a_child_waits_for_its_own_submit_time_too():
    assert starts([(0, 4, 4, 1), (9, 1, 1, 1)], 1, NO_BACKFILL, after={1: [0]})[0] == [0, 9]


def test_a_job_without_length_ends_at_its_own_start_and_frees_its_units_then():
    rows = [(3, 0, 0, 1), (3, 0, 0, 1), (3, 2, 2, 1)]
    assert starts(rows, 1, NO_BACKFILL) == ([3, 3, 3], [3, 3, 5])


def test_no_jobs_give_no_starts():
    assert starts([], 4, EASY) == ([], [])


@pytest.mark.parametrize(
    ("rows", "after", "words"),
    [
        ([(0, 1, 1, 1), (0, 1, 1, 9)], None, "row 1: width=9"),
        ([(0, 1, 1, 0)], None, "row 0: width=0"),
        ([(0, -5, 1, 1)], None, "row 0: run_s=-5"),
        ([(0, 5, np.nan, 1)], None, "row 0: request_s=nan"),
        ([(0, 1, 1, 1), (0, 1, 1, 1)], {0: [1], 1: [0]}, "row 0: after=\\[1\\] waits for itself"),
    ],
)
def test_a_row_that_can_never_run_is_named(rows, after, words):
    with pytest.raises(TraceError, match=words):
        starts(rows, 8, EASY, after=after)
