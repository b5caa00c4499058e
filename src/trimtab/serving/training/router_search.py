"""Evolution strategies for the network that steers the lookahead, in batches of simulated fleets.

The network starts as the rule itself: its outputs are 0. Only its last layer is searched; the
layers before it are fixed random features, so that few parameters learn from few runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.routing import arrivals, lookahead, routers
from trimtab.serving.routing.fleet_state import Fleets, begin, fleets
from trimtab.serving.routing.greedy import Knobs
from trimtab.serving.routing.learned_router import Net
from trimtab.serving.routing.router_net import fresh_net

# fleets to learn on: speeds and objective
SCENES = (
    ((1.0, 1.0, 0.45), 0.1),
    ((1.0, 1.0, 0.45), 0.1),
    ((1.0, 1.0, 1.0), 0.07),
    ((1.0, 0.7, 0.4), 0.2),
)
LOADS = (0.5, 4.0)  # of the capacity at full width, evenly in the logarithm
HELD_OUT = 1 << 20  # seeds from here on are for validation
CHANCE = 2.0  # standard errors that a gain must pass


@dataclass(frozen=True)
class SearchSettings:
    """How the search goes."""

    generations: int = 30
    pairs: int = 5  # of opposite directions a generation
    spread: float = 0.3  # of the parameters tried
    rate: float = 0.3
    hidden: int = 8
    fleets: int = 16
    requests: int = 1200

    def check(self) -> SearchSettings:
        for name in ("generations", "pairs", "hidden", "fleets", "requests"):
            if getattr(self, name) < 1:
                raise ServeError(f"{name}={getattr(self, name)}: give 1 or more")
        if not min(self.spread, self.rate) > 0:
            raise ServeError(f"spread={self.spread}, rate={self.rate}: give above 0")
        return self


class Generation(NamedTuple):
    """How far a search is."""

    step: int
    theta: Array  # the last layer
    good: float  # mean of the generation's runs


def search(
    profile: ServeProfile, on: SearchSettings, seed: int, theta: Array | None = None, step: int = 0
) -> Iterator[Generation]:
    """Improve the last layer a generation at a time, from `theta` after generation `step` on."""
    made, net = routers.rule(profile, "priced"), start(on, seed)
    theta = net[2].copy() if theta is None else theta
    worlds: dict[Any, Fleets] = {}
    while step < on.generations:
        rng = np.random.default_rng([seed, step])
        moves = rng.normal(0, 1, (on.pairs, *theta.shape))
        scene = SCENES[step % len(SCENES)]
        if scene not in worlds:
            worlds[scene] = world(profile, scene[0], on)
        f, arrival_s = worlds[scene], drawn_arrivals(worlds[scene], rng, on)
        values = np.empty((on.pairs, 2))
        for i, sign in np.ndindex(on.pairs, 2):
            tried = theta + (1 - 2 * sign) * on.spread * moves[i]
            rules = routers.with_net(made, routers.PRICED, (net[0], net[1], tried))
            values[i, sign] = good(f, arrival_s, scene[1], rules).mean()
        # ranks, so that one lucky run does not set the length of the step
        ranks = values.ravel().argsort().argsort().reshape(values.shape)
        weights = (ranks[:, 0] - ranks[:, 1]) / (values.size - 1)
        theta = theta + on.rate * np.tensordot(weights, moves, 1) / on.pairs
        step += 1
        yield Generation(step, theta, float(values.mean()))


def start(on: SearchSettings, seed: int) -> Net:
    return fresh_net(lookahead.SIGHTS, on.hidden, lookahead.STEERED, seed)


def world(profile: ServeProfile, speeds: tuple[float, ...], on: SearchSettings) -> Fleets:
    knobs = Knobs(idle_unload_s=np.inf)
    return fleets(profile, on.fleets, on.requests, speeds=speeds, knobs=knobs)


def drawn_arrivals(f: Fleets, rng: Generator, on: SearchSettings) -> Array:
    """(C, R) arrivals: half of them Poisson, half in bursts, at mixed loads."""
    made = []
    for c in range(on.fleets):
        rate_hz = f.conf[0]["scale_hz"] * np.exp(rng.uniform(*np.log(LOADS)))
        if c % 2:
            made.append(arrivals.poisson(on.requests, rate_hz, rng))
        else:
            share = rng.uniform(0.1, 0.4)
            made.append(
                arrivals.bursty(
                    on.requests, rate_hz, rng, burst_share=share,
                    peak=rng.uniform(1.5, min(4.0, 1 / share)), burst_s=rng.uniform(0.2, 2.0),
                )
            )  # fmt: skip
    return np.array(made)


def good(f: Fleets, arrival_s: Array, objective_s: float, rules: routers.Rule) -> Array:
    """(C,) accuracy in time of a rule."""
    begin(f, arrival_s, objective_s)
    routers.run(f, rules)
    return np.asarray(f.fleet["good"] / f.conf[0]["requests"])


def validated(
    profile: ServeProfile, on: SearchSettings, net: Net, seed: int, rounds: int = 2
) -> tuple[float, float]:
    """The gain over the rule on held-out arrivals, and its standard error."""
    made = routers.rule(profile, "priced")
    steered = routers.with_net(made, routers.PRICED, net)
    gains = []
    for i, (speeds, objective_s) in enumerate(SCENES * rounds):
        f = world(profile, speeds, on)
        arrival_s = drawn_arrivals(f, np.random.default_rng([HELD_OUT + seed, i]), on)
        before = good(f, arrival_s, objective_s, made)
        gains.append(good(f, arrival_s, objective_s, steered) - before)
    gain = np.concatenate(gains)
    return float(gain.mean()), float(gain.std(ddof=1) / np.sqrt(len(gain)))
