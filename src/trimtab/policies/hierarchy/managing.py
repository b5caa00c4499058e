"""Train the manager: it learns from rollouts what each goal is worth, where it cannot see ahead.

Rollouts are kept as they come, so that a training goes on where it stopped. The network is fitted
to all of them, judged on those of other scenes, and the margin that a goal must promise is the one
under which validation scenes, played with the manager, come out best: infinite, where it wins
nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trimtab.arrays import Array
from trimtab.policies.hierarchy.alignment import reading
from trimtab.policies.hierarchy.goals import GOALS
from trimtab.policies.hierarchy.manager import FILE, Manager, write_manager
from trimtab.policies.hierarchy.managers.choosing import NONE, chosen
from trimtab.policies.hierarchy.managers.searching import searched
from trimtab.policies.hierarchy.managers.settings import (
    CHECKPOINT,
    FIRST_SEED,
    FREE,
    HELD_SEED,
    Progress,
    Settings,
    going_on,
)
from trimtab.policies.hierarchy.rollouts import examples
from trimtab.policies.hierarchy.sight import MACHINE, REGION
from trimtab.policies.hierarchy.stage import AND, staged
from trimtab.policies.hierarchy.weights import read_orders
from trimtab.training.kept import read_kept, write_kept
from trimtab.training.spread import spread

MOST_WORTH = 3.0  # rollouts that say more than that are held to it
MOST_REGIONS = 16
KEEP_EVERY = 16  # scenes
KEPT = ("machine", "region", "of", "link", "look", "at", "goal", "worth", "begins", "scene")


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
    if on.how != "rollouts":
        yield from searched(out, on, trace, seed, command)
        return
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
                yield going_on(done, on.steps, wall_s)
    judged = rolls["scene"] >= HELD_SEED
    net = fitted(rolls, ~judged, on, seed)
    loss, explained, promised = judgement(net, rolls, judged)
    aligned = reading(
        trace, read_orders(on.orders), scenes=min(on.steps, 8), held=min(on.held, 4),
        machines=on.machines, seed=seed, workers=on.workers or os.cpu_count() or 1,
    )  # fmt: skip
    about: dict[str, Any] = {
        "every_s": on.every_s,
        "explained": explained,
        "worth": worths(rolls),
        "alignment": aligned.told(),
    }
    manager = net.manager(NONE, {"settings": made, "command": command, **about})
    best = chosen(manager, trace, on, seed)
    write_manager(out / FILE, net.manager(best.margin, {**manager.made, "change": best.change}))
    wall_s = time.perf_counter() - began_s
    told = (loss, explained, promised, *best, aligned.accuracy)
    yield Progress(on.steps, on.steps, *told, wall_s)


def rolled(asked: tuple[str, str, int, Settings]) -> dict[str, Array]:
    """The rollouts of one scene, as arrays."""
    trace, split, seed, on = asked
    traces = trace.split(AND)
    stage = staged(traces[seed % len(traces)], split, seed, on.machines)
    orders = read_orders(on.orders)
    found = list(examples(stage, orders, np.random.default_rng(seed), on.price, every_s=on.every_s))
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
