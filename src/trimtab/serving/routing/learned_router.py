"""The file of a learned router: a small network, what it steers and the facts of its making."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.net.packed import read_packed, refusing, write_packed
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.routing import lookahead
from trimtab.serving.routing.heads import inputs_of, outputs_of
from trimtab.serving.routing.routers import HEADS, PRICED, Rule, rule, with_net

FORMAT = "trimtab router 1"
NETS = ("net0", "net1", "net2")
AHEAD, PAPER = "ahead", "heads"  # a network that steers the lookahead, or is the paper's router
HERE = Path(__file__).parent
# what is shipped: the search's network, and the paper's router in two weightings
SHIPPED = {
    "learned": HERE / "router.npz",
    "light": HERE / "router_light.npz",
    "balanced": HERE / "router_balanced.npz",
}
Net = tuple[Array, Array, Array]


class Learned(NamedTuple):
    """What a file holds."""

    kind: str  # AHEAD or PAPER
    net: Net
    facts: dict[str, Any]


def save(path: str | Path, kind: str, net: Net, facts: Mapping[str, Any]) -> None:
    """Write a router whole or not at all; `facts` must be JSON."""
    check(str(path), kind, net)
    arrays = {name: np.asarray(value, np.float32) for name, value in zip(NETS, net)}
    write_packed(path, FORMAT, arrays, {**facts, "kind": kind})


def read(path: str | Path) -> Learned:
    """What a router's file holds."""
    with refusing(path, "a learned router", "give a .npz that `trimtab train router` wrote"):
        arrays, facts = read_packed(path, FORMAT)
        one, two, three = (arrays[name].astype(np.float64) for name in NETS)
        kind = facts.pop("kind")
    check(str(path), kind, (one, two, three))
    return Learned(kind, (one, two, three), facts)


def load(path: str | Path, profile: ServeProfile, batch_max: int = 16) -> Rule:
    """The rule of a learned router, for servers of this profile."""
    found = read(path)
    made = rule(profile, "priced", batch_max=batch_max)
    return with_net(made, PRICED if found.kind == AHEAD else HEADS, found.net)


def servers_of(net: Net) -> int:
    """How many servers the paper's router was trained for."""
    return int(net[2].shape[0]) - outputs_of(0)


def check(name: str, kind: str, net: Net) -> None:
    """Raise for a network that compiled code could not run."""
    if kind not in (AHEAD, PAPER):
        raise ServeError(f"{name}: kind {kind!r} is unknown; give {AHEAD} or {PAPER}")
    if any(weight.ndim != 2 or not np.isfinite(weight).all() for weight in net):
        raise ServeError(f"{name}: a layer is no matrix of finite numbers; train it again")
    one, two, three = (weight.shape for weight in net)
    servers = servers_of(net)
    ends = (
        (lookahead.SIGHTS, lookahead.STEERED) if kind == AHEAD
        else (inputs_of(servers), outputs_of(servers))
    )  # fmt: skip
    fits = (one[1], three[0]) == (ends[0] + 1, ends[1])
    enough = kind == AHEAD or servers > 0
    if not fits or not enough or two[1] != one[0] + 1 or three[1] != two[0] + 1:
        raise ServeError(
            f"{name}: layers of shapes {one}, {two}, {three} do not make a router of kind {kind}; "
            "train it again"
        )
