"""What a search for a manager is told, and how far it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from trimtab.errors import PolicyError
from trimtab.policies.hierarchy.manager import EVERY_S, check_every
from trimtab.training.spread import check_place

HOW = ("rollouts", "evolution", "gradient")
FREE = ("steps", "workers", "held", "rounds", "judges", "on")  # may differ when it goes on
CHECKPOINT = "checkpoint-manager.npz"  # the orders' own lies in the same folder
FIRST_SEED, HELD_SEED, JUDGE_SEED = 720_000, 820_000, 830_000


@dataclass(frozen=True)
class Settings:
    """`orders` is a folder of `trimtab train hierarchy`; "" = what ships. `steps` are scenes of
    rollouts, generations of an evolution, or updates of a gradient.
    """

    how: str = "rollouts"  # evolution and gradient search a straight line of what is seen
    every_s: float = EVERY_S  # between two looks
    steps: int = 64
    held: int = 12  # scenes of rollouts that judge the fit
    judges: int = 24  # scenes that are played to choose the margin
    machines: int = 48  # of each
    hidden: int = 16  # of rollouts' network
    rounds: int = 30  # through all rollouts
    learning_rate: float = 2e-3
    decay: float = 0.05
    price: float = 0.1
    scenes: int = 48  # that evolution and gradient draw from
    of: int = 6  # of them a step
    population: int = 12  # of evolution
    plays: int = 4  # of a scene, that a gradient compares
    orders: str = ""
    workers: int = 0  # processes; 0 = one a processor
    on: str = ""  # where scenes are played: "" = here, ray, or ray:ADDRESS of a cluster

    def check(self) -> Settings:
        check_place(self.on)
        if self.how not in HOW:
            raise PolicyError(f"how={self.how!r} is unknown; known: {', '.join(HOW)}")
        if why := check_every(self.every_s):
            raise PolicyError(why)
        for name in ("steps", "held", "judges", "machines", "hidden", "rounds", "scenes", "of"):
            if getattr(self, name) < 1:
                raise PolicyError(f"{name}={getattr(self, name)} leaves nothing; give 1 or more")
        for name, least in (("population", 4), ("plays", 2)):
            if getattr(self, name) < least:
                raise PolicyError(
                    f"{name}={getattr(self, name)} leaves nothing to compare; give {least} or more"
                )
        return self


class Progress(NamedTuple):
    """How far a training is; the rest is known at the end."""

    step: int
    steps: int
    loss: float  # of the fit on other scenes, or of the scenes of this step; NaN before
    explained: float  # share of the rollouts' variance there that it explains
    promised: float  # mean worth of the goals that it chose there, by their own rollouts
    margin: float
    change: float  # of the log of the cost on the validation scenes, at equal harm
    change_half: float  # of its 95 % interval
    aligned: float  # share of goals, drawn at random, that are told from what workers do
    wall_s: float


def going_on(step: int, steps: int, wall_s: float, loss: float = math.nan) -> Progress:
    """How far it is before its end."""
    nan = math.nan
    return Progress(step, steps, loss, nan, nan, nan, nan, nan, nan, wall_s)
