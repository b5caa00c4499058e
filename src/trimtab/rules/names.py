"""Rules by name: `order[+backfill][+place]`, such as `sjf`, `fcfs+easy` or `wfp3+easy+fastest`."""

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
BACKFILLS = {"none": 0, "easy": 1, "conservative": 2}
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
}
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
}


class Rule(NamedTuple):
    order: int
    backfill: int = 0
    place: int = 0
    seed: int = 0


def parse(name: str, seed: int = 0) -> Rule:
    """The rule of that name. Parts after the order may come in either order."""
    parts = name.split("+")
    if parts[0] not in ORDERS:
        raise UnknownName(unknown("rule", name, parts[0], ORDERS))
    backfill, place = 0, 0
    for part in parts[1:]:
        if part in BACKFILLS:
            backfill = BACKFILLS[part]
        elif part in PLACES:
            place = PLACES[part]
        else:
            raise UnknownName(unknown("rule", name, part, [*BACKFILLS, *PLACES]))
    return Rule(ORDERS[parts[0]], backfill, place, seed)


def unknown(noun: str, whole: str, part: str, known: Iterable[str]) -> str:
    """An error text that suggests a known name where one is near."""
    where = "" if part == whole else f" in {whole!r}"
    return (
        f"{noun} {part!r}{where} is unknown; {suggestion(part, known)}"
        "(`trimtab policies` lists them all)"
    )
