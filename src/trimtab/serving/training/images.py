"""Labelled small images: reading them into arrays, and drawing augmented batches of them in torch.

Two layouts are read. A folder of classes: `train/<class>/<name>.png`, `test/<class>/<name>.png`.
A folder of tar files, `train*.tar` and `test*.tar`, in which one sheet a class,
`<number>_<class>.webp`, holds its images row by row in a grid: few files, and smaller ones.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from trimtab.arrays import Array
from trimtab.errors import ServeError

PICTURES = (".png", ".webp", ".jpg", ".jpeg", ".bmp")
PAD = 4  # pixels that a crop may move: the usual eighth of 32
JITTER = 0.2  # brightness, contrast and saturation move by up to this share
GREY = (0.299, 0.587, 0.114)  # luminance of red, green and blue


class Images(NamedTuple):
    """Pictures of one size with their classes."""

    pixels: Array  # (N, side, side, 3) uint8
    labels: Array  # (N,) int64, rows of `classes`
    classes: tuple[str, ...]


class Batch(NamedTuple):
    """Augmented pictures; a mixed one belongs to two classes."""

    x: Tensor  # (B, 3, side, side) float32 in 0..1
    first: Tensor  # (B,) int64
    second: Tensor  # (B,) int64
    share: Tensor  # (B,) of the first class


def read_images(folder: str | Path, part: str, side: int = 32) -> Images:
    """The pictures of `train` or `test` in a folder, of tar files or of one folder a class."""
    folder = Path(folder)
    tars = sorted(folder.glob(f"{part}*.tar"))
    if tars:
        sheets = [one for tar in tars for one in _tarred(tar)]
    elif (folder / part).is_dir():
        sheets = list(_filed(folder / part))
    else:
        raise ServeError(
            f"{folder}: neither {part}*.tar nor a folder {part} of one folder a class is there; "
            "give a folder that has one of them"
        )
    classes = tuple(sorted({name for name, _, _ in sheets}))
    if len(classes) < 2:
        raise ServeError(f"{folder}: {part} has {len(classes)} classes; give pictures of 2 or more")
    row = {name: number for number, name in enumerate(classes)}
    tiles = [_tiles(content, path, side) for _, path, content in sheets]
    labels = [np.full(len(one), row[name]) for one, (name, _, _) in zip(tiles, sheets)]
    plain = tuple(name.partition("_")[2] if name[0].isdigit() else name for name in classes)
    return Images(np.concatenate(tiles), np.concatenate(labels), plain)


def _tarred(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """(class, path, content) of every sheet in a tar file."""
    try:
        with tarfile.open(path) as tar:
            members = [one for one in tar if one.isfile() and one.name.endswith(PICTURES)]
            for member in sorted(members, key=lambda one: one.name):
                file = tar.extractfile(member)
                assert file is not None  # it is a file
                yield Path(member.name).stem, f"{path}:{member.name}", file.read()
    except (tarfile.TarError, EOFError) as problem:
        raise ServeError(f"{path}: not a whole tar file ({problem}); fetch it again") from problem


def _filed(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """(class, path, content) of every picture in a folder of classes."""
    for path in sorted(folder.glob("*/*")):
        if path.suffix.lower() in PICTURES:
            yield path.parent.name, str(path), path.read_bytes()


def _tiles(content: bytes, path: str, side: int) -> Array:
    """(n, side, side, 3) of the pictures in one file, row by row."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError as missing:
        raise ServeError(f"{path}: reading it needs Pillow; pip install pillow") from missing
    try:
        with Image.open(io.BytesIO(content)) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError) as problem:
        raise ServeError(f"{path}: not a picture ({problem}); remove it or fetch it again") from (
            problem
        )
    high, wide = pixels.shape[:2]
    if high % side or wide % side:
        raise ServeError(
            f"{path}: {wide} x {high} pixels are no grid of pictures of side={side}; "
            "give the side that they have, or scale them"
        )
    grid = pixels.reshape(high // side, side, wide // side, side, 3)
    return grid.swapaxes(1, 2).reshape(-1, side, side, 3)


def mean_and_spread(pixels: Array) -> tuple[list[float], list[float]]:
    """Of each colour over all pictures, on the scale 0..1."""
    # sums of whole numbers: exact, and without a copy as float of every pixel
    counts = [np.bincount(pixels[..., colour].ravel(), minlength=256) for colour in range(3)]
    levels = np.arange(256) / 255.0
    means = [float(count @ levels / count.sum()) for count in counts]
    squares = [float(count @ levels**2 / count.sum()) for count in counts]
    spreads = [max(square - mean**2, 1e-6) ** 0.5 for mean, square in zip(means, squares)]
    return means, spreads


class Feed:
    """Draws augmented batches; the batch of a step is a function of the seed and the step alone.

    The pictures lie on the device, padded once; a crop and a flip are then one gather.
    """

    def __init__(self, images: Images, batch: int, mix: float, seed: int, device: str) -> None:
        if not 1 <= batch <= len(images.labels):
            raise ServeError(
                f"batch={batch}: there are {len(images.labels)} pictures; give a batch of 1 to that"
            )
        self.batch, self.mix, self.seed = batch, mix, seed
        self.side, self.pad = images.pixels.shape[1], min(PAD, images.pixels.shape[1] // 8)
        edge = (self.pad, self.pad)
        padded = np.pad(images.pixels, ((0, 0), edge, edge, (0, 0)), mode="reflect")
        self.pixels = torch.from_numpy(padded).to(device)
        self.labels = torch.from_numpy(np.asarray(images.labels, np.int64)).to(device)
        self.drawn = torch.Generator(device)
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def at(self, step: int) -> Batch:
        """The batch of a step: each picture once an epoch, in another order every time."""
        epoch, place = divmod(step, len(self.labels) // self.batch)
        if self._order[0] != epoch:
            order = np.random.default_rng([self.seed, epoch, 0]).permutation(len(self.labels))
            self._order = epoch, torch.from_numpy(order).to(self.labels.device)
        rows = self._order[1][place * self.batch : (place + 1) * self.batch]
        # one number of 63 bits from both, so that steps of different seeds do not meet
        drawn = np.random.default_rng([self.seed, step, 1]).integers(2**63)
        self.drawn.manual_seed(int(drawn))
        x = jittered(cropped(self.pixels, rows, self.side, self.pad, self.drawn), self.drawn)
        return mixed(x, self.labels[rows], self.mix, self.drawn)


def cropped(pixels: Tensor, rows: Tensor, side: int, pad: int, drawn: torch.Generator) -> Tensor:
    """(B, 3, side, side) in 0..1: a random crop of each padded picture, every other one flipped."""
    device, count = pixels.device, len(rows)
    place = torch.arange(side, device=device)
    moved = torch.randint(2 * pad + 1, (2, count, 1), generator=drawn, device=device)
    flip = torch.rand(count, 1, generator=drawn, device=device) < 0.5
    down = moved[0] + place
    across = moved[1] + torch.where(flip, side - 1 - place, place)
    found = pixels[rows[:, None, None], down[:, :, None], across[:, None, :]]
    # the colours stay last in memory, which is the order that tensor cores want
    return found.permute(0, 3, 1, 2).float().div_(255.0)


def jittered(x: Tensor, drawn: torch.Generator) -> Tensor:
    """Brightness, contrast and saturation moved a little in half of the pictures."""
    moved = torch.rand(3, len(x), 1, 1, 1, generator=drawn, device=x.device) * 2 - 1
    apply = torch.rand(len(x), 1, 1, 1, generator=drawn, device=x.device) < 0.5
    bright, contrast, colour = (1 + JITTER * moved * apply).unbind()
    grey = (x * torch.tensor(GREY, device=x.device).view(1, 3, 1, 1)).sum(1, keepdim=True)
    middle = grey.mean((2, 3), keepdim=True)
    x = torch.lerp(grey, x, colour)
    return ((middle + (x - middle) * contrast) * bright).clamp_(0.0, 1.0)


def mixed(x: Tensor, labels: Tensor, mix: float, drawn: torch.Generator) -> Batch:
    """A share `mix` of the pictures mixed with another of the batch: half of those blended (mixup),
    half with a rectangle of the other (cutmix), in proportions drawn evenly.
    """
    count, side, device = len(x), x.shape[-1], x.device
    other = torch.randperm(count, generator=drawn, device=device)
    kind, share, down, across = torch.rand(4, count, generator=drawn, device=device)
    blend, paste = kind < mix / 2, (kind >= mix / 2) & (kind < mix)
    high = torch.sqrt(1 - share) * side  # of the pasted square
    place = torch.arange(side, device=device)
    inside_down = (place - (down * side)[:, None]).abs() < high[:, None] / 2
    inside_across = (place - (across * side)[:, None]).abs() < high[:, None] / 2
    inside = inside_down[:, :, None] & inside_across[:, None, :] & paste[:, None, None]
    # of each pixel what stays; at the border a square is cut off, so the share is counted again
    stays = torch.where(inside, 0.0, 1.0)
    stays = torch.where(blend[:, None, None], share[:, None, None], stays)
    x = torch.lerp(x[other], x, stays[:, None])
    return Batch(x, labels, labels[other], stays.mean((1, 2)))


def mixed_loss(logits: Tensor, batch: Batch, smoothing: float) -> Tensor:
    """Cross entropy with both classes of every picture, by their shares."""
    first = F.cross_entropy(logits, batch.first, reduction="none", label_smoothing=smoothing)
    second = F.cross_entropy(logits, batch.second, reduction="none", label_smoothing=smoothing)
    return torch.lerp(second, first, batch.share).mean()


def batches_of(images: Images, size: int, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Plain (pictures in 0..1, labels), for measuring."""
    for start in range(0, len(images.labels), size):
        x: Any = torch.from_numpy(images.pixels[start : start + size]).to(device)
        y = torch.from_numpy(np.asarray(images.labels[start : start + size], np.int64)).to(device)
        yield x.permute(0, 3, 1, 2).float().div_(255.0), y
