"""The end-to-end constants: what kernels and links alone do not explain, a few for all frameworks.

`Training` holds for every framework. `PROFILE` is a row a framework: facts about its software
(which copies it keeps, what it overlaps) and the host's time. Fitted numbers are read from
constants.json, section "training", which `fit_training` writes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.llm.cost.cases import FRAMEWORKS
from trimtab.llm.cost.constants import law_names, law_of, read


class Training(NamedTuple):
    """Constants of the step time and of the memory that all frameworks share."""

    gemm_slow: float = 1.0  # a product in training / the same alone in a loop
    throttle: float = 0.0  # power of FLOP/s a watt by which clocks fall under sustained load
    stream_slow: float = 1.0  # element-wise time / counted bytes at the bandwidth of the law
    score_slow: float = 1.0  # the same for the scores of an unfused attention
    back_stream: float = 1.7  # backward passes over activations / forward passes
    logits_b: float = 24.0  # bytes moved a logit: cast, softmax, loss and their gradients
    adam_b: float = 45.0  # bytes moved a parameter: states, master copy, norm, unscale
    selective: float = 0.4  # of the forward pass that sharded frameworks' "selective" does again
    overlap_slow: float = 1.126  # compute while a collective runs beside it / alone
    overlap_most: float = 0.9  # of the compute that can hide a collective
    link_slow: float = 1.0  # a collective in training / alone
    jitter: float = 0.0  # of the step a doubling of nodes: the slowest of more ranks
    fp8_gain: float = 1.8  # of a product, out of the peak's 2: scaling, 16-bit outputs
    imbalance: float = 1.15  # busiest / mean expert rank
    capacity: float = 1.063  # bytes that can be had / listed: cards hold GiB, drivers take 1 %


PROFILE = np.dtype(
    [
        ("launch_s", "f8"),  # host seconds to start one layer's forward kernels
        ("step_s", "f8"),  # host seconds a step: data, logging, optimiser's start
        ("work", "f8"),  # kernels of this software / the best there are
        ("stream", "f8"),  # element-wise passes / those of fused kernels
        ("fused", "f8"),  # its fused attention / the law's
        ("overlap", "f8"),  # 1 = gradient collectives run beside the backward pass
        ("tensor_overlap", "f8"),  # of tensor-parallel collectives that run beside products
        ("reduce_b", "f8"),  # bytes of a gradient on the wire; 0 = as it is kept
        ("logit_b", "f8"),  # bytes kept a logit until its gradient is used
        ("keep", "f8"),  # saved activations / the textbook's
        ("copy_b", "f8"),  # bytes a parameter of copies outside of the textbook's states
        ("context_b", "f8"),  # CUDA context, libraries and workspaces
        ("group_b", "f8"),  # buffers of one communicator
        ("fragment", "f8"),  # of what is allocated and freed in a step: unusable gaps
    ]
)
# What such hosts and libraries usually take.
USUAL = {
    "launch_s": 2.5e-4, "step_s": 0.05, "work": 1.0, "stream": 1.0, "fused": 1.0, "overlap": 1.0,
    "tensor_overlap": 0.0, "reduce_b": 0.0, "logit_b": 10.0, "keep": 1.0, "copy_b": 0.0,
    "context_b": 1.7e9, "group_b": 0.4e9, "fragment": 0.06,
}  # fmt: skip
# Facts of each framework's software, where it differs.
PROFILES: dict[str, dict[str, float]] = {
    "megatron": {},
    "nemo": {"tensor_overlap": 0.5},  # splits products so that collectives run beside them
    # reduces after the backward pass, in fp32, and keeps 16-bit gradients beside their fp32 sums
    "deepspeed": {
        "launch_s": 3.0e-4, "overlap": 0.0, "reduce_b": 4.0, "copy_b": 2.0, "fragment": 0.10,
    },
    "fsdp": {"reduce_b": 2.0},
    # runs with and without a compiler, which fuses element-wise work: the mean of both
    "torchtitan": {"stream": 1.8, "tensor_overlap": 0.3, "reduce_b": 4.0, "keep": 1.2},
    "composer": {"reduce_b": 2.0, "logit_b": 6.0},  # a fused loss writes gradients over logits
}  # fmt: skip


def training(constants: dict[str, Any] | None = None) -> Training:
    """The shared constants as fitted; the defaults where the file has none."""
    values = _fitted(constants)
    return Training(**{name: float(values[name]) for name in Training._fields if name in values})


@cache
def profiles() -> Array:
    """One row a framework, in the order of FRAMEWORKS, with what was fitted."""
    frames = base_profiles()
    for name, value in _fitted(None).items():
        field, _, framework = name.partition("@")
        if framework:
            frames[field][FRAMEWORKS.index(framework)] = value
    return frames


def base_profiles() -> Array:
    """One row a framework as assumed, before any fit."""
    rows = [USUAL | PROFILES[name] for name in FRAMEWORKS]
    return np.array([tuple(row[field] for field in PROFILE.names or ()) for row in rows], PROFILE)


@cache
def law_rows() -> Array:
    """Kernel and link laws, a row each in the order of `law_names`."""
    return np.stack([law_of(name).values for name in law_names()])


def _fitted(constants: dict[str, Any] | None) -> dict[str, float]:
    found = constants if constants is not None else read()
    return found.get("training", {}).get("values", {})
