"""Eq. 2 of hierarchy-hmarl by itself: how near what an estimate foresees comes to services' use.

Nothing is scheduled: readings of a scene go in, and the use that came is held against what each
estimate says of its peak within a horizon. The paper has its encoder tell spikes from imbalance
that lasts; here a rise just seen has gone again a minute later, or it has not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.claims import Claim, listed
from trimtab.policies.forecast.outlook import features, said
from trimtab.policies.forecast.training import Used, lent_scene, used_in
from trimtab.reproduce.tables import Row, Table, mean_row, measured_text, ratio_row, rows_of
from trimtab.rules import encoder, forecast
from trimtab.rules.encoder import HIGH_Z
from trimtab.rules.forecast import HORIZON_S, LONG, SHORT
from trimtab.traces.scenes.scene import Scene

CALL = "trimtab.reproduce.hierarchy.foresight:measured"
OURS, RIDGE, AVERAGE = "encoder", "forecast", "moving average"
EVERY = 6  # steps of use between two examples of a node
QUANTILE = 0.9
LEAST_RISE = 0.05  # of a node within a minute: what counts as a rise
MINUTE = 12  # readings
HALF = 0.5  # a rise of which as much has gone again was a spike
TOLD_BY = 3  # the horizon whose median tells: 120 s, the first beyond a minute
ALL, SPIKE, LASTS = "all", "a spike", "a rise that lasts"
AUC, ABOVE = "AUC", "encoder above it"
ERROR, HIGH = "error of the foreseen peak", "loss of its 90th percentile"
NEARER = "the encoder foresees the peak nearer than ridge regression, at every horizon"
SURER = "its 90th percentile loses less than that of ridge regression, at every horizon"
TELLS = "it tells a spike from a rise that lasts better than ridge regression and a moving average"


class Foreseen(NamedTuple):
    """Rises above the last reading, in shares of a node, below 0 where an estimate says less."""

    middle: Array  # (S, N, H)
    high: Array  # (S, N, H) 90th percentile, where the estimate has one of its own


def measured(*, trace: str, seed: int, machines: int, split: str = "test") -> dict[str, Any]:
    """Errors of every estimate on one scene, in points: kind of moment, estimate, horizon."""
    scene = lent_scene(trace, split, seed, machines)
    use = used_in(scene, EVERY)
    now = use.used[use.steps] / use.cap
    room = np.maximum(use.held / use.cap - now, 0.0)[..., None]
    after = moments(use)
    found: dict[str, Any] = {"counts": {kind: int(at.sum()) for kind, at in after.items()}}
    found |= {ERROR: {kind: {} for kind in after}, HIGH: {}, "told": {}}
    for name, one in estimates(scene, use).items():
        middle, high = (np.clip(part, 0.0, room) for part in one)
        for kind, at in after.items():
            if at.any():
                found[ERROR][kind][name] = points(np.abs(middle - use.rises)[at])
        found[HIGH][name] = points(pinball(high, use.rises, QUANTILE).reshape(-1, len(HORIZON_S)))
        score = np.broadcast_to(one.middle, use.rises.shape)[..., TOLD_BY]
        found["told"][name] = apart(score[after[LASTS]], score[after[SPIKE]])
    return found


def moments(use: Used) -> dict[str, Array]:
    """(S, N) where each kind of moment is."""
    before, now, later = (use.used[use.steps + k] / use.cap for k in (-MINUTE, 0, MINUTE))
    rise = now - before
    rose, gone = rise >= LEAST_RISE, later - before <= HALF * rise
    return {ALL: np.full(now.shape, True), SPIKE: rose & gone, LASTS: rose & ~gone}


def estimates(scene: Scene, use: Used) -> dict[str, Foreseen]:
    """What each says, as the rules of these names do; `forecast` is the ridge regression."""
    now = use.used[use.steps]
    past = np.stack([use.used[use.steps - k] for k in range(LONG)])
    mean, spread = past[:SHORT].mean(0), past[:SHORT].std(0)
    plain = {
        "now": (now, now),
        AVERAGE: (mean, mean),
        "deviation": (mean + spread, mean + HIGH_Z * spread),
        "p95": (np.percentile(past, 95, axis=0),) * 2,
        "peak": (past.max(0),) * 2,
    }
    found = {
        name: Foreseen(*(((level - now) / use.cap)[..., None] for level in both))
        for name, both in plain.items()
    }
    lending = scene.cluster.lending
    assert lending is not None  # lent_scene has seen to it
    x = features(scene, use)
    ridge = forecast.weights_at(lending.forecast)
    middle = x[..., : forecast.FEATURES] @ ridge[:, :-1].T
    found[RIDGE] = Foreseen(middle, middle + HIGH_Z * ridge[:, -1])
    found[OURS] = Foreseen(*said(encoder.weights_at(lending.encoder), x))
    return found


def pinball(foreseen: Array, truth: Array, quantile: float) -> Array:
    """What a foreseen quantile loses by each truth."""
    off = truth - foreseen
    return np.maximum(quantile * off, (quantile - 1.0) * off)


def points(losses: Array) -> list[float]:
    """The mean by horizon, of (E, H), in points of a node."""
    return [100.0 * float(mean) for mean in losses.mean(0)]


def apart(high: Array, low: Array) -> float | None:
    """How often one of `high` is above one of `low`, ties by half: the area under the curve (AUC);
    None where there is none of one of them.
    """
    if not len(high) or not len(low):
        return None
    _, at, count = np.unique(np.concatenate((high, low)), return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2.0)[at]
    least = len(high) * (len(high) + 1) / 2.0
    return float((rank[: len(high)].sum() - least) / (len(high) * len(low)))


def tables_of(scenes: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Errors by estimate and horizon, the encoder's ratios to ridge, and spikes told from rises."""
    return [
        {"name": "forecast", "rows": _error_rows(scenes)},
        {"name": "forecast-ratios", "rows": _ratio_rows(scenes)},
        {"name": "forecast-rises", "rows": _told_rows(scenes)},
    ]


def _losses(scenes: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Sequence[float]]]]:
    """Title of a table: of each scene that knows it, estimate: losses by horizon."""
    found = {ERROR: [one[ERROR][ALL] for one in scenes], HIGH: [one[HIGH] for one in scenes]}
    for kind in (SPIKE, LASTS):
        known = [one[ERROR][kind] for one in scenes if one["counts"][kind]]
        if known:
            found[f"{ERROR} after {kind}"] = known
    return found


def _horizons() -> list[tuple[int, str]]:
    return [(h, f"{horizon_s:g} s") for h, horizon_s in enumerate(HORIZON_S)]


def _error_rows(scenes: Sequence[Mapping[str, Any]]) -> list[Row]:
    return [
        mean_row(name, told, [one[name][h] for one in of], arm=title)
        for title, of in _losses(scenes).items()
        for name in of[0]
        for h, told in _horizons()
    ]


def _ratio_rows(scenes: Sequence[Mapping[str, Any]]) -> list[Row]:
    return [
        ratio_row(title, told, [one[OURS][h] for one in of], [one[RIDGE][h] for one in of])
        for title, of in _losses(scenes).items()
        for h, told in _horizons()
    ]


def _told_rows(scenes: Sequence[Mapping[str, Any]]) -> list[Row]:
    """AUC of each, and how far the encoder's is above it, scene by scene."""
    known = [one["told"] for one in scenes if one["told"][OURS] is not None]
    rows = []
    for name in known[0] if known else ():
        rows.append(mean_row(name, AUC, [one[name] for one in known]))
        if name != OURS:
            rows.append(mean_row(name, ABOVE, [one[OURS] - one[name] for one in known]))
    return rows


def claims_of(tables: Sequence[Table]) -> list[Claim]:
    ratios, told = (rows_of(tables, name) for name in ("forecast-ratios", "forecast-rises"))
    above = [one for one in told if one["metric"] == ABOVE and one["policy"] in (RIDGE, AVERAGE)]
    return [
        _sure(NEARER, "metric", [one for one in ratios if one["policy"] == ERROR], 1.0, -1),
        _sure(SURER, "metric", [one for one in ratios if one["policy"] == HIGH], 1.0, -1),
        _sure(TELLS, "policy", above, 0.0, 1),
    ]


def _sure(text: str, key: str, rows: Sequence[Row], bound: float, sign: int) -> Claim:
    """Holds where every interval lies beyond the bound, not where one lies on its other side."""
    known = [one for one in rows if one["low"] is not None]
    known.sort(key=lambda one: sign * float(one["ours"]))
    if not known:
        return Claim(text)
    ends = [sorted((sign * (one["low"] - bound), sign * (one["high"] - bound))) for one in known]
    holds = False if any(high <= 0 for _, high in ends) else None
    if all(low > 0 for low, _ in ends):
        holds = True
    return Claim(text, holds, listed([f"{one[key]}: {measured_text(one)}" for one in known]))
