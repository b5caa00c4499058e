"""Each claim holds, does not hold or is not measured by the rows that it names, and no others."""

import pytest

from trimtab.reproduce.adlro.claims import claims, standing
from trimtab.reproduce.tables import row

COMPLETION = "mean completion time of adlro is at or below"
BEYOND = "mean completion time of adlro is below the best baseline's beyond chance"
MARGIN = "mean completion time of adlro is at least 15 %"


def ratio(policy, low, high, metric="jct_mean_s", arm="noisy", load=0.9, **more):
    return row(policy, metric, (low + high) / 2, low, high, arm=arm, load=load, **more)


def table(name, *rows):
    return {"name": name, "rows": list(rows)}


def claim(begin, *tables):
    (found,) = [one for one in claims(tables) if one.text.startswith(begin)]
    return found


@pytest.mark.parametrize(
    ("low", "high", "smaller", "larger"),
    [
        (0.8, 0.95, "ahead", "behind"),
        (0.81, 0.999, "ahead", "behind"),
        (0.81, 1.0, "level", "level"),
        (1.0, 1.0, "level", "level"),
        (0.9, 1.09, "level", "level"),
        (0.7, 1.1, "unclear", "unclear"),
        (1.05, 1.2, "behind", "ahead"),
        (None, None, "unclear", "unclear"),
    ],
)
def test_a_policy_stands_as_the_whole_interval_says(low, high, smaller, larger):
    one = row("fcfs", "m", 1.0, low, high)
    assert standing(one) == smaller
    assert standing(one, smaller_is_better=False) == larger


def test_the_strongest_rival_of_each_place_decides():
    ratios = table("ratios", ratio("fcfs", 0.2, 0.3), ratio("gavel", 1.01, 1.05))
    found = claim(COMPLETION, ratios)
    assert found.holds is False
    assert "gavel 1.030 [1.010, 1.050]" in found.evidence


def test_a_level_place_is_told_and_is_not_beyond_chance():
    ratios = table("ratios", ratio("gavel", 0.95, 1.02), ratio("gavel", 0.8, 0.9, load=0.5))
    assert claim(COMPLETION, ratios).holds is True
    beyond = claim(BEYOND, ratios)
    assert beyond.holds is False
    assert "level in 1 of 2 (noisy, 0.9 gavel" in beyond.evidence


def test_an_interval_too_wide_to_tell_leaves_the_claim_open():
    wide = ratio("gavel", 0.4, 1.1)
    assert claim(COMPLETION, table("ratios", wide)).holds is None
    assert claim(BEYOND, table("ratios", wide)).holds is None
    # what others tell stands all the same
    behind = ratio("gavel", 1.1, 1.2, load=0.5)
    assert claim(COMPLETION, table("ratios", wide, behind)).holds is False
    level = ratio("gavel", 0.95, 1.05, load=0.5)
    assert claim(BEYOND, table("ratios", wide, level)).holds is False


def test_saturation_and_our_own_rule_do_not_count_for_completion_times():
    ratios = table("ratios", ratio("gavel", 0.8, 0.9), ratio("gavel", 2.0, 3.0, load=1.5))
    ratios["rows"].append(ratio("adlro-rule", 2.0, 3.0))
    assert claim(BEYOND, ratios).holds is True


@pytest.mark.parametrize(("at_saturation", "holds"), [((0.8, 0.9), True), ((7.0, 9.0), False)])
def test_the_network_must_not_harm_its_rule_at_saturation_either(at_saturation, holds):
    below, above = ratio("adlro-rule", 0.8, 0.9), ratio("adlro-rule", *at_saturation, load=1.5)
    assert claim("the network does no harm", table("ratios", below, above)).holds is holds


def test_the_margin_is_to_the_better_of_the_papers_two():
    wide = table("ratios", ratio("fcfs", 0.5, 0.84), ratio("fcfs+affinity", 0.1, 0.2))
    assert claim(MARGIN, wide).holds is True
    open_ = table("ratios", ratio("fcfs", 0.5, 0.86), ratio("fcfs+affinity", 0.1, 0.2))
    assert claim(MARGIN, open_).holds is None
    assert "0.860" in claim(MARGIN, open_).evidence
    missed = table("ratios", ratio("fcfs", 0.8, 0.96), ratio("fcfs+affinity", 0.1, 0.2))
    assert claim(MARGIN, missed).holds is False


def test_more_throughput_and_more_v_are_better():
    more = ratio("gavel", 1.01, 1.1, metric="throughput_per_h", load=1.5)
    score = ratio("gavel", 0.8, 0.9, metric="v_ratio")
    tables = table("ratios", more), table("hyperscore", score)
    assert claim("throughput of adlro at saturation is above", *tables).holds is True
    assert claim("no baseline has a HyperScore", *tables).holds is False


def test_the_optimum_is_near_within_ten_per_cent():
    def cases(high):
        return table(
            "small-cases",
            row("adlro", "total / optimum", 1.05, 1.0, high, release="all", cases=20),
            row("adlro", "largest total / optimum", 1.3, release="all", cases=20),
            row("preemptive bound", "total / optimum", 0.88, 0.8, 0.9, release="all", cases=20),
        )

    assert claim("adlro is within 10 %", cases(1.09)).holds is True
    assert "the largest is 1.300" in claim("adlro is within 10 %", cases(1.09)).evidence
    assert claim("adlro is within 10 %", cases(1.11)).holds is None
    far = row("adlro", "total / optimum", 1.12, 1.0, 1.2, release="all", cases=20)
    assert claim("adlro is within 10 %", table("small-cases", far)).holds is False


def test_it_generalises_where_no_scene_has_it_behind():
    here = ratio("fluid", 0.95, 1.05, metric="jct_ratio", scene="8 GPUs")
    there = ratio("fluid", 1.1, 1.2, metric="jct_ratio", scene="64 GPUs")
    assert claim("adlro generalises", table("generalisation", here)).holds is True
    found = claim("adlro generalises", table("generalisation", here, there))
    assert found.holds is False
    assert "64 GPUs" in found.evidence


@pytest.mark.parametrize(
    ("metric", "low", "high", "holds"),
    [
        ("jct_mean_s / fcfs", 0.6, 0.75, True),  # 19.5 / 25.8 = 0.756
        ("jct_mean_s / fcfs", 0.6, 0.76, None),
        ("jct_mean_s / fcfs", 0.7, 0.9, False),
        ("throughput_per_h / fcfs+affinity", 1.22, 1.4, True),  # 9.1 / 7.5 = 1.213
        ("throughput_per_h / fcfs+affinity", 1.21, 1.4, None),
        ("throughput_per_h / fcfs+affinity", 1.1, 1.3, False),
    ],
)
def test_the_papers_gain_is_reached_by_the_whole_interval(metric, low, high, holds):
    measured = table("paper", ratio("adlro", low, high, metric=metric))
    by_text = {one.text: one.holds for one in claims([measured])}
    (text,) = [
        text
        for text in by_text
        if text.startswith("the paper's gain")
        and text.endswith(metric.partition(" / ")[2])
        and ("completion" in text) == metric.startswith("jct")
    ]
    assert by_text[text] is holds


def test_the_memory_must_be_better_at_every_number_of_runs():
    def rows(last, ours=-0.2):
        return [
            row(name, "hyperdimensional less this", ours, -0.3, high, observations=count)
            for name in ("neighbours", "boosting")
            for count, high in ((1, -0.1), (5, -0.1), (20, last))
        ]

    begin = (
        "the hyperdimensional memory guesses speeds better than nearest neighbours and boosting a"
    )
    assert claim(begin, table("runtime-memory", *rows(-0.01))).holds is True
    assert claim(begin, table("runtime-memory", *rows(0.01))).holds is None
    assert claim(begin, table("runtime-memory", *rows(0.3, ours=0.1))).holds is False


def test_unfinished_jobs_are_told():
    left = table("loads", row("fcfs", "unfinished", 0.5, 0.0, 1.0, arm="noisy", load=0.9))
    assert claim("every policy finished", left).holds is False
    none = table("loads", row("fcfs", "unfinished", 0.0, 0.0, 0.0, arm="noisy", load=0.9))
    assert claim("every policy finished", none).holds is True


def test_what_the_tables_do_not_hold_is_not_measured():
    found = claims([])
    assert {one.holds for one in found} == {None}
    assert len(found) > 12
    one_seed = table("ratios", row("gavel", "jct_mean_s", 0.5, arm="noisy", load=0.9))
    assert claim(COMPLETION, one_seed).holds is None
