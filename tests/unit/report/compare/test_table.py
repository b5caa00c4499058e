from io import StringIO

import pytest
from rich.console import Console
from tests.unit.report.made import pool

from trimtab.errors import UnknownName
from trimtab.metrics import hyperscore, mean_v
from trimtab.report.compare.table import (
    COLUMNS,
    ON_REQUEST,
    SCORES,
    as_rich,
    columns,
    is_rule,
    strongest_rule,
    summary,
)


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
    assert keys == ["jct_mean_s", "wait_mean_s", "wait_p95_s", "bsld_mean", "utilization"]


ASKED = ["uti", "awt_s", "ldi", "tsr"]


def rows_with(**metrics):
    """Two policies, the first of which comes first; each metric is a pair of their values."""

    def measured(result):
        which = ["first", "second"].index(result.policy)
        return {"jct_mean_s": 10.0 + which, **{name: both[which] for name, both in metrics.items()}}

    return summary([pool("second"), pool("first")], measured)


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


def test_the_best_of_a_column_is_marked_and_equals_are_not():
    told = {c.key: c for c in columns(summary([pool("fcfs"), pool("sjf", delay_s=1.0)]))}
    assert told["jct_mean_s"].best == (True, False)
    assert told["utilization"].best == (True, False)  # the other one has the longer makespan
    close = columns(summary([pool("fcfs"), pool("sjf", delay_s=1e-4), pool("f1", delay_s=5.0)]))
    assert close[0].best == (True, True, False)  # both read 17.7 s
    same = columns(summary([pool("fcfs"), pool("sjf")]))
    assert not any(any(column.best) for column in same)


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
    assert told["v"].best == told["hyperscore"].best == (True, False)
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
