"""Routers on one stream of requests: what a trial of Slim Scheduler's tables measures.

Three servers of speeds 1 : 1 : .45 stand for the paper's two RTX 2080 Ti and one GTX 980 Ti. A load
is a multiple of what they answer a second at full width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import UnknownName
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.net.serve_profile import load as load_profile
from trimtab.serving.nouns import TUPLES, WIDTHS
from trimtab.serving.routing import arrivals, learned_router, routers
from trimtab.serving.routing.bound import bound
from trimtab.serving.routing.fleet_state import Fleets, begin, fleets, totals
from trimtab.serving.routing.greedy import Knobs
from trimtab.traces.readers.azure_llm import read_azure_llm

SPEEDS = (1.0, 1.0, 0.45)
OBJECTIVE_S = 0.1
FIXED = {f"fixed {ratio:g}": 85 * width for width, ratio in enumerate(WIDTHS)}
BOUND = "bound"


def router(name: str, profile: ServeProfile) -> routers.Rule:
    """A rule by name, a fixed width, or a learned router that is shipped."""
    if name in FIXED:
        return routers.rule(profile, "fixed", fixed=FIXED[name])
    if name in learned_router.SHIPPED:
        return learned_router.load(learned_router.SHIPPED[name], profile)
    if name not in routers.BY_NAME:
        known = (*routers.BY_NAME, *FIXED, *learned_router.SHIPPED)
        raise UnknownName(f"router {name!r} is unknown; give one of {', '.join(known)}")
    return routers.rule(profile, name)


def stream(shape: str, count: int, rate_hz: float, seed: int, trace: str = "") -> Array:
    """(count,) arrivals: poisson, bursty, or as in a recorded trace from a random start on."""
    rng = np.random.default_rng(seed)
    if shape == "poisson":
        return arrivals.poisson(count, rate_hz, rng)
    if shape == "bursty":
        return arrivals.bursty(count, rate_hz, rng)
    times_s = np.sort(read_azure_llm(trace).jobs["submit_s"])
    gaps_s = np.roll(np.diff(times_s), -int(rng.integers(len(times_s) - 1)))
    return arrivals.shaped(np.append(0.0, np.cumsum(gaps_s)), rate_hz, count)


def world(profile: ServeProfile, requests: int, drop_late: bool) -> Fleets:
    knobs = Knobs(idle_unload_s=np.inf)
    return fleets(profile, 1, requests, speeds=SPEEDS, knobs=knobs, drop_late=drop_late)


def in_time(
    shape: str,
    load: float,
    seed: int,
    requests: int,
    names: Sequence[str],
    trace: str = "",
    profile: str = "cpu",
) -> dict[str, Any]:
    """Accuracy in time and the share in time of every router, and what none can pass."""
    costs = load_profile(profile)
    f = world(costs, requests, True)
    arrival_s = stream(shape, requests, load * float(f.conf[0]["scale_hz"]), seed, trace)
    found: dict[str, Any] = {}
    for name in names:
        begin(f, arrival_s, OBJECTIVE_S, seed)
        routers.run(f, router(name, costs))
        ended = totals(f)
        found[name] = {"good": ended.good, "in_time": ended.in_time / requests}
    begin(f, arrival_s, OBJECTIVE_S)
    share = bound(f, costs, worth=np.ones(len(TUPLES)))
    found[BOUND] = {"good": bound(f, costs), "in_time": share}
    return found


def without_objective(
    load: float, seed: int, requests: int, names: Sequence[str], profile: str = "cpu"
) -> dict[str, Any]:
    """Means and spreads as in tables III to V: nothing is due, nothing is given up.

    `energy_j` is as the paper counts: mean power of a server times a request's latency.
    `charged_j` charges a batch's busy time once and shares it among its requests.
    """
    costs = load_profile(profile)
    f = world(costs, requests, False)
    arrival_s = stream("poisson", requests, load * float(f.conf[0]["scale_hz"]), seed)
    found: dict[str, Any] = {}
    for name in names:
        begin(f, arrival_s, np.inf, seed)
        routers.run(f, router(name, costs))
        found[name] = _spread(f)
    return found


def _spread(f: Fleets) -> dict[str, float]:
    ended, rows = totals(f), f.request
    latency_s = rows["done_s"] - rows["arrival_s"]
    power_w = ended.energy_j / ended.makespan_s / len(f.server)
    of = {"latency_s": latency_s, "energy_j": power_w * latency_s, "charged_j": rows["energy_j"]}
    found = {"accuracy": ended.accuracy, "imbalance": ended.imbalance}
    found["images_per_s"] = ended.answered / ended.makespan_s
    for name, values in of.items():
        found[name], found[f"{name} sd"] = float(values.mean()), float(values.std())
    return found
