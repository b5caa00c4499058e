from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from tests.unit.report.made import pool

from trimtab.errors import UnknownName
from trimtab.metrics import RECORDED, hyperscore, mean_v
from trimtab.report.compare.table import (
    COLUMNS,
    ON_REQUEST,
    SCORES,
    as_rich,
    columns,
    is_rule,
    strongest_rule,
    summary,
    value_and_interval,
)

ALL = ("p50_s", "p95_s", "p99_s", "max_s")
BSLD = ["bsld_p50", "bsld_p95", "bsld_p99", "bsld_max"]


def test_rows_are_sorted_by_mean_jct():
    rows = summary([pool("sjf", delay_s=6.0), pool("fcfs"), pool("learned", delay_s=3.0)])
    assert [row.policy for row in rows] == ["fcfs", "learned", "sjf"]
    # JCT 10, 20 and 23 s
    assert rows[0].mean["jct_mean_s"] == pytest.approx(53 / 3)
    assert rows[0].half["jct_mean_s"] is None
    assert rows[0].versus is None


def test_the_strongest_rule_is_the_best_policy_with_a_rules_name():
    rows = summary([pool("dqn:runs/7"), pool("sjf+easy", delay_s=1.0), pool("fcfs", delay_s=2.0)])
    assert [row.is_rule for row in rows] == [False, True, True]
    assert strongest_rule(rows).policy == "sjf+easy"
    assert strongest_rule(rows[:1]) is None


def test_the_strongest_of_all_that_were_not_learned_is_what_ratios_are_to_and_is_named():
    late_s = {"as recorded": 0.0, "adlro:run": 0.5, "gavel": 1.0, "fcfs": 2.0}
    results = [pool(name, seed, late_s[name]) for name in late_s for seed in (0, 1)]
    rows = summary(results)
    assert strongest_rule(rows).policy == "gavel"
    assert [row.is_rule for row in rows] == [False, False, True, True]
    assert columns(rows)[-1].title == "JCT vs gavel"
    assert str(as_rich(rows).caption).endswith("best rule: gavel")


@pytest.mark.parametrize(
    "name", ["adlro", "adlro-drift:run", "dqn:run", "sb3:a.zip", "as recorded"]
)
def test_what_was_learned_or_recorded_is_no_rule(name):
    assert not is_rule(name)


def test_an_interval_of_what_cannot_be_negative_ends_at_zero():
    # mean waits of 6 and 16 s: 11 +- 12.7 x 5
    rows = summary([pool("fcfs", 0), pool("fcfs", 1, 10.0)])
    [told] = columns(rows, ["wait_mean_s"])[:1]
    assert told.cells == ("11 [0, 74.5]",)
    assert value_and_interval(told.cells[0]) == ("11", "[0, 74.5]")
    assert value_and_interval("11.0 ± 2.0") == ("11.0", "± 2.0")
    assert value_and_interval("11.0") == ("11.0", "")


def test_what_a_log_recorded_is_shown_where_it_is_known_and_is_never_best():
    recorded = replace(pool("as recorded"), arrived=None, so_far=None)
    told = {c.key: c for c in columns(summary([recorded, pool("fcfs", delay_s=1.0)]))}
    assert told["jct_mean_s"].best == (False, False)
    assert told["arriving_utilization"].cells == ("", "50")


@pytest.mark.parametrize("key", [f"{of}_{part}" for of in ("jct", "wait") for part in ALL] + BSLD)
def test_percentiles_can_be_asked_for(key):
    [column] = columns(summary([pool("fcfs")]), [key])
    assert column.key == key and column.cells[0]


def test_ratios_to_the_strongest_rule_are_paired_by_seed():
    # mean JCT 53/3 and 83/3 under the rule; 3 and 6 s later under the other
    results = [
        pool("fcfs", 0),
        pool("fcfs", 1, 10.0),
        pool("other", 1, 16.0),
        pool("other", 0, 3.0),
    ]
    rows = {row.policy: row for row in summary(results)}
    first, second = (53 + 9) / 53, (83 + 18) / 83
    mean, half = rows["other"].versus
    assert mean == pytest.approx((first + second) / 2)
    assert half == pytest.approx(
        12.7062 * abs(first - second) / 2
    )  # t x sd / sqrt 2, sd = |d| / sqrt 2
    assert rows["fcfs"].versus == (1.0, 0.0)
    assert rows["other"].seeds == (0, 1)


def test_only_columns_that_say_something_are_shown():
    told = columns(summary([pool("fcfs"), pool("sjf", delay_s=1.0)]))
    keys = [column.key for column in told]
    usual = ["jct_mean_s", "wait_mean_s", "wait_p95_s", "bsld_mean"]
    assert keys == [*usual, "arriving_utilization", "arriving_useful_utilization"]


ASKED = ["uti", "awt_s", "ldi", "tsr"]


def rows_with(**metrics):
    """Two policies, the first of which comes first; each metric is a pair of their values, the same
    for two seeds.
    """

    def measured(result):
        which = ["first", "second"].index(result.policy)
        return {"jct_mean_s": 10.0 + which, **{name: both[which] for name, both in metrics.items()}}

    return summary([pool(p, seed) for p in ("second", "first") for seed in (0, 1)], measured)


def test_columns_that_are_asked_for_stand_in_the_order_asked():
    rows = summary([pool("fcfs"), pool("sjf", delay_s=1.0)])
    assert [column.key for column in columns(rows, ASKED)] == ASKED
    assert [column.key for column in columns(rows, ASKED[::-1])] == ASKED[::-1]
    mixed = ["tsr", "jct_mean_s", "uti"]
    assert [column.key for column in columns(rows, mixed)] == mixed


def test_columns_on_request_are_not_shown_unasked():
    assert not {column.key for column in columns(rows_with(uti=(0.5, 0.6)))} & set(ON_REQUEST)
    assert not set(ON_REQUEST) & set(COLUMNS)


def test_what_is_asked_for_is_shown_even_if_it_is_all_zero():
    rows = rows_with(energy_j=(0.0, 0.0), awt_s=(0.0, 0.0))
    assert [column.key for column in columns(rows)] == ["jct_mean_s"]
    told = columns(rows, ["energy_j", "awt_s"])
    assert [(column.key, column.cells) for column in told] == [
        ("energy_j", ("0", "0")),
        ("awt_s", ("0", "0")),
    ]


def test_columns_on_request_have_a_unit_and_mark_the_better_one():
    rows = rows_with(uti=(0.5, 0.75), awt_s=(600.0, 300.0), ldi=(0.2, 0.1), tsr=(0.875, 1.0))
    told = {c.key: (c.short, c.unit, c.cells, c.best) for c in columns(rows, ASKED)}
    second = (False, True)
    assert told == {
        "uti": ("UTI", "%", ("50", "75"), second),  # more is better
        "awt_s": ("AWT", "min", ("10", "5"), second),
        "ldi": ("LDI", "", ("0.200", "0.100"), second),
        "tsr": ("TSR", "%", ("87.5", "100"), second),
    }


def test_what_was_not_measured_is_left_out():
    assert [column.key for column in columns(rows_with(tsr=(0.9, 0.8)), ASKED)] == ["tsr"]


def test_an_unknown_metric_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match="'nope' is no column of the table; known: jct_mean_s"):
        columns(rows_with(), ["jct_mean_s", "nope"])


def test_the_ratio_to_the_best_rule_stands_beside_what_was_asked_for():
    results = [pool(policy, seed, seed) for policy in ("fcfs", "sjf") for seed in (0, 1)]
    assert [column.key for column in columns(summary(results), ["uti"])] == ["uti", "versus"]


def marks(better="jct_mean_s", recorded=False, **by_policy):
    """Policies that lead a column, by their values for each seed."""
    results = [pool(p, s) for p, values in by_policy.items() for s in range(len(values))]
    if recorded:
        for result in results:
            result.workload.meta["recorded"] = {}
    rows = summary(results, lambda r: {"jct_mean_s": 1.0, better: by_policy[r.policy][r.seed]})
    column = next(c for c in columns(rows, [better]) if c.key == better)
    return [row.policy for row, best in zip(rows, column.best) if best]


def test_a_policy_whose_interval_is_clear_of_the_next_ones_is_best():
    # 10 and 12 s: half of the interval is 12.7062 x 1.414 / 1.414 = 12.7 s; 90 s is beyond it
    assert marks(fcfs=(10.0, 12.0), sjf=(90.0, 90.0)) == ["fcfs"]
    assert marks("tsr", fcfs=(0.5, 0.5), sjf=(0.75, 0.75)) == ["sjf"]  # more is better


def test_a_policy_whose_interval_overlaps_the_next_ones_shares_the_mark():
    assert marks(fcfs=(10.0, 12.0), sjf=(20.0, 20.0), f1=(90.0, 90.0)) == ["fcfs", "sjf"]


def test_a_policy_behind_one_that_is_told_apart_is_not_best_however_wide_its_interval():
    assert marks(fcfs=(10.0, 10.0), sjf=(20.0, 20.0), f1=(30.0, 90.0)) == ["fcfs"]


def test_nothing_is_best_where_all_overlap_or_are_equal():
    assert marks(fcfs=(10.0, 12.0), sjf=(20.0, 20.0)) == []
    assert marks(fcfs=(10.0, 10.0), sjf=(10.0, 10.0)) == []


def test_values_that_read_the_same_are_marked_alike():
    assert marks(fcfs=(10.001, 10.001), sjf=(10.002, 10.002), f1=(90.0, 90.0)) == ["fcfs", "sjf"]


def test_with_one_seed_nothing_is_best():
    assert marks(fcfs=(10.0,), sjf=(90.0,)) == []


def test_a_rule_on_a_log_is_exact_with_one_seed_and_a_learned_policy_is_not():
    assert marks(recorded=True, fcfs=(10.0,), sjf=(90.0,)) == ["fcfs"]
    assert marks(recorded=True, fcfs=(10.0,), dqn=(50.0,), sjf=(90.0,)) == ["fcfs", "dqn"]


def test_what_was_recorded_stands_first_and_is_never_best_and_has_no_interval():
    recorded = [pool(RECORDED, seed) for seed in (0, 1)]
    results = [pool(p, s, d) for p, d in (("fcfs", 2.0), ("sjf", 9.0)) for s in (0, 1)]
    rows = summary(
        recorded + results,
        lambda r: (
            {"jct_mean_s": 1.0}
            if r.policy == RECORDED
            else {"jct_mean_s": 5.0 + r.state["start_s"][0], "wait_mean_s": 1.0}
        ),
    )
    assert [row.policy for row in rows] == [RECORDED, "fcfs", "sjf"]
    assert (rows[0].half["jct_mean_s"], rows[0].is_rule, rows[0].versus) == (None, False, None)
    told = {column.key: column for column in columns(rows)}
    assert told["jct_mean_s"].best == (False, True, False)
    assert told["wait_mean_s"].cells == ("", "1", "1")  # what a log does not tell is left empty


def test_all_waits_have_one_unit():
    # 60 s to 2 d: the middle on a logarithmic scale is sqrt(60 x 172800) = 3220 s, so minutes
    rows = rows_with(wait_mean_s=(60.0, 600.0), wait_p95_s=(6000.0, 172800.0), awt_s=(1.0, 2.0))
    told = {c.key: (c.unit, c.cells) for c in columns(rows, ["wait_mean_s", "wait_p95_s", "awt_s"])}
    assert told["wait_mean_s"] == ("min", ("1", "10"))
    assert told["wait_p95_s"] == ("min", ("100", "2,880"))
    assert told["awt_s"][0] == "min"


def test_v_over_seeds_is_a_geometric_mean_and_its_score_is_that_of_the_mean():
    values = {("fcfs", 0): 1.0, ("fcfs", 1): 1.0, ("sjf", 0): 2.0, ("sjf", 1): 8.0}

    def measured(result):
        v = values[result.policy, result.seed]
        return {"jct_mean_s": 10.0 / v, "v": v, "hyperscore": hyperscore(v)}

    rows = summary([pool(policy, seed) for policy, seed in values], measured)
    best = next(row for row in rows if row.policy == "sjf")
    assert best.mean["v"] == pytest.approx(4.0)  # sqrt(2 x 8), not 5
    assert best.mean["hyperscore"] == pytest.approx(hyperscore(4.0))
    low, high = mean_v([2.0, 8.0])[1:]
    assert best.half["v"] == pytest.approx((high - low) / 2)
    assert best.half["hyperscore"] == pytest.approx((hyperscore(high) - hyperscore(low)) / 2)
    told = {column.key: column for column in columns(rows)}
    assert told["v"].best == told["hyperscore"].best == (False, False)  # two seeds so far apart
    assert told["v"].cells[1] == "1"  # the reference against itself has no interval


def test_a_v_of_zero_in_one_seed_has_no_interval():
    def measured(result):
        return {"jct_mean_s": 1.0, "v": float(result.seed), "hyperscore": 100.0}

    row = summary([pool("fcfs", seed) for seed in (0, 1)], measured)[0]
    assert (row.mean["v"], row.half["v"]) == (0.0, None)
    assert (row.mean["hyperscore"], row.half["hyperscore"]) == (100.0, None)


def test_a_seed_without_a_score_does_not_hide_the_others():
    def measured(result):
        return {"jct_mean_s": 1.0} | ({} if result.seed else {"v": 2.0, "hyperscore": 190.0})

    row = summary([pool("fcfs", seed) for seed in (0, 1)], measured)[0]
    assert row.mean["v"] == pytest.approx(2.0)


def test_without_a_reference_there_is_no_column_of_scores():
    told = columns(summary([pool("fcfs"), pool("sjf", delay_s=1.0)]))
    assert not {column.key for column in told} & set(SCORES)


def test_a_packing_is_ranked_by_allocated_gpus():
    def measured(result):
        return {"gpu_allocation": 0.9 if result.policy == "fgd" else 0.8, "dropped": 3.0}

    rows = summary([pool("random"), pool("fgd")], measured)
    assert [row.policy for row in rows] == ["fgd", "random"]
    assert [column.key for column in columns(rows)] == ["gpu_allocation", "dropped"]


def printed(results, width):
    console = Console(width=width, file=StringIO())
    console.print(as_rich(summary(results), width))
    return console.file.getvalue()


def test_the_terminal_table_holds_every_policy_and_no_markup_of_its_name():
    results = [pool("[red]x[/red]", seed) for seed in (0, 1)]
    text = printed(results + [pool("fcfs", seed, 9.0) for seed in (0, 1)], 120)
    assert "[red]x[/red]" in text
    assert "vs best rule" in text
    assert "95 % interval over 2 seeds" in text


def test_a_narrow_terminal_loses_no_digit():
    results = [pool(policy, seed, 1e4 * seed) for policy in ("fcfs", "sjf+easy") for seed in (0, 1)]
    text = printed(results, 80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "±" in text
