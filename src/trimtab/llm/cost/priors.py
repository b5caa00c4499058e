"""What no table at hand measures: constants by reasoning, and what stands in for other GPUs.

The fits start from these and replace what they can measure; everything else goes into
constants.json as it stands here, marked as a prior.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# What holds on every architecture until something better is known.
KERNELS: dict[str, float] = {
    # a vocabulary of 50257 instead of 50304 makes the logits' product about this much slower
    "gemm_ragged": 1.8,
    # published forward speeds of FlashAttention 2 on an A100, heads of 128, causal: about 0.32,
    # 0.50 and 0.60 of peak at 512, 2048 and 16384 keys
    "flash_share": 0.62,
    "flash_half": 450.0,
    # five products instead of two, at 0.9 of the forward speed
    "flash_back": 2.7,
    # written and read by the first product, scale and mask, softmax, dropout, second product
    "score_b": 14.0,
    # unaligned heads leave part of every tensor-core instruction empty, or all of it
    "score_ragged": 1.6,
    "score_broken": 7.0,
    "stream_start_s": 4.0e-6,
    "cool": 0.78e12,  # an A100's 312e12 / 400 W
    "hot": 0.0,
    "host": 1.0,
    "load_slow": 0.5,  # a kernel start queues behind one other runnable thread half of the time
    # training runs near the power limit, a GPU that waits at a fifth of it
    "idle_power": 0.2,
    "flop_power": 0.85,
    "busy_power": 0.35,
}
STREAM_MOST = 0.9  # of peak bandwidth: element-wise kernels do not read faster than this

# Software as of FlashAttention 2 reaches 0.35 of a Hopper's peak, as of 3 about 0.65.
HOPPER_FLASH = 0.5
FLASH_SHARE = {"Ampere": KERNELS["flash_share"], "Hopper": HOPPER_FLASH}
SMS = {"Ampere": 108.0, "Hopper": 132.0}


class StandIn(NamedTuple):
    """An architecture without measurements: whose law it takes, with what of its own, how sure."""

    like: str
    spread: float  # relative error (1 sigma) on top of the measured law's
    why: str
    own: dict[str, float]


# Without tensor cores a product comes closer to its (lower) peak: 1.15.
STAND_INS: dict[str, StandIn] = {
    "Kepler": StandIn("Ampere", 0.25, "no tensor cores", {"sms": 13, "gemm_flop": 1.15}),
    "Maxwell": StandIn("Ampere", 0.25, "no tensor cores", {"sms": 24, "gemm_flop": 1.15}),
    "Pascal": StandIn("Ampere", 0.25, "no tensor cores", {"sms": 56, "gemm_flop": 1.15}),
    # 12 nm: a V100 holds its clocks with 125e12 / 300 W, a T4 has twice that
    "Volta": StandIn(
        "Ampere", 0.12, "first tensor cores", {"sms": 80, "flash_share": 0.35, "cool": 0.42e12}
    ),
    "Turing": StandIn(
        "Ampere", 0.15, "same tensor cores", {"sms": 72, "flash_share": 0.4, "cool": 0.42e12}
    ),
    "Ada": StandIn("Ampere", 0.12, "same tensor cores, higher clock", {"sms": 142}),
    # its fused attention has reached 1.4 PFLOP/s forward
    "Blackwell": StandIn("Hopper", 0.12, "next generation", {"sms": 148, "flash_share": 0.62}),
    # rocBLAS and hipBLASLt: about 0.7 of an MI250X's peak and 0.5 of an MI300X's, whose clock
    # falls under matrix load; its fused attention about 0.35
    "Vega20": StandIn("Ampere", 0.3, "no matrix cores", {"sms": 60, "gemm_flop": 1.3}),
    "CDNA1": StandIn("Ampere", 0.25, "other vendor", {"sms": 120, "gemm_flop": 1.5}),
    "CDNA2": StandIn(
        "Ampere", 0.2, "other vendor", {"sms": 104, "gemm_flop": 1.45, "flash_share": 0.35}
    ),
    "CDNA3": StandIn(
        "Hopper", 0.2, "other vendor", {"sms": 304, "gemm_flop": 1.9, "flash_share": 0.35}
    ),
    "CDNA4": StandIn(
        "Hopper", 0.25, "other vendor", {"sms": 256, "gemm_flop": 1.8, "flash_share": 0.35}
    ),
    "RDNA2": StandIn("Ampere", 0.3, "other vendor", {"sms": 40, "gemm_flop": 1.5}),
    "RDNA3": StandIn("Ampere", 0.3, "other vendor", {"sms": 48, "gemm_flop": 1.6}),
    "other": StandIn("Ampere", 0.3, "unknown architecture", {}),
}

SERVING: dict[str, float] = {
    "graph_launch_s": 1.5e-6,  # one node of a captured graph
    "graph_link_start_s": 8.0e-6,  # one-shot sums through peers' memory
    "graph_sequence_host_s": 1.5e-5,  # bookkeeping of one sequence of a batch
    "step_host_s": 1.0e-3,  # scheduler, inputs and outputs of a step on an idle host
}


def arch_table(fields: frozenset[str], measured: tuple[str, ...]) -> dict[str, Any]:
    """For every architecture whose law it takes; `fields` are those of the section."""
    table: dict[str, Any] = {
        arch: {"like": arch, "note": "", "own": {}, "spread": 0.0} for arch in measured
    }
    for arch, stand_in in STAND_INS.items():
        own = {name: float(value) for name, value in stand_in.own.items() if name in fields}
        note = f"{arch} was not measured: {stand_in.like}'s shares of its own peaks"
        table[arch] = {
            "like": stand_in.like,
            "note": f"{note} ({stand_in.why})",
            "own": own,
            "spread": stand_in.spread,
        }
    return table
