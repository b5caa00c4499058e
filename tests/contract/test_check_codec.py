"""check_codec passes a small codec and names the rule that a broken one breaks."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from trimtab.codecs.grid import GridCodec
from trimtab.codecs.queue import QueueCodec
from trimtab.core import Start
from trimtab.rules.room import Room
from trimtab.testing import check_codec

NODES, WINDOW = 4, 5


class Small:
    """The first jobs of the queue times the nodes, and one action that waits."""

    def spaces(self):
        return Box(-1.0, 1.0, (NODES + WINDOW,), np.float32), Discrete(WINDOW * NODES + 1)

    def encode(self, snapshot):
        out = np.full(NODES + WINDOW, -1.0, np.float32)
        out[:NODES] = snapshot.free[:, 0] / snapshot.capacity[:, 0]
        first = snapshot.queue[:WINDOW]
        out[NODES : NODES + len(first)] = snapshot.demand[first, 0] / 16
        return out

    def mask(self, snapshot):
        mask = np.zeros(WINDOW * NODES + 1, bool)
        room = Room.of(snapshot)
        for i, job in enumerate(snapshot.queue[:WINDOW]):
            needs = snapshot.state["left"][job] if snapshot.jobs["gang"][job] else 1
            mask[i * NODES : (i + 1) * NODES] = room.slots(job) >= needs
        mask[-1] = True
        return mask

    def decode(self, action, snapshot):
        if action == WINDOW * NODES:
            return []
        job = int(snapshot.queue[action // NODES])
        count = int(snapshot.state["left"][job]) if snapshot.jobs["gang"][job] else 1
        return [Start(job, (action % NODES,) * count)]


@pytest.mark.parametrize(
    "codec", [Small(), QueueCodec(window=16), GridCodec(nodes=NODES, resources=3)]
)
def test_a_codec_that_keeps_the_rules_passes(codec):
    check_codec(codec)


class Unbounded(Small):
    def encode(self, snapshot):
        return super().encode(snapshot) * 100


class Doubles(Small):
    def encode(self, snapshot):
        return super().encode(snapshot).astype(np.float64)[:3]


class Short(Small):
    def mask(self, snapshot):
        return super().mask(snapshot)[:-1]


class Stuck(Small):
    def mask(self, snapshot):
        return np.zeros(WINDOW * NODES + 1, bool)


class Eager(Small):
    """Allows every node to every job that waits."""

    def mask(self, snapshot):
        waiting = np.arange(WINDOW) < len(snapshot.queue)
        return np.append(np.repeat(waiting, NODES), True)


class Shy(Small):
    def mask(self, snapshot):
        return super().mask(snapshot) & (np.arange(WINDOW * NODES + 1) != 0)


class Random(Small):
    def encode(self, snapshot):
        return np.random.default_rng().random(NODES + WINDOW).astype(np.float32)


@pytest.mark.parametrize(
    ("codec", "words"),
    [
        (Unbounded, r"encode returned an array \(9,\) of float32 .* which is not in Box"),
        (Doubles, "encode returned .* which is not in Box"),
        (Short, r"mask is an array \(20,\) of bool .* want \(21,\)"),
        (Stuck, "the mask allows no action"),
        (Eager, r"the mask allows action \d+, but Start.* is refused"),
        (Shy, r"the mask forbids action 0, but .* would be accepted"),
        (Random, "encodes one snapshot differently twice"),
    ],
)
def test_a_broken_codec_fails_with_the_rule_it_breaks(codec, words):
    with pytest.raises(AssertionError, match=words):
        check_codec(codec())


def test_a_mask_that_forbids_more_than_it_must_passes_where_that_is_meant():
    check_codec(Shy(), exact=False)
