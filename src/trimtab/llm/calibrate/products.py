"""Matrix products as transformer layers ask for them: short bursts, and one under lasting load."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from trimtab.llm.calibrate.devices import BURST_S, Call, Device
from trimtab.llm.calibrate.rows import RowStream, Turn, Unmeasured

ROWS = (1, 4, 16, 64, 100, 256, 384, 512, 1024, 1536, 2048, 3000, 4096, 8192, 16384)  # tokens
HIDDEN = (1024, 2048, 4096, 5120, 8192, 12288, 16384)
SLICES = (1, 2, 4, 8)  # tensor parallel ranks
MOST_ROWS = 300  # of 20,000 measured ones 200 fit the law within 0.4 points of what all do
RAGGED_VOCAB, WHOLE_VOCAB = 50257, 50304  # GPT-2's, as it is and padded
CALLS = 6  # of one product at the least: warm-up, a look, repeats
EVEN = 256  # elements that operands are aligned to
PROBE_S = 2e-3
SQUARES = (8192, 4096, 2048, 1024, 512)


class Shape(NamedTuple):
    """C(m, n) = A(m, k) B(k, n)."""

    m: int
    n: int
    k: int

    def flop(self) -> float:
        """Operations of the product."""
        return 2.0 * self.m * self.n * self.k

    def fits(self, device: Device) -> bool:
        """Whether inputs and output are no larger than the device's room for them."""
        given = (self.m + self.n) * self.k + 2 * EVEN
        return given <= len(device.inputs) and self.m * self.n <= len(device.outputs)


def layer_shapes(rng: np.random.Generator) -> list[Shape]:
    """Products of layers of all widths, shuffled: any first part of them spans the whole."""
    found = []
    for hidden in HIDDEN:
        for ranks in SLICES:
            wide = hidden // ranks
            matrices = ((3 * wide, hidden), (hidden, wide), (4 * wide, hidden), (hidden, 4 * wide))
            found += [Shape(m, n, k) for m in ROWS for n, k in matrices]
    return [found[place] for place in rng.permutation(len(found))]


def product(device: Device, shape: Shape) -> Call:
    """The product as a linear layer does it: weights are stored as (n, k)."""
    m, n, k = shape
    behind = -(-m * k // EVEN) * EVEN
    a = device.inputs[: m * k].view(m, k)
    b = device.inputs[behind : behind + n * k].view(n, k).t()
    c = device.outputs[: m * n].view(m, n)
    return lambda: torch.mm(a, b, out=c)


def rough_flops(device: Device) -> float:
    """FLOP/s of a square product that takes a while: which shapes are worth asking for."""
    side, run_s = 256, 0.0
    while True:
        shape = Shape(side, side, side)
        run_s = device.timed(product(device, shape), 0.0)
        if run_s > PROBE_S or side >= SQUARES[0] or not Shape(*3 * (2 * side,)).fits(device):
            return shape.flop() / run_s
        side *= 2


def largest(device: Device, flops: float, seconds: float) -> Shape:
    """The largest square product that fits and takes no longer than `seconds`."""
    for side in SQUARES:
        shape = Shape(side, side, side)
        if shape.fits(device) and shape.flop() / flops <= seconds:
            return shape
    return Shape(*3 * SQUARES[-1:])


def products(turn: Turn) -> RowStream:
    """Products of layers, the largest square one first; what would take too long is left out."""
    device = turn.device
    # thirty rows at least, of which none takes more than its part
    call_s = turn.seconds / 30 / CALLS
    first = largest(device, turn.flops, call_s)
    shapes = [one for one in layer_shapes(turn.rng) if one.flop() / turn.flops <= call_s]
    for shape in [first, *shapes][:MOST_ROWS]:
        if shape.fits(device):
            yield "products", [*shape, device.timed(product(device, shape), min(BURST_S, call_s))]


def single(turn: Turn) -> RowStream:
    """One product in 32 bits, which some devices do at a sixteenth of the speed."""
    side = largest(turn.device, turn.flops / 16, turn.seconds / CALLS).m
    a, b = (torch.randn(side, side, device=turn.device.at) for _ in range(2))
    c = torch.empty_like(a)
    yield "single", [side, side, side, turn.device.timed(lambda: torch.mm(a, b, out=c))]


def ragged(turn: Turn) -> RowStream:
    """Logits of a vocabulary whose rows are no multiple of 16 bytes, and of the padded one.

    The largest there is time for: small ones move more than they compute and would not show it.
    """
    device = turn.device
    sizes = ((4096, 8192), (4096, 4096), (2048, 2048), (1024, 512), (256, 256), (64, 128))
    shapes = [Shape(m, WHOLE_VOCAB, hidden) for m, hidden in sizes]
    call_s = turn.seconds / 6 / CALLS
    able = [one for one in shapes if one.fits(device) and one.flop() / turn.flops <= call_s]
    for shape in able[:3] or shapes[-1:]:
        bare = shape._replace(n=RAGGED_VOCAB)
        yield "ragged", [*bare, *(device.timed(product(device, one)) for one in (bare, shape))]


def eights(turn: Turn) -> RowStream:
    """One large product in 16 and in 8 bits, where the device has such."""
    device = turn.device
    if device.kind != "cuda":
        raise Unmeasured("products in 8 bits: the processor has none")
    shape = largest(device, turn.flops, turn.seconds / 2 / CALLS)
    # AMD's MI300 has a format of its own, which torch refuses elsewhere
    for dtype in (torch.float8_e4m3fn, torch.float8_e4m3fnuz):
        try:
            call = _eight(device, shape, dtype)
            call()
            device.synchronise()
        except (RuntimeError, NotImplementedError, ValueError):
            continue
        half_s = device.timed(product(device, shape))
        yield "eights", [*shape, half_s, device.timed(call)]
        return
    raise Unmeasured("products in 8 bits: this GPU or this torch has none")


def _eight(device: Device, shape: Shape, dtype: torch.dtype) -> Call:
    m, n, k = shape
    a = device.inputs[: m * k].view(m, k).to(dtype)
    b = device.inputs[: n * k].view(n, k).to(dtype).t()
    one = torch.ones((), device=device.at)
    return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=device.dtype)


def heat(turn: Turn) -> RowStream:
    """One large product again and again until clocks have settled, and the power meanwhile."""
    device, seconds = turn.device, turn.seconds
    shape = largest(device, turn.flops, min(seconds / 20, 0.05))
    call = product(device, shape)
    yield "heat", [0.0, device.timed(call)]
    watts: list[float] = []
    late_s: list[float] = []
    for at_s, run_s in device.sustained(call, seconds):
        yield "heat", [at_s, run_s]
        drawn_w = device.watts()
        # meters tell the mean of the last second, so the first half is still a warm-up
        if drawn_w is not None and at_s > max(0.5 * seconds, 1.0):
            watts.append(drawn_w)
            late_s.append(run_s)
    if watts:
        yield "power", [shape.flop() / float(np.mean(late_s)), 1.0, float(np.mean(watts))]
