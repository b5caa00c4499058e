"""What we would say about ADLRO, each sentence checked against the tables.

A comparison is paired by seed: a policy is ahead where the whole 95 % interval of the ratio says
so, level where the interval contains 1 and is narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from trimtab.claims import Claim, listed
from trimtab.reproduce.tables import Row, Table, measured_text, places, rows_of

LEARNED = "adlro"
RULE_ALONE = "adlro-rule"  # what guides the network, without it
OF_PAPER = ("fcfs", "fcfs+affinity")
BASELINES = (
    *OF_PAPER,
    *("fcfs+random", "fcfs+fastest", "mct", "sjf+fastest", "srtf+fastest", "las+fastest"),
    *("fluid", "gavel"),
)
SATURATED = 1.5  # offered: no policy keeps up with it
FROM_PAPER = {  # ratios of the paper's Table 1 for ADLRO; and in its words
    "jct_mean_s / fcfs": (19.5 / 25.8, "mean completion time at least 24.4 % below fcfs"),
    "jct_mean_s / fcfs+affinity": (
        19.5 / 22.1,
        "mean completion time at least 11.8 % below fcfs+affinity",
    ),
    "throughput_per_h / fcfs": (9.1 / 6.2, "throughput at least 46.8 % above fcfs"),
    "throughput_per_h / fcfs+affinity": (
        9.1 / 7.5,
        "throughput at least 21.3 % above fcfs+affinity",
    ),
}
ENOUGH = 0.85  # of the better of the paper's two baselines
NEAR = 1.10  # of the optimum
WIDE = 0.1  # half of an interval that contains 1 and says nothing
SIMPLER = ("neighbours", "boosting")  # than the hyperdimensional memory


def claims(tables: Sequence[Table]) -> list[Claim]:
    """Every claim, in the order in which we would make them."""
    checks: list[Callable[[Sequence[Table]], list[Claim]]] = [
        _completion, _margin, _throughput, _hyperscore, _optimum, _generalises, _paper, _network,
        _memory, _finished, _little,
    ]  # fmt: skip
    return [claim for check in checks for claim in check(tables)]


def standing(ratio: Row, smaller_is_better: bool = True) -> str:
    """ahead, level or behind by the interval of a ratio; unclear where it is wide or missing."""
    low, high = ratio["low"], ratio["high"]
    if low is None or high is None:
        return "unclear"
    if high < 1 if smaller_is_better else low > 1:
        return "ahead"
    if low > 1 if smaller_is_better else high < 1:
        return "behind"
    return "level" if high - low <= 2 * WIDE else "unclear"


def row_text(one: Row) -> str:
    """A row as evidence: where, against whom, how much."""
    where = [str(one[key]) for key in ("scene", "arm", "load", "observations") if key in one]
    if one["ours"] is None:
        return f"{', '.join(where)} {one['policy']}: nothing to divide by"
    return f"{', '.join(where)} {one['policy']} {measured_text(one)}".strip()


def some(rows: Sequence[Row]) -> str:
    """The first rows as evidence, and how many more there are."""
    return listed([row_text(one) for one in rows])


def against_best(
    claim: str, beyond: str, ratios: Sequence[Row], keys: Sequence[str], smaller: bool = True
) -> list[Claim]:
    """Two claims about the strongest rival in each place: nowhere behind it, everywhere ahead."""
    strongest = []
    for place in places(ratios, *keys):
        here = [one for one in ratios if all(one.get(key) == place[key] for key in keys)]
        known = [one for one in here if one["ours"] is not None]
        strongest += sorted(known, key=lambda one: -one["ours"] if smaller else one["ours"])[:1]
    if not strongest:
        return [Claim(claim), Claim(beyond)]
    by_standing: dict[str, list[Row]] = {}
    strongest.sort(key=lambda one: -one["ours"] if smaller else one["ours"])
    for one in strongest:
        by_standing.setdefault(standing(one, smaller), []).append(one)
    parts = [
        f"{name} in {len(by_standing[name])} of {len(strongest)}"
        + ("" if name == "ahead" else f" ({some(by_standing[name])})")
        for name in ("behind", "unclear", "level", "ahead")
        if name in by_standing
    ]
    evidence = "against the strongest of each: " + ", ".join(parts)
    unclear = None if "unclear" in by_standing else True
    never = False if "behind" in by_standing else unclear
    always = False if {"behind", "level"} & set(by_standing) else unclear
    return [Claim(claim, never, evidence), Claim(beyond, always, evidence)]


def _rivals(rows: Sequence[Row]) -> list[Row]:
    return [one for one in rows if one["policy"] in BASELINES]


def _completion(tables: Sequence[Table]) -> list[Claim]:
    ratios = rows_of(tables, "ratios", metric="jct_mean_s")
    stable = [one for one in _rivals(ratios) if one["load"] < SATURATED]
    return against_best(
        f"mean completion time of {LEARNED} is at or below the best baseline's with every kind of "
        "estimate at every load",
        f"mean completion time of {LEARNED} is below the best baseline's beyond chance with every "
        "kind of estimate at every load",
        stable,
        ("arm", "load"),
    )


def _margin(tables: Sequence[Table]) -> list[Claim]:
    claim = (
        f"mean completion time of {LEARNED} is at least 15 % below the better of the paper's two "
        "baselines with every kind of estimate at every load"
    )
    ratios = rows_of(tables, "ratios", metric="jct_mean_s")
    own = [one for one in ratios if one["policy"] in OF_PAPER and one["load"] < SATURATED]
    return [_bounded(claim, own, most=ENOUGH)]


def _bounded(
    claim: str, rows: Sequence[Row], most: float = math.inf, least: float = -math.inf
) -> Claim:
    """Holds where every row's interval keeps within the bound, not where a mean misses it."""
    rows = [one for one in rows if one["ours"] is not None]
    if not rows:
        return Claim(claim)
    end = "high" if math.isfinite(most) else "low"
    missed = [one for one in rows if not least <= one["ours"] <= most]
    unclear = [
        one
        for one in rows
        if one not in missed and (one[end] is None or not least <= one[end] <= most)
    ]
    kept = [one for one in rows if one not in missed and one not in unclear]
    bound = f"at most {most:.3f}" if end == "high" else f"at least {least:.3f}"
    evidence = f"wanted {bound}; kept in {len(kept)} of {len(rows)}"
    if missed or unclear:
        evidence += f"; not in {some([*missed, *unclear])}"
    else:
        nearest = max(rows, key=lambda one: one[end] if end == "high" else -one[end])
        evidence += f"; nearest: {row_text(nearest)}"
    return Claim(claim, False if missed else (None if unclear else True), evidence)


def _throughput(tables: Sequence[Table]) -> list[Claim]:
    ratios = rows_of(tables, "ratios", metric="throughput_per_h", load=SATURATED)
    return against_best(
        f"throughput of {LEARNED} at saturation is at least the best baseline's",
        f"throughput of {LEARNED} at saturation is above the best baseline's beyond chance",
        _rivals(ratios),
        ("arm", "load"),
        smaller=False,
    )


def _hyperscore(tables: Sequence[Table]) -> list[Claim]:
    ratios = rows_of(tables, "hyperscore", metric="v_ratio")
    return against_best(
        f"no baseline has a HyperScore above that of {LEARNED}, with any estimate at any load",
        f"the HyperScore of {LEARNED} is above all baselines' beyond chance, with every estimate "
        "at every load",
        _rivals(ratios),
        ("arm", "load"),
        smaller=False,
    )


def _optimum(tables: Sequence[Table]) -> list[Claim]:
    claim = f"{LEARNED} is within 10 % of the optimum without preemption on small cases"
    rows = rows_of(tables, "small-cases", policy=LEARNED, metric="total / optimum", release="all")
    bounded = _bounded(claim, rows, most=NEAR)
    largest = rows_of(
        tables, "small-cases", policy=LEARNED, metric="largest total / optimum", release="all"
    )
    bound = rows_of(tables, "small-cases", policy="preemptive bound", release="all")
    if bounded.holds is None or not largest or not bound:
        return [bounded]
    more = (
        f"; over {largest[0]['cases']} cases the largest is {largest[0]['ours']:.3f}; with "
        f"preemption nothing is below {bound[0]['ours']:.3f}"
    )
    return [bounded._replace(evidence=bounded.evidence + more)]


def _generalises(tables: Sequence[Table]) -> list[Claim]:
    ratios = rows_of(tables, "generalisation", metric="jct_ratio")
    return against_best(
        f"{LEARNED} generalises: at or below the best baseline on every other cluster, mix of jobs "
        "and law of sizes",
        f"{LEARNED} is below the best baseline beyond chance on every other cluster, mix of jobs "
        "and law of sizes",
        _rivals(ratios),
        ("scene", "load"),
    )


def _paper(tables: Sequence[Table]) -> list[Claim]:
    """The paper's gains over its own two baselines, with every kind of estimate."""
    found = []
    for metric, (ratio, words) in FROM_PAPER.items():
        rows = rows_of(tables, "paper", policy=LEARNED, metric=metric)
        bound = {"most": ratio} if metric.startswith("jct") else {"least": ratio}
        found.append(_bounded(f"the paper's gain is reached: {words}", rows, **bound))
    return found


def _network(tables: Sequence[Table]) -> list[Claim]:
    return against_best(
        f"the network does no harm: mean completion time of {LEARNED} is at or below that of its "
        "guiding rule alone everywhere, saturation included",
        f"the network earns its place: mean completion time of {LEARNED} is below that of its "
        "guiding rule alone beyond chance everywhere, saturation included",
        rows_of(tables, "ratios", metric="jct_mean_s", policy=RULE_ALONE),
        ("arm", "load"),
    )


def _memory(tables: Sequence[Table]) -> list[Claim]:
    """The interval of the difference in error lies below 0, at every number of observations."""
    found = []
    for added, words in (("", ""), (" on the prior", " on the same prior")):
        claim = (
            "the hyperdimensional memory guesses speeds better than nearest neighbours and "
            f"boosting{words} after 1, 5 and 20 runs"
        )
        rows = [
            one
            for name in SIMPLER
            for one in rows_of(
                tables,
                "runtime-memory",
                policy=f"{name}{added}",
                metric="hyperdimensional less this",
            )
        ]
        if not rows:
            found.append(Claim(claim))
            continue
        better = [one for one in rows if one["high"] < 0]
        rest = [one for one in rows if one["high"] >= 0]
        evidence = f"difference in error below 0 beyond chance in {len(better)} of {len(rows)}"
        evidence += f"; not: {some(rest)}" if rest else ""
        holds = False if any(one["ours"] >= 0 for one in rest) else (None if rest else True)
        found.append(Claim(claim, holds, evidence))
    return found


def _finished(tables: Sequence[Table]) -> list[Claim]:
    claim = "every policy finished every job, so that all means are over the same jobs"
    rows = rows_of(tables, "loads", metric="unfinished")
    if not rows:
        return [Claim(claim)]
    left = [one for one in rows if one["ours"]]
    evidence = some(left) or f"none is left in {len(rows)} means"
    return [Claim(claim, not left, evidence)]


def _little(tables: Sequence[Table]) -> list[Claim]:
    """Jobs in the system = throughput x completion time, at one GPU a job."""
    claim = "the paper's own table agrees with Little's law"
    rows = rows_of(tables, "paper", policy="fcfs", arm="oracle")
    paper = {one["metric"]: one["paper"] for one in rows}
    names = ("jct_mean_s", "throughput_per_h", "useful_utilization")
    if not all(name in paper for name in names):
        return [Claim(claim)]
    jct_s, per_h, utilization = (paper[name] for name in names)
    jobs = per_h / 3600 * jct_s
    evidence = (
        f"fcfs: {per_h:g} jobs/h x {jct_s:g} s = {jobs:.3f} jobs in the system, which keep at most "
        f"{jobs / 16:.2%} of 16 GPUs busy; its utilisation is {utilization:.1%}"
    )
    return [Claim(claim, bool(jobs / 16 >= utilization), evidence)]
