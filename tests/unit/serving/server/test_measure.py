"""Measuring tells the median, the spread, the way and the power, and whence each is known."""

import numpy as np
import pytest

from trimtab.errors import ServeError
from trimtab.serving.net.segments import Segments
from trimtab.serving.net.serve_profile import modelled, time_of
from trimtab.serving.net.slim_form import Form
from trimtab.serving.net.slim_weights import Weights, shapes
from trimtab.serving.server.measure import WHOLE, measured, steps, wholes, with_power
from trimtab.serving.server.power import Model, Reading
from trimtab.serving.server.runners import tuned

HALF = np.full(256, 0.5)
TINY = Form(channels=(16, 16, 32, 32), group=4, classes=5, blocks=(1, 1, 1, 1), side=8)


class Ticking:
    """Segments and a clock in one: a run takes (1 + segment + width + count) ms, a whole network
    half of what its segments would.
    """

    def __init__(self):
        self.now_s, self.runs = 0.0, 0

    def clock(self):
        return self.now_s

    def run(self, segment, before, width, x):
        self.runs += 1
        slow = 50.0 if self.runs % 97 == 0 else 1.0  # a hiccup of the machine now and then
        self.now_s += slow * 1e-3 * (1 + segment + width + len(x))
        return x

    def through(self, segment, before, widths, x):
        needed = [1 + segment + after + width + len(x) for after, width in enumerate(widths)]
        self.now_s += 0.5e-3 * sum(needed)
        return x

    def load(self, segment, before, width):
        self.now_s += 0.5

    def unload(self, segment, before, width):
        return False

    def bytes_of(self, segment, before, width):
        return 1000 * (width + 1)

    def takes(self, segment, before):
        return (before + 1, 2, 2) if segment else (3, 4, 4)

    def resident(self, x):
        return x

    def stack(self, rows):
        return np.concatenate(rows)

    def fetched(self, x):
        return x


class Watts:
    """A meter that tells 10 W at rest and 70 W once the machine has worked."""

    source = "rapl"

    def __init__(self, ticking):
        self.ticking, self.last_s = ticking, ticking.now_s

    def read(self, utilisation=0.0):
        worked = self.ticking.now_s - self.last_s > 0.1
        self.last_s = self.ticking.now_s
        return Reading(70.0 if worked else 10.0, self.source)


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    arrays = {name: rng.random(shape, np.float32) for name, shape in shapes(TINY).items()}
    return Weights(TINY, arrays, {})


def test_measuring_takes_the_median_and_says_so():
    ticking = Ticking()
    made = measured(ticking, (1, 2, 4), 5, ticking.clock, accuracy=HALF)
    assert made.measured and "median of 5" in made.source
    assert time_of(made, 3, 0, 2, 2) == pytest.approx(1e-3 * (1 + 3 + 2 + 2))
    assert made.load_s[1, 2, 3] == pytest.approx(0.5)
    assert made.memory_b[1, 2, 3] == 4000
    assert made.input_mb[2, 3] == pytest.approx(4 * 4 * 2 * 2 / 1e6)
    assert (made.time_s[0, 0] == made.time_s[0, 3]).all()


def test_the_slow_times_hold_the_hiccups_that_the_median_leaves_out():
    ticking = Ticking()
    made = measured(ticking, (1, 2, 4), 5, ticking.clock, accuracy=HALF)
    assert (made.slow_s >= made.time_s * 0.999).all()
    assert (made.slow_s > 5 * made.time_s).any()


def test_every_step_of_measuring_is_told():
    ticking, done = Ticking(), []
    measured(
        ticking, (1, 2), 2, ticking.clock, accuracy=HALF, progress=lambda what, n: done.append(n)
    )
    assert sum(done) == steps(2)


def test_exported_segments_can_be_measured(weights):
    segments = Segments(weights)
    made = measured(segments, (1, 2), 1, accuracy=HALF)
    assert (made.time_s > 0).all() and (made.load_s > 0).all()
    assert made.memory_b[2, 1, 3] == segments.bytes_of(2, 1, 3)
    assert made.input_mb == pytest.approx(modelled(TINY).input_mb)
    assert made.way.size == 0


def test_the_way_of_every_cell_is_kept(weights):
    runners = tuned(weights, buckets=(1, 2), rounds=1)
    made = measured(runners, (1, 2), 1, accuracy=HALF)
    assert set(made.way.ravel()) <= {"onnx", "onnx-extended"}
    assert made.way[2, 1, 3, 1] == runners.way_of(2, 1, 3, 2)


def test_a_whole_network_is_set_beside_its_segments():
    ticking = Ticking()
    made = measured(ticking, (1, 2), 5, ticking.clock, accuracy=HALF)
    found = wholes(ticking, made, (1, 2), 3, ticking.clock)
    assert [(row.widths, row.rows) for row in found[:2]] == [(WHOLE[0], 1), (WHOLE[1], 1)]
    assert all(row.whole_s / row.sum_s == pytest.approx(0.5) for row in found)


def test_a_meters_watts_enter_the_profile():
    ticking = Ticking()
    made = measured(ticking, (1, 64), 1, ticking.clock, accuracy=HALF)

    def rest(seconds):
        ticking.now_s += seconds

    found = with_power(made, ticking, Watts(ticking), clock=ticking.clock, rest=rest)
    assert (found.idle_w, found.busy_w) == (10.0, 70.0)
    assert found.source.endswith("power by rapl")


def test_a_model_of_power_is_stated_as_one():
    found = with_power(modelled(), Ticking(), Model(5.0, 9.0))
    assert (found.idle_w, found.busy_w) == (5.0, 9.0)
    assert found.source.endswith("model of 5 W idle and 9 W busy: there is no meter")


def test_no_rounds_are_refused():
    with pytest.raises(ServeError, match="repeats=0"):
        measured(Ticking(), repeats=0, accuracy=HALF)
