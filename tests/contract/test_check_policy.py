"""check_policy passes what keeps the protocol and names the rule that the rest breaks."""

from dataclasses import replace

import numpy as np
import pytest

from trimtab.core import Reject, Start, Stop, Wait
from trimtab.live.fake import held_by
from trimtab.policies import named
from trimtab.rules.room import Room
from trimtab.testing import check_policy


class FirstFit:
    """Starts whatever fits, oldest first."""

    def decide(self, snapshot):
        room = Room.of(snapshot)
        picked = ((job, room.pick(job)) for job in snapshot.queue)
        return [room.start(job, nodes) for job, nodes in picked if nodes]


@pytest.mark.parametrize(
    "name",
    [
        "fcfs",
        "sjf+easy+best",
        "fcfs+conservative",
        "drf+random",
        "wfp3+easy+cosine",
        "srtf",
        "las+frag",
    ],
)
def test_a_rule_passes(name):
    check_policy(named(name))


def test_what_makes_a_policy_from_a_seed_passes():
    check_policy(lambda seed: named("fcfs+random", seed))


def test_a_policy_of_ten_lines_passes():
    check_policy(FirstFit())


class Mutates(FirstFit):
    def decide(self, snapshot):
        made = super().decide(snapshot)
        for start in made:
            snapshot.free[list(start.nodes)] -= snapshot.demand[start.job]
        return made


class Forgets(FirstFit):
    """Looks at what is free now for every job, as if the others were not there."""

    def decide(self, snapshot):
        return [d for job in snapshot.queue for d in self.one(snapshot, job)]

    def one(self, snapshot, job):
        room = Room.of(snapshot)
        nodes = room.pick(job)
        return [room.start(job, nodes)] if nodes else []


class Moody(FirstFit):
    def decide(self, snapshot):
        made = super().decide(snapshot)
        return made if np.random.default_rng().random() < 0.5 else made[::-1]


class Words(FirstFit):
    def decide(self, snapshot):
        return [f"start {decision.job}" for decision in super().decide(snapshot)]


class Silent(FirstFit):
    def decide(self, snapshot):
        super().decide(snapshot)


class OffByOne(FirstFit):
    def decide(self, snapshot):
        return [replace(d, nodes=(len(snapshot.nodes),)) for d in super().decide(snapshot)]


class Foresees(FirstFit):
    """Names a job that has not been submitted."""

    def decide(self, snapshot):
        unknown = np.flatnonzero(snapshot.jobs["instances"] == 0)
        return [Reject(int(unknown[0]))] if len(unknown) else super().decide(snapshot)


class Lazy(FirstFit):
    def decide(self, snapshot):
        return [Wait()]


class Fickle:
    """Stops what it has started and starts it again at once."""

    def decide(self, snapshot):
        for job in snapshot.runs["job"][snapshot.running].tolist():
            held = held_by(snapshot, job)
            if len(held) == 1:
                return [Stop(job), Start(job, held[0].nodes)]
        return FirstFit().decide(snapshot)


class Raises(FirstFit):
    def decide(self, snapshot):
        return [Start(0, (0,))] if snapshot.now_s > 1e9 else 1 / 0


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Mutates(), r"changes the snapshot it is shown \(free\)"),
        (Forgets(), "overbooks: .* account for your earlier decisions"),
        (Moody(), "decides differently the second time .* take randomness from a seed"),
        (Words(), "'start 0', which is not a decision"),
        (Silent(), "returns None, want a list of decisions"),
        (OffByOne(), "names a node that does not exist; there are 4"),
        (Foresees(), "names a job that does not exist"),
        (Lazy(), r"leaves jobs \[0\] waiting while nothing will happen"),
        (Fickle(), "stops and starts jobs for ever at one instant"),
        (object(), "has no decide"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_broken_policy_fails_with_the_rule_it_breaks(policy, words):
    with pytest.raises(AssertionError, match=words):
        check_policy(policy)


def test_a_policy_that_raises_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        check_policy(Raises())
