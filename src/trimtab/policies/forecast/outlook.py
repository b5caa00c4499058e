"""Examples for the load encoder, and what its weights say of them: many at once, without torch."""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array
from trimtab.policies.forecast.training import Used, used_in
from trimtab.rules import encoder
from trimtab.rules.encoder import FEATURES
from trimtab.rules.forecast import HORIZON_S
from trimtab.traces.scenes.scene import Scene


def examples(scene: Scene, every: int, known: bool = True) -> tuple[Array, Array]:
    """Features (E, F) and rises (E, H) in shares of a node."""
    use = used_in(scene, every)
    flat_x = features(scene, use, known).reshape(-1, FEATURES)
    flat_y = use.rises.reshape(-1, len(HORIZON_S))
    return flat_x.astype(np.float32), flat_y.astype(np.float32)


def features(scene: Scene, use: Used, known: bool = True) -> Array:
    """(S, N, F); `known` = the usual day is, where the scene has one."""
    lending = scene.cluster.lending
    usual, usual_step_s = np.zeros((use.share.shape[1], 0)), 1.0
    if known and lending is not None and lending.usual is not None:
        usual, usual_step_s = np.ascontiguousarray(lending.usual), lending.usual_step_s
    x = np.empty((len(use.steps), len(use.cap), FEATURES))
    encoder.described(
        use.used, use.share, use.region, use.held, use.cap, use.steps, usual, usual_step_s,
        scene.workload.pattern_step_s, x,
    )  # fmt: skip
    return x


def said(layers: tuple[Array, Array, Array], x: Array) -> tuple[Array, Array]:
    """Of features (.., F): medians and 90th percentiles of the rises (.., H); a median may lie
    below 0.
    """
    first, middle, last = layers
    hidden = np.maximum(x @ first[:-1] + first[-1], 0.0)
    both = np.maximum(hidden @ middle[:-1] + middle[-1], 0.0) @ last[:-1] + last[-1]
    half = len(HORIZON_S)
    return both[..., :half], both[..., :half] + np.logaddexp(both[..., half:], 0.0)
