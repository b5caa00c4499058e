"""Deep Q-network over the node grid (ADLRO sec. 3.3, 4): what it sees, and a trained one at work.

named("dqn:run/dqn.onnx")        made by `trimtab train dqn --out run`

Runs by onnxruntime, without torch. Training is in `dqn_learner`; how this differs from the paper
is in docs/policies/adlro-dqn.md.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.arrays import Array
from trimtab.codecs.grid import SINGLE, GridCodec
from trimtab.codecs.queue import PRIORITY, WIDTH
from trimtab.core import Decision, Snapshot, Start, Wait
from trimtab.errors import PolicyError
from trimtab.policies.networks import file_at, opened

MODES = ("full", "paper")
TRUNKS = ("cnn", "set")
LOAD = 1  # channel of the grid: the utilisation that the paper's state holds
OPSET = 17  # of the ONNX file: every runtime since 2022 has it


@dataclass(frozen=True)
class Layout:
    """What a network sees: a table of nodes, a table of waiting jobs, and a mask of its actions.

    full: all channels of the grid codec and all features of a window of jobs. paper: one channel,
    the nodes' utilisation; one job, the oldest, as queue length, priority and its kind one-hot.
    """

    mode: str
    trunk: str
    nodes: int
    resources: int
    window: int
    kinds: int  # of jobs

    @property
    def channels(self) -> int:
        return 1 if self.mode == "paper" else SINGLE + self.resources + self.window

    @property
    def features(self) -> int:
        return 2 + self.kinds if self.mode == "paper" else WIDTH

    @property
    def speeds(self) -> int:
        """How many of the channels are the speeds of the window's jobs."""
        return 0 if self.mode == "paper" else self.window

    @property
    def actions(self) -> int:
        return self.window * self.nodes + 1

    @property
    def size(self) -> int:
        return self.nodes * self.channels + self.window * self.features

    def codec(self) -> GridCodec:
        return GridCodec(self.nodes, self.resources, self.window)

    def split(self, flat: Array) -> tuple[Array, Array]:
        """(B, nodes, channels) and (B, window, features) of flat rows, as views."""
        cut = self.nodes * self.channels
        return (
            flat[:, :cut].reshape(-1, self.nodes, self.channels),
            flat[:, cut:].reshape(-1, self.window, self.features),
        )

    def seen(self, flat: Array, waiting: Array, kind: Array) -> Array:
        """The network's (B, size) from the grid codec's (B, ..).

        `waiting` (B,) counts the jobs that wait; `kind` (B,) is that of the first.
        """
        if self.mode == "full":
            return flat
        grid, rows = self.codec().split(flat)
        length = waiting / (waiting + self.nodes)
        priority = (1.0 + rows[:, 0, PRIORITY]) / 2
        one_hot = (kind[:, None] == np.arange(self.kinds)) & (waiting[:, None] > 0)
        parts = (grid[:, :, LOAD], length[:, None], priority[:, None], one_hot)
        return np.concatenate(parts, axis=1, dtype=np.float32, casting="unsafe")


def seen_now(layout: Layout, codec: GridCodec, snapshot: Snapshot) -> tuple[Array, Array]:
    """(1, size) and the mask (1, actions) of a snapshot, the same as in training."""
    flat, mask = codec._look(snapshot)
    waiting = np.array([len(snapshot.queue)])
    head = snapshot.queue[0] if len(snapshot.queue) else 0
    kind = snapshot.jobs["kind"][head : head + 1]
    return layout.seen(flat[None], waiting, kind), mask[None]


class DqnPolicy:
    """A trained network by its file. Trunk `cnn` fits only clusters of the size it was trained on,
    trunk `set` any with as many resources.
    """

    def __init__(self, path: str | Path, seed: int = 0) -> None:
        self.path = file_at(path, "dqn")
        self.name = f"dqn:{self.path.name}"
        self._session, self.told = opened(self.path, "dqn")
        self.trained = Layout(**json.loads(self.told["layout"]))
        self._layout: Layout | None = None

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """One start, and a wish to be asked again at once: the next one sees what it changed."""
        layout, codec = self._fit(snapshot)
        if not len(snapshot.queue):
            return []
        seen, mask = seen_now(layout, codec, snapshot)
        if not mask[0, :-1].any():
            return []
        grid, rows = layout.split(seen)
        fed = {"grid": grid, "rows": rows, "mask": mask.astype(np.float32)}
        action = int(self._session.run(["q"], fed)[0][0].argmax())
        made = codec.decode(action, snapshot)
        if not isinstance(made[0], Start):
            return []
        return [*made, Wait(snapshot.now_s)]

    def __deepcopy__(self, memo: dict[int, Any]) -> DqnPolicy:
        return DqnPolicy(self.path)  # a session cannot be copied

    def _fit(self, snapshot: Snapshot) -> tuple[Layout, GridCodec]:
        """The layout of this cluster, checked once against the one of the training."""
        nodes, resources = snapshot.capacity.shape
        if self._layout is None or (nodes, resources) != (
            self._layout.nodes,
            self._layout.resources,
        ):
            self.suits(nodes, resources, snapshot.profile.rate.shape[0])
            self._layout = Layout(**asdict(self.trained) | {"nodes": nodes, "resources": resources})
            self._codec = self._layout.codec()
        return self._layout, self._codec

    def suits(self, nodes: int, resources: int, kinds: int) -> None:
        """Raise for a cluster that the network cannot see, or kinds of job that it cannot."""
        path, trained = self.path, self.trained
        if trained.trunk == "cnn" and nodes != trained.nodes:
            raise PolicyError(
                f"{path}: a network with trunk=cnn for {trained.nodes} nodes, and this cluster has "
                f"{nodes}; train it for this cluster, or with --set trunk=set for any size"
            )
        if trained.mode == "full" and resources != trained.resources:
            raise PolicyError(
                f"{path}: a network for {trained.resources} resources, and this cluster has "
                f"{resources}; train it for this cluster"
            )
        if trained.mode == "paper" and kinds != trained.kinds:
            raise PolicyError(
                f"{path}: a network for {trained.kinds} kinds of job, and there are {kinds}; "
                "train it for these jobs, or with --set mode=full"
            )
