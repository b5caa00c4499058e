"""What learns in the training of the slimmable network: one step, the whole run, its measurement.

Sandwich rule and in-place distillation (Yu and Huang 2019): every step runs the widest network on
the labels, and the slimmest and two networks of random mixed widths on the widest one's answers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trimtab.arrays import Array
from trimtab.errors import ServeError
from trimtab.serving.net.slim_form import Form
from trimtab.serving.net.slim_net import SlimConv, SlimResNet
from trimtab.serving.nouns import SEGMENTS, TUPLES, WIDTHS
from trimtab.serving.training.images import Batch, Feed, Images, batches_of, mixed_loss

UNIFORM = tuple((width,) * SEGMENTS for width in range(len(WIDTHS)))
WIDEST, SLIMMEST = UNIFORM[-1], UNIFORM[0]
NETWORKS = 4  # of a sandwich
VARIANTS = 64  # shapes that the compiled end of a layer may have: 4 widths, 4 sides, 3 uses


@dataclass(frozen=True)
class Settings:
    """How to train. `learning_rate` and `mix` are worth a search; the rest is settled by reasons.

    The defaults are for some hundred epochs of 50,000 images on one GPU: long enough for one slow
    cosine, and too long for crops and flips alone.
    """

    minutes: float = 0.0  # of training, which the schedule then fills; 0 = by `steps`
    steps: int = 14_000
    # Four passes a step launch thousands of kernels: fewer images would leave a large GPU waiting
    # for its host, more would only make updates fewer.
    batch: int = 512
    # Filters are standardised, so only their direction learns, by about sqrt(2 rate decay) a step:
    # 0.4 and 5e-4 is the usual 0.1 and 5e-4 for batches of 128, scaled with the batch.
    learning_rate: float = 0.4
    weight_decay: float = 5e-4
    # Share of the pictures that are mixed. The widest network overfits without, the slimmest cannot
    # follow if all are mixed; it learns by distillation, which is why half is not too much for it.
    mix: float = 0.5
    smoothing: float = 0.1  # of the labels; the slim networks see none, they learn from the widest
    # Of the distillation. Labels are smoothed and mixed, so the widest network is soft already.
    temperature: float = 1.0
    average: float = 0.999  # of the weights that are kept: about the last 1,000 steps
    clip: float = 5.0  # largest gradient norm: far above the usual, against a bad first minute
    warmup: float = 0.05  # share of the training
    channels: int = 64  # of the first segment; the others keep their proportion to it
    compile: bool = False  # the ends of layers: minutes once, so for long trainings only
    channels_last: bool = True  # in memory, as tensor cores want them
    seed: int = 0

    def check(self) -> Settings:
        wanted = {
            "minutes": self.minutes >= 0,
            "steps": self.steps >= 1,
            "batch": self.batch >= 1,
            "learning_rate": 0 < self.learning_rate < math.inf,
            "weight_decay": 0 <= self.weight_decay < 1,
            "mix": 0 <= self.mix <= 1,
            "smoothing": 0 <= self.smoothing < 1,
            "temperature": 0 < self.temperature < math.inf,
            "average": 0 <= self.average < 1,
            "clip": self.clip > 0,
            "warmup": 0 <= self.warmup < 1,
            "seed": self.seed >= 0,
        }
        for name, good in wanted.items():
            if not good:
                raise ServeError(
                    f"{name}={getattr(self, name)!r} is out of range; "
                    f"the default is {name}={getattr(Settings(), name)!r}"
                )
        return self

    def form(self, classes: int, side: int) -> Form:
        usual = Form()
        wide = tuple(self.channels * count // usual.channels[0] for count in usual.channels)
        group = min(usual.group, max(self.channels // 4, 1))
        return Form(wide, group, classes, usual.blocks, side).check()


class Progress(NamedTuple):
    """How far a training is; what was not measured in this row is NaN.

    The shares of test images right are those of the averaged weights. Nothing is chosen by them:
    the last weights are kept, whatever they show.
    """

    step: int
    steps: int  # with `minutes` an estimate from the speed so far
    loss: float
    right_25: float  # at uniform width 0.25
    right_50: float
    right_75: float
    right_100: float
    images_hz: float
    wall_s: float


RIGHTS = tuple(name for name in Progress._fields if name.startswith("right_"))


class Learner:
    """Network, averaged network and optimiser of one training."""

    def __init__(self, on: Settings, net: SlimResNet, device: str = "cpu") -> None:
        self.on, self.device = on, device
        layout = torch.channels_last if on.channels_last else torch.contiguous_format
        self.net = net.to(device)
        self.net.to(memory_format=layout)  # type: ignore[call-overload]
        self.kept = deepcopy(self.net).requires_grad_(False)
        if on.compile:
            torch._dynamo.config.recompile_limit = VARIANTS
            for conv in self.net.convs.values():
                assert isinstance(conv, SlimConv)
                conv.finish = torch.compile(conv.finish, dynamic=False)
        self.weights = list(self.net.parameters())
        for weight in self.weights:
            weight.grad = torch.zeros_like(weight)
        self.grads = [weight.grad for weight in self.weights if weight.grad is not None]
        # gains, shifts and the bias have few numbers and no direction to keep free: no decay
        heavy = [value for value in self.weights if value.ndim > 1]
        light = [value for value in self.weights if value.ndim == 1]
        groups: list[dict[str, Any]] = [{"params": heavy}, {"params": light, "weight_decay": 0.0}]
        self.optimiser = torch.optim.SGD(
            groups,
            lr=on.learning_rate, weight_decay=on.weight_decay, momentum=0.9, nesterov=True,
        )  # fmt: skip
        torch.backends.cudnn.benchmark = True  # few shapes, met again and again
        self.learn = Recorded(self.backward) if device.startswith("cuda") else self.backward
        self.step, self.spent_s = 0, 0.0

    @property
    def progress(self) -> float:
        """Share of the training that is done: of the time, or of the steps."""
        if self.on.minutes:
            return min(self.spent_s / (60.0 * self.on.minutes), 1.0)
        return min(self.step / self.on.steps, 1.0)

    def state(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "kept": self.kept.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "spent_s": self.spent_s,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.kept.load_state_dict(state["kept"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.spent_s = int(state["step"]), float(state["spent_s"])

    def update(self, batch: Batch) -> Tensor:
        """One step: the sandwich's four networks, then the weights. Returns the widest's loss."""
        rate = rate_at(self.progress, self.on)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        torch._foreach_zero_(self.grads)
        widest, *others = sandwich(np.random.default_rng([self.on.seed, self.step, 2]))
        loss, answers = self.learn(widest, batch)
        for widths in others:
            self.learn(widths, batch, answers)
        nn.utils.clip_grad_norm_(self.net.parameters(), self.on.clip)
        self.optimiser.step()
        self.step += 1
        # young weights are forgotten sooner: at step t the mean is over the last tenth of t
        decay = min(self.on.average, self.step / (self.step + 10.0))
        kept: list[Tensor] = list(self.kept.parameters())
        torch._foreach_lerp_(kept, [one.detach() for one in self.net.parameters()], 1.0 - decay)
        return loss.clone()

    def backward(
        self, widths: tuple[int, ...], batch: Batch, answers: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Add one network's part to the gradients: by the labels, or by the widest's answers.
        Returns its loss and its own answers.
        """
        with self.precision():
            logits = self.net(batch.x, widths)
        if answers is None:
            loss = mixed_loss(logits, batch, self.on.smoothing)
        else:
            loss = distilled(logits, answers, self.on.temperature)
        # the mean of the sandwich, so that a rate means what it does for one network
        torch._foreach_add_(self.grads, torch.autograd.grad(loss / NETWORKS, self.weights))
        return loss.detach(), logits.detach()

    def precision(self) -> torch.autocast:
        """bfloat16 on a GPU: as wide a range as float32, so losses need no scaling."""
        kind = self.device.partition(":")[0]
        return torch.autocast(
            kind, dtype=torch.bfloat16, enabled=kind == "cuda", cache_enabled=False
        )


class Recorded:
    """Runs a pass as a CUDA graph: launching its thousand small kernels one by one takes the host
    several times longer than the GPU needs to run them.

    A tuple of widths runs as it is when first met, which lets the libraries choose their kernels;
    the second time it is recorded, and replayed from then on. All recordings share one pool of
    memory, so inputs and results lie outside it.
    """

    def __init__(self, run: Callable[..., tuple[Tensor, Tensor]]) -> None:
        self.run = run
        self.graphs: dict[tuple[tuple[int, ...], bool], torch.cuda.CUDAGraph | None] = {}
        self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        self.batch: Batch | None = None

    def __call__(
        self, widths: tuple[int, ...], batch: Batch, answers: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        key = widths, answers is None
        if key not in self.graphs:
            self.graphs[key] = None
            loss, logits = self.run(widths, batch, answers)
            if self.batch is None:
                self.batch = Batch(*(value.clone() for value in batch))
                self.loss, self.answers = loss.clone(), logits.clone()
            if answers is None:
                self.answers.copy_(logits)
            return loss, self.answers
        assert self.batch is not None  # set by the first pass
        if answers is None:  # the widest comes first and brings a new batch
            for held, value in zip(self.batch, batch):
                held.copy_(value)
        graph = self.graphs[key] or self.record(widths, answers is None)
        self.graphs[key] = graph
        graph.replay()
        return self.loss, self.answers

    def record(self, widths: tuple[int, ...], widest: bool) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool)
            loss, logits = self.run(widths, self.batch, None if widest else self.answers)
            if widest:
                self.loss.copy_(loss)
                self.answers.copy_(logits)
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)
        return graph


def sandwich(rng: np.random.Generator) -> tuple[tuple[int, ...], ...]:
    """The widest, the slimmest and two of random mixed widths."""
    drawn = rng.integers(len(TUPLES), size=2)
    return WIDEST, SLIMMEST, *(TUPLES[row] for row in drawn)


def distilled(slim: Tensor, wide: Tensor, temperature: float) -> Tensor:
    """Mean divergence from the widest network's answers, of a size that no temperature changes."""
    ours = F.log_softmax(slim / temperature, dim=1)
    theirs = F.log_softmax(wide / temperature, dim=1)
    return F.kl_div(ours, theirs, reduction="batchmean", log_target=True) * temperature**2


def rate_at(progress: float, on: Settings) -> float:
    """The learning rate: up in a line, then down by a cosine to 0."""
    if progress < on.warmup:
        return on.learning_rate * (progress + 0.02 * on.warmup) / (1.02 * on.warmup)
    return (
        on.learning_rate * 0.5 * (1 + math.cos(math.pi * (progress - on.warmup) / (1 - on.warmup)))
    )


@torch.no_grad()
def accuracies(
    net: SlimResNet,
    pixels: Array,
    labels: Array,
    tuples: Sequence[tuple[int, ...]] = TUPLES,
    batch: int = 500,
) -> Array:
    """(tuples,) share of the pictures that each tuple of widths gets right.

    Tuples that begin alike share those segments: all 256 cost 340 segments a batch, not 1,024. In
    float32, as servers run it.
    """
    device = str(net.head.weight.device)
    right = torch.zeros(len(tuples), dtype=torch.int64, device=device)
    rows = {widths: row for row, widths in enumerate(tuples)}

    def descend(x: Tensor, y: Tensor, begun: tuple[int, ...]) -> None:
        depth = len(begun)
        if depth == SEGMENTS:
            right[rows[begun]] += (net.classify(x).argmax(1) == y).sum()
            return
        for width in sorted({one[depth] for one in rows if one[:depth] == begun}):
            before = begun[-1] if begun else width
            descend(net.segment(depth, x, before, width), y, (*begun, width))

    whole = Images(pixels, labels, ())
    for x, y in batches_of(whole, batch, device):
        descend(x, y, ())
    found: Array = right.cpu().numpy() / len(labels)
    return found


def train(
    learner: Learner,
    feed: Feed,
    held: Images,
    *,
    looks: int = 10,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Progress]:
    """Train to the end or to `stop`, measuring `looks` times on held images in equal parts of the
    training, and at its end. Measuring costs none of the training's minutes.
    """
    began_s, start = clock(), learner.step
    losses: list[Tensor] = []
    speed_hz, wanted = math.nan, math.floor(learner.progress * looks) + 1
    while learner.progress < 1.0 and not stop():
        before_s, before = clock(), learner.step
        # the clock is read every few steps: a GPU runs behind its host, by less than this
        while learner.step < before + 10 and learner.progress < 1.0:
            losses.append(learner.update(feed.at(learner.step)))
        losses[-1].item()
        spent_s = clock() - before_s
        learner.spent_s += spent_s
        speed_hz = (learner.step - before) * feed.batch / max(spent_s, 1e-9)
        looked = learner.progress * looks >= wanted
        right, loss = [math.nan] * len(UNIFORM), math.nan
        if looked:
            wanted = math.floor(learner.progress * looks) + 1
            right = accuracies(learner.kept, held.pixels, held.labels, UNIFORM).tolist()
            loss, losses = float(torch.stack(losses).mean()), []
            if not math.isfinite(loss):
                raise ServeError(
                    f"learning_rate={learner.on.learning_rate}: the loss is {loss} at step "
                    f"{learner.step}; give a smaller one"
                )
        if looked or learner.step - start <= 10 or learner.step % 100 < 10:
            steps = round(learner.step / max(learner.progress, 1e-9))
            rights = dict(zip(RIGHTS, right))
            wall_s = clock() - began_s
            yield Progress(learner.step, steps, loss, **rights, images_hz=speed_hz, wall_s=wall_s)
