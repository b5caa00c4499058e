"""Rules by name: `order[+backfill][+place][+estimate[@limit]][+feedback[@harm]][+relieve[@s]]`,
such as `sjf`, `wfp3+easy+fastest` or, on a cluster that lends what services leave,
`smallest-area+greedy+calm+p95@0.9` and `smallest-area+greedy+calm+p95+feedback@0.01`.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from trimtab.errors import UnknownName, suggestion

# The numbers that compiled code branches on stand beside it; these are the names users type.
ORDERS = {
    "fcfs": 0,
    "sjf": 1,
    "ljf": 2,
    "smallest": 3,
    "smallest-area": 4,
    "f1": 5,
    "priority": 6,
    "edf": 7,
    "wfp3": 8,
    "unicep": 9,
    "srtf": 10,
    "las": 11,
    "drf": 12,
}
BACKFILLS = {"none": 0, "easy": 1, "conservative": 2, "greedy": 3}
PLACES = {
    "first": 0,
    "best": 1,
    "worst": 2,
    "least-loaded": 2,
    "random": 3,
    "dot": 4,
    "cosine": 5,
    "frag": 6,
    "fastest": 7,
    "affinity": 8,
    "calm": 9,
    "swift": 10,
    "packer": 11,
    "worker": 12,
}
# How the use of services is foreseen, where a cluster lends what they leave.
ESTIMATES = {
    "native": 0,
    "now": 1,
    "deviation": 2,
    "p95": 3,
    "peak": 4,
    "trend": 5,
    "oracle": 6,
    "forecast": 7,
    "encoder": 8,
}
FORETELLS = ("oracle",)  # estimates that no policy can make
LEARNED = ("forecast", "encoder", "packer", "worker")  # estimates and places with weights
FEEDBACK, RELIEVE = "feedback", "relieve"
PATIENCE_S = 1e9  # of relieve, unless told
HARM = 0.01  # that feedback aims at unless told
MOST_LIMIT = 2.0  # of a node: above it any limit says the same
ABOUT = {
    "fcfs": "first come, first served",
    "sjf": "shortest requested time first",
    "ljf": "longest requested time first",
    "smallest": "fewest resources first",
    "smallest-area": "smallest requested time x resources first",
    "f1": "learned linear order F1 of Carastan-Santos and de Camargo (SC'17)",
    "priority": "highest priority first",
    "edf": "earliest deadline first",
    "wfp3": "(waiting / requested)^3 x resources, largest first",
    "unicep": "waiting / (log2 resources x requested), largest first",
    "srtf": "shortest remaining requested time first; preempts",
    "las": "least attained service, in three queues as Tiresias; preempts",
    "drf": "the tenant with the least dominant share first",
    "none": "a blocked head blocks the queue",
    "easy": "later jobs start if they do not delay the head",
    "conservative": "later jobs start if they delay none before them",
    "greedy": "every job in line that fits starts, and nobody is reserved for",
    "first": "the first node that fits",
    "best": "the fullest node that fits",
    "worst": "the emptiest node",
    "least-loaded": "the same as worst",
    "random": "any node that fits, by the seed",
    "dot": "largest dot product of demand and free capacity",
    "cosine": "compatibility score: cosine of demand and free capacity, less load and interference",
    "frag": "the node whose fragmentation falls most",
    "fastest": "the node kind on which this job runs fastest, the fullest node of it",
    "affinity": "only the node kind fixed for this kind of job",
    "calm": "least load, half of it foreseen at its peak and half as it is now",
    "swift": "the same, and the speed of this kind of job there",
    "packer": "the largest weighted sum of what the placement leaves; the weights are learned",
    "worker": "compatibility score of the hierarchy's workers; the weights are learned",
    "native": "services keep all that they reserve",
    "now": "services go on as the last reading has them",
    "deviation": "mean of the last readings and one standard deviation, as Trimaran",
    "p95": "95th percentile of the readings, as Koordinator",
    "peak": "the largest of the readings, as Borg's peak predictors",
    "trend": "the last readings go on rising or falling as they do",
    "forecast": "learned: the peak while the job runs, from the readings of node and region",
    "encoder": "learned: the same by a network that also knows the region's usual day",
    FEEDBACK: "limits of regions follow the harm to services measured there; @0.01 of their use",
    RELIEVE: "crowded nodes lose batch jobs whose time is lost, and others after @seconds",
    "oracle": "what services will use at their peak while the job runs: no policy can know it",
}


class Rule(NamedTuple):
    order: int
    backfill: int = 0
    place: int = 0
    seed: int = 0
    estimate: str = ""  # "" = the cluster's own
    limit: float = math.nan  # the same
    target: float = math.nan  # share of harm that feedback aims at; nan = limits stand still
    patience_s: float = math.nan  # of crowded nodes; nan = the cluster's own


def parse(name: str, seed: int = 0) -> Rule:
    """The rule of that name. Parts after the order may come in any order."""
    parts = name.split("+")
    if parts[0] not in ORDERS:
        raise UnknownName(unknown("rule", name, parts[0], ORDERS))
    backfill, place, estimate = 0, 0, ""
    limit = target = patience_s = math.nan
    for part in parts[1:]:
        base, at, share = part.partition("@")
        if part in BACKFILLS:
            backfill = BACKFILLS[part]
        elif part in PLACES:
            place = PLACES[part]
        elif base in ESTIMATES:
            estimate, limit = base, limit_of(name, share) if at else limit
        elif base == FEEDBACK:
            target = harm_of(name, share) if at else HARM
        elif base == RELIEVE:
            patience_s = patience_of(name, share) if at else PATIENCE_S
        else:
            known = [*BACKFILLS, *PLACES, *ESTIMATES, FEEDBACK, RELIEVE]
            raise UnknownName(unknown("rule", name, part, known))
    return Rule(ORDERS[parts[0]], backfill, place, seed, estimate, limit, target, patience_s)


def limit_of(name: str, share: str) -> float:
    """The share of a node in `p95@0.9`."""
    try:
        limit = float(share)
    except ValueError:
        limit = math.nan
    if not 0.0 <= limit <= MOST_LIMIT:
        raise UnknownName(
            f"rule {name!r}: limit @{share} is not a share of a node, 0 to {MOST_LIMIT:g}; "
            "write one behind the estimate, such as p95@0.9"
        )
    return limit


def harm_of(name: str, share: str) -> float:
    """The share of services' use in `feedback@0.01`."""
    try:
        harm = float(share)
    except ValueError:
        harm = math.nan
    if not 0.0 < harm <= 1.0:
        raise UnknownName(
            f"rule {name!r}: @{share} is no share of what services use that may be harmed, above 0 "
            "and at most 1; write one behind feedback, such as feedback@0.01"
        )
    return harm


def patience_of(name: str, seconds: str) -> float:
    """The seconds in `relieve@60`."""
    try:
        patience_s = float(seconds)
    except ValueError:
        patience_s = math.nan
    if not 0.0 <= patience_s <= PATIENCE_S:
        raise UnknownName(
            f"rule {name!r}: @{seconds} is no number of seconds from 0 to {PATIENCE_S:g}; write "
            "one behind relieve, such as relieve@60"
        )
    return patience_s


def learned(name: str) -> bool:
    """Whether some part of a rule has weights that were learned."""
    return any(part.partition("@")[0] in LEARNED for part in name.split("+"))


def foretells(name: str) -> bool:
    """Whether a rule is told what nobody can know."""
    return any(part.partition("@")[0] in FORETELLS for part in name.split("+"))


def turned(name: str) -> str:
    """The part of a rule's name that a limit stands behind: `p95` of `sjf+p95`; "" = none."""
    parts = [part.partition("@")[0] for part in name.split("+")]
    if FEEDBACK in parts:
        return FEEDBACK
    return next((part for part in parts if part in ESTIMATES), "")


def at_limit(name: str, limit: float) -> str:
    """The same rule at another limit: `sjf+p95@0.9` at .8 is `sjf+p95@0.8`."""
    one = turned(name)
    parts = [
        f"{one}@{limit:g}" if part.partition("@")[0] == one else part for part in name.split("+")
    ]
    return "+".join(parts)


def unknown(noun: str, whole: str, part: str, known: Iterable[str]) -> str:
    """An error text that suggests a known name where one is near."""
    where = "" if part == whole else f" in {whole!r}"
    return (
        f"{noun} {part!r}{where} is unknown; {suggestion(part, known)}"
        "(`trimtab policies` lists them all)"
    )
