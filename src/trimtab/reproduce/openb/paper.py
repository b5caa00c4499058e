"""Pods on shared GPUs in the published orders: `packer` beside the policies of the FGD paper.

setup = Setup(data="folder")        with openb's lists; without them on drawn ones alone
found = {trial.key: outcome for trial, outcome in finished(planned(setup))}
outcome(setup, found)               {"tables": [...], "claims": [...], "trace", "seeds"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.claims import as_rows
from trimtab.errors import TraceError, TrimtabError, UnknownName
from trimtab.metrics import interval
from trimtab.policies import check
from trimtab.reproduce.openb.claims import FGD, PACKER, claims
from trimtab.reproduce.openb.published import published
from trimtab.reproduce.openb.trials import DRAWN, NODES, PODS, file_in, lists_in
from trimtab.reproduce.options import Options
from trimtab.reproduce.tables import Row, mean_row, row
from trimtab.reproduce.trials import Trial
from trimtab.rules.names import unknown
from trimtab.sim.packing import BY_NAME
from trimtab.traces.openb.orders import PUBLISHED_SEEDS

RUN = "trimtab.reproduce.openb.trials:filled"
POLICIES = (PACKER, FGD, "bestfit", "packing", "clustering", "dotprod", "random")
DEFAULT = "default"
LOADS = (1.0, 1.1, 1.2, 1.3)
METRIC = "gpu_allocation"
PARTS = (DEFAULT, "lists", DRAWN)
NOTES = {
    "openb": (
        "GPU allocation in % when the pods that arrived asked for 130 % of the GPUs: mean of the "
        "orders with its 95 % interval, the published mean in brackets. Pods never leave; one that "
        "fits nowhere is dropped. Packer was trained on drawn lists alone: it has seen no list and "
        "no order of these."
    ),
    "openb-beside": "Points of packer less another, paired by order; least: in the worst order.",
    "openb-loads": "The same by how many pods have arrived.",
}


@dataclass(frozen=True)
class Setup(Options):
    """Ten orders a list, three where it shall be quick; `parts` are PARTS or names of lists.

    `data` is the folder of openb's lists. Without it pods are drawn from the published mix.
    """

    data: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jobs is not None:
            raise TrimtabError(f"--jobs {self.jobs}: a list has as many pods as its load asks for")
        if self.seeds is not None and self.seeds > len(PUBLISHED_SEEDS):
            raise TrimtabError(
                f"--seeds {self.seeds}: {len(PUBLISHED_SEEDS)} orders are published; give so many "
                "or less"
            )
        for name in self.policies or ():
            if is_packer(name):
                check(name)
            elif name not in BY_NAME:
                raise UnknownName(unknown("packing policy", name, name, BY_NAME))
        if self.data:
            file_in(self.data, NODES)
            file_in(self.data, f"{PODS}{DEFAULT}.csv")
        known = [*PARTS, *self._others()]
        for part in self.parts or ():
            if part not in known:
                raise UnknownName(f"part {part!r} is unknown; known: {', '.join(known)}")
            if not self.data and part != DRAWN:
                raise TraceError(f"--only {part}: wants openb's lists; add --data FOLDER")

    def left_out(self) -> list[str]:
        if self.data:
            return []
        return [
            "openb: without --data FOLDER (the csv files of alibaba/clusterdata, "
            "cluster-trace-gpu-v2023) pods are drawn from the published mix alone"
        ]

    def of_seeds(self) -> list[int]:
        count = self.seeds or (3 if self.quick else len(PUBLISHED_SEEDS))
        return list(PUBLISHED_SEEDS)[:count]

    def of_policies(self) -> list[str]:
        return list(self.policies or POLICIES)

    def _others(self) -> list[str]:
        return [name for name in lists_in(self.data) if name != DEFAULT] if self.data else []

    def lists(self) -> list[str]:
        """The lists to fill, the default one first."""
        chosen = self.parts or (PARTS if self.data else (DRAWN,))
        others = [one for one in self._others() if "lists" in chosen or one in chosen]
        return [*([DEFAULT] if DEFAULT in chosen else []), *others,
                *([DRAWN] if DRAWN in chosen else [])]  # fmt: skip


Outcomes = Mapping[str, Any]  # key of a trial: its outcome


def planned(setup: Setup) -> list[Trial]:
    """Everything that has to run, each once; a list in one order by all policies in turn."""
    return [
        _trial(setup, policy, list_, seed)
        for list_ in setup.lists()
        for seed in setup.of_seeds()
        for policy in setup.of_policies()
    ]


def _trial(setup: Setup, policy: str, list_: str, seed: int) -> Trial:
    where = {} if list_ == DRAWN else {"folder": setup.data}
    return Trial(
        RUN, {"policy": policy, "list_": list_, "seed": seed, "loads": list(LOADS), **where}
    )


def outcome(setup: Setup, found: Outcomes) -> dict[str, Any]:
    """The tables, and what they say to each claim."""
    rows: list[Row] = []
    beside: list[Row] = []
    loads: list[Row] = []
    policies = setup.of_policies()
    for list_ in setup.lists():
        by_policy = {
            policy: [found[_trial(setup, policy, list_, s).key] for s in setup.of_seeds()]
            for policy in policies
        }
        for load in LOADS:
            filled = {name: [run[f"{load:g}"] for run in runs] for name, runs in by_policy.items()}
            made = _rows(filled, list_, load, len(setup.of_seeds()))
            loads += made
            if load == LOADS[-1]:
                rows += made
                beside += _beside(filled, list_, load)
    tables = [
        {"name": "openb", "rows": rows},
        {"name": "openb-beside", "rows": beside},
        {"name": "openb-loads", "rows": loads},
    ]
    return {
        "tables": tables,
        "claims": as_rows(claims(tables, next(filter(is_packer, policies), PACKER))),
        "trace": f"{len(setup.lists())} lists of pods, {len(setup.of_seeds())} orders each",
        "seeds": setup.of_seeds(),
    }


def _rows(filled: Mapping[str, list[float]], list_: str, load: float, orders: int) -> list[Row]:
    whole = orders == len(PUBLISHED_SEEDS)
    return [
        mean_row(
            policy, METRIC, values, arm=list_, load=load,
            paper=published(list_, policy, load) if whole else None,
        )
        for policy, values in filled.items()
    ]  # fmt: skip


def _beside(filled: Mapping[str, list[float]], list_: str, load: float) -> list[Row]:
    """Each packer less each other, order by order, and the least of these."""
    rows = []
    for mine in filter(is_packer, filled):
        for policy, values in filled.items():
            if is_packer(policy):
                continue
            less = [a - b for a, b in zip(filled[mine], values)]
            mean, half = interval(less)
            ends = (None, None) if half is None else (mean - half, mean + half)
            rows.append(row(mine, f"less {policy}", mean, *ends, arm=list_, load=load))
            if policy == FGD:
                rows.append(row(mine, f"least less {policy}", min(less), arm=list_, load=load))
    return rows


def is_packer(policy: str) -> bool:
    """Whether it is packer, with the shipped weights or (packer:PATH) others."""
    return policy.partition(":")[0] == PACKER
