"""Training of the universally slimmable network on a folder of pictures, and what it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from trimtab.errors import ServeError
from trimtab.serving.net.slim_net import SlimResNet, arrays_of, network
from trimtab.serving.net.slim_weights import as_stored, save
from trimtab.serving.training.images import Feed, Images, mean_and_spread, read_images
from trimtab.serving.training.slim_learner import Learner, Progress, Settings, accuracies, train
from trimtab.training.checkpoint import (
    device_of,
    log_to,
    read_checkpoint,
    stopped_by_key,
    write_checkpoint,
)

NETWORK = "slim.npz"
LOGGED = tuple(name for name in Progress._fields if name not in ("step", "steps", "wall_s"))
# may differ from the checkpoint's: a training may go on for longer, or on another machine
FREE = ("steps", "minutes", "compile", "channels_last")


def train_slim(
    out: str | Path,
    *,
    data: str = "",
    looks: int = 10,
    device: str = "auto",
    command: str = "",
    **settings: Any,
) -> Iterator[Progress]:
    """Train into the folder `out`; goes on where a checkpoint of the same settings lies there.

    `data` is a folder of pictures, see `read_images`. `out` gets checkpoint.pt, a log for
    TensorBoard where that is installed, and at the end slim.npz. Ctrl-C writes a checkpoint first.
    """
    out, on = Path(out), Settings(**settings).check()
    images, held = read_images(data, "train"), read_images(data, "test")
    if images.classes != held.classes:
        odd = sorted(set(images.classes) ^ set(held.classes)) or ["another order"]
        raise ServeError(f"{data}: train and test differ in classes: {odd[0]}; give both the same")
    device = device_of(device)
    made = {"data": len(images.labels), **asdict(on)}
    learner = Learner(on, fresh(on, images), device)
    before = read_checkpoint(out, made, FREE)
    if before:
        learner.load(before["learner"])
    feed = Feed(images, on.batch, on.mix, on.seed, device)
    with stopped_by_key() as pressed, log_to(out, learner.step) as log:
        for progress in train(learner, feed, held, looks=looks, stop=lambda: bool(pressed)):
            if progress.loss == progress.loss:
                log(progress.step, {name: getattr(progress, name) for name in LOGGED})
                write_checkpoint(out, made, {"learner": learner.state()})
            yield progress
        write_checkpoint(out, made, {"learner": learner.state()})
        if pressed:
            raise KeyboardInterrupt
    if learner.progress >= 1.0:
        write(out / NETWORK, learner, held, {"command": command, "recipe": made})


def fresh(on: Settings, images: Images) -> SlimResNet:
    """An untrained network for these pictures."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(on.seed)
        form = on.form(len(images.classes), images.pixels.shape[1])
        return SlimResNet(form, *mean_and_spread(images.pixels))


def write(path: Path, learner: Learner, held: Images, facts: dict[str, Any]) -> None:
    """The weight file, with every tuple's accuracy before and after quantisation."""
    arrays, form = arrays_of(learner.kept), learner.kept.form
    stored = network(form, as_stored(arrays)).to(learner.device)
    measured = {
        "accuracy_trained": accuracies(learner.kept, held.pixels, held.labels).round(4).tolist(),
        "accuracy_stored": accuracies(stored, held.pixels, held.labels).round(4).tolist(),
    }
    about = {
        "classes": list(held.classes),
        "steps": learner.step,
        "spent_s": round(learner.spent_s, 1),
        "test_images": len(held.labels),
    }
    save(path, form, arrays, {**facts, **about, **measured})
