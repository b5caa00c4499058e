"""check_backend passes our backends and names the rule that a broken one breaks."""

from dataclasses import replace

import pytest

from trimtab.core import Event, Reject, Resize, Start, Stop, Wait, What
from trimtab.live import backend_named
from trimtab.sim.backend import SimBackend
from trimtab.testing import check_backend


def test_the_simulator_passes():
    check_backend(SimBackend)


@pytest.mark.parametrize(
    "lags",
    [
        {"lag_s": 0.0, "late": 0.0, "lost": 0.0},
        {},
        {"late": 1.0, "lost": 0.3},
        {"late": 1.0, "lost": 0.3, "dropped": 0.1, "numbered": False},
    ],
    ids=str,
)
def test_a_lagging_cluster_passes(lags):
    check_backend(lambda workload, cluster: backend_named("fake")(workload, cluster, **lags))


def test_a_cluster_that_can_only_start_passes():
    class Plain(SimBackend):
        can = frozenset({Start, Wait})

        def apply(self, decision):
            if type(decision) in self.can:
                return super().apply(decision)
            job = getattr(decision, "job", -1)
            return Event(self.snapshot().now_s, What.REFUSED, job, reason="cannot")

    check_backend(Plain)


class Blind(SimBackend):
    """Shows after a start what was there before."""

    def apply(self, decision):
        self.old = super().snapshot()
        self.old = self.old._replace(free=self.old.free.copy())
        self.old.free.flags.writeable = False
        return super().apply(decision)

    def wait(self):
        self.old = None
        return super().wait()

    def snapshot(self):
        seen = super().snapshot()
        return seen._replace(free=self.old.free) if getattr(self, "old", None) else seen


class Raises(SimBackend):
    def apply(self, decision):
        answer = super().apply(decision)
        if answer.what == What.REFUSED:
            raise RuntimeError(answer.reason)
        return answer


class Mute(SimBackend):
    def apply(self, decision):
        return replace(super().apply(decision), reason="")


class Yes(SimBackend):
    def apply(self, decision):
        return replace(super().apply(decision), what=What.PLACED)


class Open(SimBackend):
    def snapshot(self):
        seen = super().snapshot()
        return seen._replace(free=seen.free.copy())


class Boasts(SimBackend):
    """Says that it can stop, and does not."""

    def apply(self, decision):
        if isinstance(decision, Stop):
            return Event(0.0, What.REFUSED, decision.job, reason="cannot")
        return super().apply(decision)


class Narrow(SimBackend):
    """Does what it says it cannot."""

    can = frozenset({Start, Stop, Resize, Reject})


class Back(SimBackend):
    def wait(self):
        events = super().wait()
        return events and [replace(event, time_s=-event.time_s) for event in events]


class Twice(SimBackend):
    def wait(self):
        events = super().wait()
        return events and [e for e in events for _ in range(1 + (e.what == What.FINISHED))]


class Spills(SimBackend):
    """Books something for a decision that it refuses."""

    def apply(self, decision):
        answer = super().apply(decision)
        if answer.what == What.REFUSED:
            self.world.free[0, 0, 0] -= 1
        return answer


class Endless(SimBackend):
    """Never says that all is over."""

    def wait(self):
        return super().wait() or []


class ClosedTwice(SimBackend):
    def close(self):
        del self.world


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        (Blind, "the very next snapshot does not show it: `free`"),
        (Raises, "apply raised RuntimeError .* a refusal is a REFUSED event"),
        (Mute, "the REFUSED event gives no reason"),
        (Yes, "is impossible and must be refused: apply answered"),
        (Open, "snapshots are read-only, but `free` can be written to"),
        (Boasts, "Stop is in `can`, but of a running job"),
        (Narrow, "Wait is not in `can` and must be refused"),
        (Back, "times of events never go back"),
        (Twice, "every job ends exactly once"),
        (Spills, "a refused decision changed the snapshot"),
    ],
)
def test_a_broken_backend_fails_with_the_rule_it_breaks(backend, words):
    with pytest.raises(AssertionError, match=words):
        check_backend(backend)


def test_a_backend_that_never_ends_fails_after_a_bounded_time(monkeypatch):
    monkeypatch.setattr("trimtab.testing.backend.MOST_INSTANTS", 500)
    with pytest.raises(AssertionError, match="are not over after 500 calls of wait"):
        check_backend(Endless)


def test_a_backend_that_cannot_be_closed_twice_fails():
    with pytest.raises(AttributeError):
        check_backend(ClosedTwice)
