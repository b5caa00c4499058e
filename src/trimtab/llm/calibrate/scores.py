"""Attention, forward and backward: fused as torch does it, and with its scores in memory."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from trimtab.llm.calibrate.devices import BURST_S, Call, Device
from trimtab.llm.calibrate.rows import RowStream, Turn, Unmeasured

FUSED = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
)
SEQS = (2048, 512, 8192, 1024, 4096, 16384)  # in an order of which any first part spans much
UNFUSED_SEQS = (1024, 2048, 512)
HEAD_DIMS = (128, 64)
WIDTH, TOKENS = 2048, 16384  # heads x head_dim, and batch x seq where there is time for them
UNFUSED_TOKENS = 4096  # scores in memory take room
CALLS = 6
# Roughly, to judge what there is time for: both ways / forward, and products' speed / attention's.
BACK, SLOW = 4.0, 3.0
SURE_SEQ = 1024  # sequences up to here are measured on the slowest device too


class Heads(NamedTuple):
    """One causal attention of `seq` queries over as many keys."""

    batch: int
    heads: int
    seq: int
    head_dim: int

    def flop(self) -> float:
        """Operations forward, the masked half left out."""
        return 2.0 * self.batch * self.heads * self.seq**2 * self.head_dim


def sized(seq: int, head_dim: int, most_flop: float, tokens: int = TOKENS) -> Heads | None:
    """The largest batch, then the most heads, that stay below `most_flop`; None = no head does."""
    made = Heads(max(tokens // seq, 1), WIDTH // head_dim, seq, head_dim)
    while made.flop() > most_flop:
        if made.batch > 1:
            made = made._replace(batch=made.batch // 2)
        elif made.heads > 1:
            made = made._replace(heads=made.heads // 2)
        else:
            return made if seq <= SURE_SEQ else None
    return made


def operands(device: Device, shape: Heads, count: int = 3) -> list[torch.Tensor]:
    """Queries, keys and values of (batch, heads, seq, head_dim)."""
    return [torch.randn(shape, device=device.at).to(device.dtype) for _ in range(count)]


def fused_calls(device: Device, shape: Heads, backend: Any) -> tuple[Call, Call]:
    """Forward without a graph, and backward alone."""
    q, k, v, up = operands(device, shape, 4)

    def forward() -> torch.Tensor:
        with torch.no_grad(), sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    given = tuple(one.detach().requires_grad_() for one in (q, k, v))
    with sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(given[0], given[1], given[2], is_causal=True)
    return forward, lambda: torch.autograd.grad(out, given, up, retain_graph=True)


def fastest(device: Device, most_flop: float) -> Any:
    """The fused kernel that is fastest forward and backward on a middling sequence."""
    shape = sized(2048, 128, most_flop) or Heads(1, 1, SURE_SEQ, 128)
    found = {}
    for backend in FUSED:
        # torch warns, a line a reason, before it says that it has none
        with warnings.catch_warnings(), suppress(RuntimeError):
            warnings.simplefilter("ignore")
            ahead, back = fused_calls(device, shape, backend)
            found[backend] = device.timed(ahead) + device.timed(back)
    if not found:
        raise Unmeasured("fused attention: this torch has none for this device")
    return min(found, key=lambda backend: found[backend])


def fused(turn: Turn) -> RowStream:
    """Fused attention, forward and backward, by the fastest of torch's kernels."""
    device = turn.device
    call_s = turn.seconds / len(SEQS) / CALLS
    most_flop = turn.flops * call_s / BACK / SLOW
    backend = fastest(device, most_flop)
    for seq in SEQS:
        for head_dim in HEAD_DIMS:
            shape = sized(seq, head_dim, most_flop)
            if shape is not None:
                calls = fused_calls(device, shape, backend)
                yield "fused", [*shape, *(device.timed(one, min(BURST_S, call_s)) for one in calls)]


def unfused(turn: Turn) -> RowStream:
    """Attention kernel by kernel: product, mask, softmax, dropout, product."""
    device = turn.device
    most_flop = turn.flops * turn.seconds / len(UNFUSED_SEQS) / CALLS / BACK / SLOW
    for seq in UNFUSED_SEQS:
        shape = sized(seq, HEAD_DIMS[0], most_flop, UNFUSED_TOKENS)
        # five tables of scores at once
        if shape is None or 5 * shape.batch * shape.heads * seq**2 > len(device.inputs):
            continue
        yield "unfused", [*shape, device.timed(unfused_call(device, shape))]


def unfused_call(device: Device, shape: Heads) -> Call:
    """What software did before fused kernels, in 16 bits throughout."""
    q, k, v = (one.flatten(0, 1) for one in operands(device, shape))
    keys, scale = k.transpose(1, 2), shape.head_dim**-0.5
    mask = torch.full((shape.seq, shape.seq), -1e4, device=device.at).triu(1).to(device.dtype)
    base = torch.empty(1, 1, 1, device=device.at, dtype=device.dtype)  # times 0

    @torch.no_grad()
    def call() -> torch.Tensor:
        scores = torch.baddbmm(base, q, keys, beta=0.0, alpha=scale)
        weights = torch.softmax(scores.add_(mask), -1)
        return torch.bmm(F.dropout(weights, 0.1, training=True), v)

    return call
