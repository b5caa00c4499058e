"""A network for the queue window that scores every waiting job alike, for sb3-contrib.

MaskablePPO(RowPolicy, VecEnv(16, trace="log.swf.gz", part="train")).learn(...)

A plain policy of Stable-Baselines3 has weights of its own for each place in line, and has to learn
one by one that a short job is short. Here one small network reads each row beside the mean of all.
"""

from __future__ import annotations

from typing import Any

import torch
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from trimtab.codecs.queue import WAITS, WIDTH

HIDDEN = 32  # numbers a row


class RowFeatures(BaseFeaturesExtractor):
    """Every row through one network, then their mean: (B, (window + 1) x HIDDEN)."""

    def __init__(self, space: Any) -> None:
        window = space["observation"].shape[0]
        super().__init__(space, (window + 1) * HIDDEN)
        self.row = nn.Sequential(
            nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh()
        )

    def forward(self, seen: dict[str, Tensor]) -> Tensor:
        rows = seen["observation"]  # (B, window, WIDTH)
        waits = rows[..., WAITS : WAITS + 1]
        read = self.row(rows) * waits
        mean = read.sum(1, keepdim=True) / waits.sum(1, keepdim=True).clamp(min=1.0)
        return torch.cat((read, mean), dim=1).flatten(1)


class RowScores(nn.Module):
    """The logit of starting each row, and of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Sequential(nn.Linear(2 * HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        self.wait = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))

    def forward(self, features: Tensor) -> Tensor:
        read = features.unflatten(1, (-1, HIDDEN))
        rows, mean = read[:, :-1], read[:, -1]
        beside = torch.cat((rows, mean.unsqueeze(1).expand_as(rows)), dim=2)
        return torch.cat((self.start(beside).squeeze(2), self.wait(mean)), dim=1)


class RowValue(nn.Module):
    """What the mean of all rows is worth."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(HIDDEN, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, features: Tensor) -> Tensor:
        worth: Tensor = self.mean(features[:, -HIDDEN:])
        return worth


class RowPolicy(MaskableMultiInputActorCriticPolicy):
    """Actor and critic of trimtab/Queue-v0 with these networks, for MaskablePPO."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        own = {"features_extractor_class": RowFeatures, "net_arch": [], "ortho_init": False}
        own["share_features_extractor"] = False
        super().__init__(*args, **{**settings, **own})

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.add_module("action_net", RowScores())
        self.add_module("value_net", RowValue())
        settings = {"lr": lr_schedule(1), **self.optimizer_kwargs}
        self.optimizer = self.optimizer_class(self.parameters(), **settings)
