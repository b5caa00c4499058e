"""Train the manager: it learns from rollouts what each goal is worth, where it cannot see ahead.

Rollouts are kept as they come, so that a training goes on where it stopped. The network is fitted
to all of them, judged on those of other scenes, and the margin that a goal must promise is the one
under which validation scenes, played with the manager, come out best: infinite, where it wins
nothing.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from trimtab.arrays import Array
from trimtab.errors import PolicyError
from trimtab.policies.hierarchy.alignment import reading
from trimtab.policies.hierarchy.goals import GOALS
from trimtab.policies.hierarchy.manager import FILE, Manager, write_manager
from trimtab.policies.hierarchy.rollouts import examples
from trimtab.policies.hierarchy.sight import MACHINE, REGION
from trimtab.policies.hierarchy.stage import AND, FLOOR, Drawn, staged
from trimtab.policies.hierarchy.weights import read_orders
from trimtab.training.kept import read_kept, write_kept
from trimtab.training.spread import check_place, spread

FIRST_SEED, HELD_SEED, JUDGE_SEED = 720_000, 820_000, 830_000
FREE = ("steps", "workers", "held", "rounds", "judges", "on")
CHECKPOINT = "checkpoint-manager.npz"  # the orders' own lies in the same folder
MARGINS = (0.0, 0.02, 0.05, 0.1, 0.2)
MOST_WORTH = 3.0  # rollouts that say more than that are held to it
NONE = 1e9  # a margin that no goal promises
MOST_REGIONS = 16
KEEP_EVERY = 16  # scenes
KEPT = ("machine", "region", "of", "link", "look", "at", "goal", "worth", "begins", "scene")


@dataclass(frozen=True)
class Settings:
    """`orders` is a folder of `trimtab train hierarchy`; "" = what ships."""

    steps: int = 64  # scenes of rollouts
    held: int = 12  # scenes of rollouts that judge the fit
    judges: int = 24  # scenes that are played to choose the margin
    machines: int = 48  # of each
    hidden: int = 16
    rounds: int = 30  # through all rollouts
    learning_rate: float = 2e-3
    decay: float = 0.05
    price: float = 0.1
    orders: str = ""
    workers: int = 0  # processes; 0 = one a processor
    on: str = ""  # where scenes are played: "" = here, ray, or ray:ADDRESS of a cluster

    def check(self) -> Settings:
        check_place(self.on)
        for name in ("steps", "held", "judges", "machines", "hidden", "rounds"):
            if getattr(self, name) < 1:
                raise PolicyError(f"{name}={getattr(self, name)} leaves nothing; give 1 or more")
        return self


class Progress(NamedTuple):
    """How far a training is; the rest is known at the end."""

    step: int
    steps: int
    loss: float  # of the fit on other scenes; NaN before
    explained: float  # share of the rollouts' variance there that it explains
    promised: float  # mean worth of the goals that it chose there, by their own rollouts
    margin: float
    change: float  # of the log of the cost on the validation scenes, harm priced
    change_se: float
    aligned: float  # share of goals, drawn at random, that are told from what workers do
    wall_s: float


def train_manager(
    out: str | Path,
    *,
    trace: str = "colocated",
    seed: int = 0,
    command: str = "",
    **settings: Any,
) -> Iterator[Progress]:
    """Train into the folder `out`; goes on where a checkpoint of the same settings lies there."""
    out, on = Path(out), Settings(**settings).check()
    made = {"trace": trace, "seed": seed, **asdict(on)}
    kept = read_kept(out, made, FREE, (*KEPT, "done", "spent_s"), CHECKPOINT)
    rolls = {name: kept[name] for name in KEPT} if kept else {}
    done, spent_s = (int(kept["done"]), float(kept["spent_s"])) if kept else (0, 0.0)
    began_s = time.perf_counter() - spent_s
    known = set(np.unique(rolls["scene"]).tolist()) if rolls else set()
    todo = [HELD_SEED + 10_000 * seed + n for n in range(on.held)]
    todo += [FIRST_SEED + 10_000 * seed + n for n in range(on.steps)]
    todo = [one for one in todo if one not in known]
    if todo:
        spawn = multiprocessing.get_context("spawn")
        count = on.workers or os.cpu_count() or 1
        with spread(on.on, lambda: ProcessPoolExecutor(count, spawn)) as pool:
            split = ["train" if one < HELD_SEED else "validation" for one in todo]
            asked = [(trace, kind, one, on) for kind, one in zip(split, todo)]
            for number, found in enumerate(pool.map(rolled, asked)):
                rolls = joined(rolls, found)
                done += todo[number] < HELD_SEED
                wall_s = time.perf_counter() - began_s
                if number % KEEP_EVERY == KEEP_EVERY - 1 or number + 1 == len(todo):
                    state = {**rolls, "done": done, "spent_s": wall_s}
                    write_kept(out, made, state, CHECKPOINT)
                yield rolling(done, on.steps, wall_s)
    judged = rolls["scene"] >= HELD_SEED
    net = fitted(rolls, ~judged, on, seed)
    loss, explained, promised = judgement(net, rolls, judged)
    aligned = reading(
        trace, read_orders(on.orders), scenes=min(on.steps, 8), held=min(on.held, 4),
        machines=on.machines, seed=seed, workers=on.workers or os.cpu_count() or 1,
    )  # fmt: skip
    about = {"explained": explained, "worth": worths(rolls), "alignment": aligned.told()}
    manager = net.manager(NONE, {"settings": made, "command": command, **about})
    margin, change, change_se = chosen(manager, trace, on, seed)
    write_manager(out / FILE, net.manager(margin, {**manager.made, "change": change}))
    wall_s = time.perf_counter() - began_s
    told = (loss, explained, promised, margin, change, change_se, aligned.accuracy)
    yield Progress(on.steps, on.steps, *told, wall_s)


def rolling(step: int, steps: int, wall_s: float) -> Progress:
    """How far it is while rollouts come in."""
    nan = math.nan
    return Progress(step, steps, nan, nan, nan, nan, nan, nan, nan, wall_s)


def rolled(asked: tuple[str, str, int, Settings]) -> dict[str, Array]:
    """The rollouts of one scene, as arrays."""
    trace, split, seed, on = asked
    traces = trace.split(AND)
    stage = staged(traces[seed % len(traces)], split, seed, on.machines)
    orders = read_orders(on.orders)
    found = list(examples(stage, orders, np.random.default_rng(seed), on.price))
    sights = list({id(one.sight): one.sight for one in found}.values())
    look = {id(sight): i for i, sight in enumerate(sights)}
    regions = len(stage.cluster.regions)
    return {
        "machine": np.concatenate([s.machine for s in sights]).astype(np.float32),
        "region": np.concatenate([s.region for s in sights]).astype(np.float32),
        "of": np.concatenate([s.of + i * regions for i, s in enumerate(sights)]),
        "link": np.concatenate([padded(s.link) for s in sights]).astype(np.float32),
        "look": np.repeat(np.arange(len(sights)), regions),
        "at": np.array([look[id(one.sight)] * regions + one.region for one in found]),
        "goal": np.array([one.goal for one in found]),
        "worth": np.array([one.worth for one in found]),
        "begins": np.repeat(np.arange(len(sights)) * regions, regions),
        "scene": np.full(len(found), seed),
    }


def padded(link: Array) -> Array:
    """(G, MOST_REGIONS) rows of equal length."""
    return np.pad(link, ((0, 0), (0, MOST_REGIONS - len(link))))


def joined(old: dict[str, Array], new: dict[str, Array]) -> dict[str, Array]:
    """Rollouts of more scenes: rows of regions and looks go on counting."""
    if not old:
        return new
    regions, looks = len(old["region"]), int(old["look"].max()) + 1
    more = {"of": regions, "at": regions, "begins": regions, "look": looks}
    return {name: np.concatenate((old[name], new[name] + more.get(name, 0))) for name in KEPT}


class Net(nn.Module):
    """The same as `manager.Manager`, on many looks at once."""

    def __init__(self, hidden: int, machine: Array, region: Array) -> None:
        super().__init__()
        self.scales = [
            torch.tensor(np.stack((one.mean(0), one.std(0) + 1e-3))) for one in (machine, region)
        ]
        self.machine = nn.Linear(len(MACHINE), hidden)
        self.region = nn.Linear(2 * hidden + len(REGION), hidden)
        self.neighbour = nn.Linear(hidden, hidden, bias=False)
        self.cluster = nn.Linear(hidden, hidden, bias=False)
        self.head = nn.Linear(hidden, len(GOALS))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, rows: dict[str, Tensor]) -> Tensor:
        """(regions, GOALS)."""
        scaled = [
            (rows[name] - scale[0]) / scale[1]
            for name, scale in zip(("machine", "region"), self.scales)
        ]
        seen = torch.relu(self.machine(scaled[0]))
        count, hidden = len(rows["region"]), seen.shape[1]
        of = rows["of"]
        mean = torch.zeros(count, hidden).index_add_(0, of, seen)
        size = torch.zeros(count).index_add_(0, of, torch.ones(len(of)))
        wide = of[:, None].expand(-1, hidden)
        most = torch.zeros(count, hidden).scatter_reduce(0, wide, seen, "amax")
        pooled = torch.cat((mean / size[:, None].clamp(min=1), most, scaled[1]), 1)
        first = torch.relu(self.region(pooled))
        looks = int(rows["look"].max()) + 1
        total = torch.zeros(looks, hidden).index_add_(0, rows["look"], first)
        many = torch.zeros(looks).index_add_(0, rows["look"], torch.ones(count))
        readout = (total / many[:, None])[rows["look"]]
        others = rows["begins"][:, None] + torch.arange(MOST_REGIONS)[None]
        near = first[others.clamp(max=count - 1)]  # (regions, MOST_REGIONS, hidden)
        told = first + self.neighbour((rows["link"][:, :, None] * near).sum(1))
        said: Tensor = self.head(torch.relu(told + self.cluster(readout)))
        return said

    def manager(self, margin: float, made: dict[str, Any]) -> Manager:
        """The weights as plain arrays; the standardising is part of the first layers."""
        machine, region = (np.vstack((
            one.weight.detach().numpy().T, one.bias.detach().numpy()[None],
        )).astype(np.float64) for one in (self.machine, self.region))  # fmt: skip
        for layer, rows, scale in (
            (machine, slice(0, len(MACHINE)), self.scales[0]),
            (region, slice(region.shape[0] - 1 - len(REGION), region.shape[0] - 1), self.scales[1]),
        ):
            mean, spread = (one.numpy().astype(np.float64) for one in scale)
            layer[-1] -= (mean / spread) @ layer[rows]
            layer[rows] /= spread[:, None]
        head = np.vstack((self.head.weight.detach().numpy().T, self.head.bias.detach().numpy()))
        square = [one.weight.detach().numpy().T for one in (self.neighbour, self.cluster)]
        return Manager(machine, region, square[0], square[1], head, margin, made)


def as_rows(rolls: dict[str, Array]) -> dict[str, Tensor]:
    whole = ("of", "look", "begins")
    return {
        name: torch.tensor(rolls[name].astype(np.int64 if name in whole else np.float32))
        for name in ("machine", "region", "of", "link", "look", "begins")
    }


def fitted(rolls: dict[str, Array], chosen: Array, on: Settings, seed: int) -> Net:
    """The network that is nearest to these rollouts; looks in batches of whole scenes."""
    torch.manual_seed(seed)
    net = Net(on.hidden, rolls["machine"], rolls["region"])
    rows = as_rows(rolls)
    worth = torch.tensor(np.clip(rolls["worth"], -MOST_WORTH, MOST_WORTH).astype(np.float32))
    at, goal = (torch.tensor(rolls[name].astype(np.int64)) for name in ("at", "goal"))
    mine = torch.tensor(np.flatnonzero(chosen))
    learner = torch.optim.AdamW(net.parameters(), on.learning_rate, weight_decay=on.decay)
    for _ in range(on.rounds):
        for part in mine[torch.randperm(len(mine))].split(max(len(mine) // 4, 1)):
            said = net(rows)[at[part], goal[part]]
            loss = ((said - worth[part]) ** 2).mean()
            learner.zero_grad()
            loss.backward()
            learner.step()
    return net


def worths(rolls: dict[str, Array]) -> dict[str, float]:
    """What each goal was worth in the mean, followed wherever it was tried; below 0 is better."""
    worth = np.clip(rolls["worth"], -MOST_WORTH, MOST_WORTH)
    tried = {goal.name: rolls["goal"] == number for number, goal in enumerate(GOALS)}
    return {name: float(worth[rows].mean()) for name, rows in tried.items() if rows.any()}


def judgement(net: Net, rolls: dict[str, Array], judged: Array) -> tuple[float, float, float]:
    """Loss and share of variance explained, and what the chosen goals turned out to be worth."""
    with torch.no_grad():
        said = net(as_rows(rolls)).numpy()
    worth = np.clip(rolls["worth"], -MOST_WORTH, MOST_WORTH)
    mine = np.flatnonzero(judged)
    off = said[rolls["at"][mine], rolls["goal"][mine]] - worth[mine]
    loss, spread = float((off**2).mean()), float(worth[mine].var())
    best = said[:, 1:].argmin(1) + 1
    promising = said[np.arange(len(said)), best] < 0
    taken = mine[best[rolls["at"][mine]] == rolls["goal"][mine]]
    of = worth[taken] * promising[rolls["at"][taken]]
    return loss, 1 - loss / spread, float(of.mean()) if len(of) else 0.0


def chosen(manager: Manager, trace: str, on: Settings, seed: int) -> tuple[float, float, float]:
    """The margin under which validation scenes come out best, and by how much."""
    from trimtab.policies.hierarchy.training import drawn

    orders = read_orders(on.orders)
    with spread(on.on, lambda: ThreadPoolExecutor(on.workers or os.cpu_count() or 1)) as pool:
        first = JUDGE_SEED + 10_000 * seed
        stages = drawn(pool, trace, "validation", first, [on.machines] * on.judges)
        plain = np.array(list(pool.map(lambda one: one.played(orders), stages)))
        best = (NONE, 0.0, 0.0)
        for margin in MARGINS:
            sure = Manager(**{**vars(manager), "margin": margin})
            play = partial(Drawn.played, orders=orders, manager=sure)
            played = np.array(list(pool.map(play, stages)))
            harm = np.log((played[:, 1].mean() + FLOOR) / (plain[:, 1].mean() + FLOOR))
            change = played[:, 0] - plain[:, 0] + on.price * harm
            error = float(change.std(ddof=1) / math.sqrt(len(change))) if len(change) > 1 else 0.0
            if change.mean() + error < best[1] + best[2]:
                best = (margin, float(change.mean()), error)
    return best
