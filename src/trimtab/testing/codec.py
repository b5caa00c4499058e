"""Whether a codec keeps the protocol."""

from __future__ import annotations

import copy

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Cluster, Codec, Start, What, Workload
from trimtab.rules.world import FIELDS, World
from trimtab.sim.backend import SimBackend
from trimtab.testing.cases import small_cluster, small_workload
from trimtab.testing.look import copied, described, difference, listed, same


def check_codec(
    codec: Codec,
    jobs: Workload | None = None,
    machine: Cluster | None = None,
    *,
    exact: bool = True,
    steps: int = 300,
) -> None:
    """Drive a codec for `steps` random actions that its mask allows.

    Rules: observations are in their space; the mask has a truth value an action and allows one at
    least; what it allows is accepted; and (`exact`) a start that it forbids would be refused.
    """
    backend = SimBackend(jobs or small_workload(40, gap_s=5.0), machine or small_cluster())
    rng = np.random.default_rng(0)
    observations, actions = codec.spaces()
    count = int(actions.n)
    for _ in range(steps):
        if not len(backend.snapshot().queue) and backend.wait() is None:
            return
        snapshot = backend.snapshot()
        where = f"codec {type(codec).__name__}, second {snapshot.now_s:g}"
        before = copied(snapshot)
        seen = codec.encode(snapshot)
        assert observations.contains(seen), (
            f"{where}: encode returned {described(seen)}, which is not in {observations}"
        )
        assert same(seen, codec.encode(snapshot)), (
            f"{where}: encodes one snapshot differently twice"
        )
        mask = np.asarray(codec.mask(snapshot))
        assert mask.shape == (count,) and mask.dtype in (np.dtype(bool), np.dtype(np.int8)), (
            f"{where}: mask is {described(mask)}, want ({count},) of bool or int8"
        )
        assert mask.any(), f"{where}: the mask allows no action; allow one that does nothing"
        _check_actions(where, codec, mask.astype(bool), backend, exact)
        changed = difference(before, backend.snapshot())
        assert not changed, f"{where}: encode, mask or decode changed the snapshot ({changed})"
        chosen = int(rng.choice(np.flatnonzero(mask)))
        acts = [backend.apply(decision) for decision in codec.decode(chosen, snapshot)]
        if not any(answer.job >= 0 for answer in acts) and backend.wait() is None:
            return


def _check_actions(where: str, codec: Codec, mask: Array, backend: SimBackend, exact: bool) -> None:
    """Try every action on a copy of the cluster."""
    for action in range(len(mask)):
        snapshot = backend.snapshot()
        if mask[action]:
            decisions = listed(f"{where}, action {action}", codec.decode(action, snapshot))
            copy_ = twin_of(backend)
            for decision in decisions:
                answer = copy_.apply(decision)
                assert answer.what != What.REFUSED, (
                    f"{where}: the mask allows action {action}, but {decision} is refused: "
                    f"{answer.reason}"
                )
        elif exact:
            try:
                decisions = list(codec.decode(action, snapshot))
            except (IndexError, ValueError):
                continue  # it may stand for nothing at all
            copy_ = twin_of(backend)
            starts = [d for d in decisions if isinstance(d, Start)]
            answers = [copy_.apply(decision) for decision in decisions]
            assert not starts or any(answer.what == What.REFUSED for answer in answers), (
                f"{where}: the mask forbids action {action}, but {decisions} would be accepted"
            )


def twin_of(backend: SimBackend) -> SimBackend:
    """A copy of a simulated cluster at this moment, to try something on."""
    twin = copy.copy(backend)
    twin.world = World(**{name: getattr(backend.world, name).copy() for name in FIELDS})
    twin._jobs, twin._demand = backend._jobs.copy(), backend._demand.copy()
    return twin
