"""The networks of the DQN in torch, and their export to ONNX. Only training loads this file."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from trimtab.arrays import Array
from trimtab.files import whole
from trimtab.policies.dqn.policy import OPSET, Layout

FILTERS, REACH = 32, 3  # of a convolution: outputs, and nodes that one of them sees
PAIR = 32  # width of a (job, node) pair in trunk `set`


class QNet(nn.Module):
    """Q of every (job of the window, node) and of waiting; -inf where the mask is 0.

    Inputs are `grid` (B, N, channels), `rows` (B, W, features) and `mask` (B, W N + 1). They are
    first shifted and scaled to what the first experience had (`measure`). Dueling gives
    value + advantage less its mean over legal actions (Wang et al., 2016).
    """

    grid_shift: Tensor  # (channels,)
    grid_scale: Tensor
    rows_shift: Tensor  # (features,)
    rows_scale: Tensor

    def __init__(self, layout: Layout, *, dueling: bool = True, hidden: int = 128) -> None:
        super().__init__()
        self.layout, self.dueling = layout, dueling
        self.trunk = (SetTrunk if layout.trunk == "set" else CnnTrunk)(layout, hidden)
        for name, width in (("grid", layout.channels), ("rows", layout.features)):
            self.register_buffer(f"{name}_shift", torch.zeros(width))
            self.register_buffer(f"{name}_scale", torch.ones(width))

    def measure(self, seen: Array) -> None:
        """Take shift and scale by column from rows (B, size), the same for every node and job."""
        for name, table in zip(("grid", "rows"), self.layout.split(seen)):
            flat = table.reshape(-1, table.shape[-1]).astype(np.float64)
            shift, spread = flat.mean(0), flat.std(0)
            if name == "grid" and self.layout.speeds:  # of one kind, whatever the job's turn
                speeds = flat[:, -self.layout.speeds :]
                shift[-self.layout.speeds :] = speeds.mean()
                spread[-self.layout.speeds :] = speeds.std()
            # a column that never moved says nothing yet: it stays as it is
            scale = np.where(spread > 1e-3, 1 / np.maximum(spread, 1e-3), 1.0)
            self.get_buffer(f"{name}_shift").copy_(torch.as_tensor(shift))
            self.get_buffer(f"{name}_scale").copy_(torch.as_tensor(scale))

    def forward(self, grid: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        grid = (grid - self.grid_shift) * self.grid_scale
        rows = (rows - self.rows_shift) * self.rows_scale
        advantage, value = self.trunk(grid, rows)
        legal = mask > 0
        if self.dueling:
            some = torch.where(legal, advantage, 0.0).sum(1, keepdim=True)
            count = legal.sum(1, keepdim=True).clamp(min=1)
            advantage = advantage - some / count + value
        return torch.where(legal, advantage, -torch.inf)

    def of(self, seen: Array, mask: Array) -> Tensor:
        """Q (B, actions) of flat rows."""
        device = self.grid_shift.device
        parts = (np.ascontiguousarray(part) for part in (*self.layout.split(seen), mask))
        made: Tensor = self(*(torch.as_tensor(part).to(device) for part in parts))
        return made


class CnnTrunk(nn.Module):
    """The paper's: convolutions along the nodes, then two fully connected layers."""

    def __init__(self, layout: Layout, hidden: int) -> None:
        super().__init__()
        around = REACH // 2
        self.backbone = nn.Sequential(
            nn.Conv1d(layout.channels, FILTERS, REACH, padding=around),
            nn.ReLU(),
            nn.Conv1d(FILTERS, FILTERS, REACH, padding=around),
            nn.ReLU(),
            nn.Flatten(),
        )
        width = FILTERS * layout.nodes + layout.window * layout.features
        self.first = nn.Linear(width, hidden)
        self.advantage, self.value = nn.Linear(hidden, layout.actions), nn.Linear(hidden, 1)

    def forward(self, grid: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        spatial = self.backbone(grid.transpose(1, 2))
        both = torch.relu(self.first(torch.cat((spatial, rows.flatten(1)), 1)))
        return self.advantage(both), self.value(both)


class SetTrunk(nn.Module):
    """One network for every node, one for every job, pooled: the nodes' order and number are free.

    A pair sees its node, its job, the job's speed there and the pools.
    """

    def __init__(self, layout: Layout, hidden: int) -> None:
        super().__init__()
        self.speeds = layout.speeds
        told = 2 if layout.speeds else 0  # a job's best and mean speed, of where it fits
        self.node = rows_net(layout.channels - layout.speeds, PAIR)
        self.job = rows_net(layout.features + told, PAIR)
        self.pool = rows_net(4 * PAIR, hidden)
        self.near = nn.Linear(hidden, PAIR)
        self.speed = nn.Parameter(torch.zeros(PAIR))
        nn.init.normal_(self.speed, std=PAIR**-0.5)
        self.worth = nn.Linear(PAIR, 1)
        self.wait, self.value = nn.Linear(hidden, 1), nn.Linear(hidden, 1)

    def forward(self, grid: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        if self.speeds:
            speed = grid[:, :, -self.speeds :].transpose(1, 2)  # (B, W, N)
            grid = grid[:, :, : -self.speeds]
            rows = torch.cat((rows, speed.amax(2)[..., None], speed.mean(2)[..., None]), 2)
        node, job = self.node(grid), self.job(rows)
        pools = (node.mean(1), node.amax(1), job.mean(1), job.amax(1))
        pool = self.pool(torch.cat(pools, 1))
        pair = job[:, :, None] + node[:, None] + self.near(pool)[:, None, None]
        if self.speeds:
            pair = pair + speed[..., None] * self.speed
        worth = self.worth(torch.relu(pair)).flatten(1)
        return torch.cat((worth, self.wait(pool)), 1), self.value(pool)


def rows_net(width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, out), nn.ReLU(), nn.Linear(out, out), nn.ReLU())


def export(model: QNet, path: str | Path, command: str = "", **about: str) -> None:
    """Write the network as ONNX, whole or not at all, with all that `DqnPolicy` must know.

    Trunk `set` keeps the number of nodes free.
    """
    import onnx

    layout = model.layout
    free = {0: "batch"}
    nodes = {1: "nodes"} if layout.trunk == "set" else {}
    actions = {1: "actions"} if nodes else {}
    copy = QNet(layout, dueling=model.dueling, hidden=model.trunk.value.in_features)
    copy.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
    shapes = ((layout.nodes, layout.channels), (layout.window, layout.features), (layout.actions,))
    with whole(path) as part, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the other exporter needs two more packages
        torch.onnx.export(
            copy.eval(),
            tuple(torch.ones(2, *shape) for shape in shapes),
            str(part),
            dynamo=False,
            opset_version=OPSET,
            input_names=["grid", "rows", "mask"],
            output_names=["q"],
            dynamic_axes={"grid": free | nodes, "rows": free, "mask": free | actions, "q": free},
        )
        made = onnx.load(part)
        told = {"layout": json.dumps(asdict(layout)), "command": command, **about}
        onnx.helper.set_model_props(made, told)
        onnx.save(made, part)
