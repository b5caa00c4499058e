"""GPU telemetry: what is believed, what is masked, and what is counted."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from trimtab.errors import TraceError
from trimtab.load import gpus as gpus_file
from trimtab.load.gpus import (
    CHANNELS,
    GpuSamples,
    GpuWatch,
    Past,
    between,
    checked,
    gpu_names,
    gpu_samples,
    read_nvml,
    replayed,
)
from trimtab.load.samples import Samples
from trimtab.traces.load.samples_file import load_samples, save_samples
from trimtab.traces.scenes.adlro import adlro_cluster
from trimtab.traces.scenes.cluster_file import read_cluster

NAN = np.nan
COLUMNS = GpuSamples._fields[:7]
SOUND = {"util": 0.5, "mem": 0.25, "temp_c": 60.0, "power_w": 200.0, "mem_bandwidth": 0.3}


def scrape(time_s: float = 0.0, *rows: dict, names=("a/0", "a/1")) -> GpuSamples:
    """One sample a GPU: the sound one with these changes."""
    changed = [SOUND | row for row in (rows or ({},) * len(names))]
    return gpu_samples(changed, names[: len(changed)], time_s)


def one(time_s: float, **changes: float) -> GpuSamples:
    return scrape(time_s, changes)


# --- checking a batch


def test_sound_samples_pass_unchanged():
    got, warnings = checked(scrape(1.0), Past())
    assert got.util.tolist() == [0.5, 0.5] and got.names == ("a/0", "a/1")
    assert not warnings


def test_nan_stays_nan_and_is_counted_by_channel():
    got, warnings = checked(
        scrape(1.0, {"util": NAN}, {"temp_c": NAN, "mem_bandwidth": NAN}), Past()
    )
    assert np.isnan(got.util).tolist() == [True, False]
    assert warnings == {"util: not measured": 1, "temp_c: not measured": 1}


@pytest.mark.parametrize(
    ("channel", "value"),
    [
        ("util", 1.01),
        ("util", -0.1),
        ("mem", 2.0),
        ("temp_c", 300.0),
        ("temp_c", -100.0),
        ("power_w", -1.0),
        ("power_w", float(2**63 - 14)),  # DCGM's blank
        ("mem_bandwidth", np.inf),
    ],
)
def test_a_value_that_no_gpu_can_have_is_masked(channel, value):
    got, warnings = checked(one(1.0, **{channel: value}), Past())
    assert np.isnan(getattr(got, channel)).all()
    assert warnings == {f"{channel}: out of range": 1}
    others = [name for name in CHANNELS if name != channel]
    assert not np.isnan([getattr(got, name) for name in others]).any()


def masked_at(values: list[dict], channel: str, stuck_after: int = 3) -> list[int]:
    """Which of these samples, a second apart, have the channel masked."""
    past, masked = Past(), []
    for second, row in enumerate(values):
        got, _ = checked(one(second, **row), past, stuck_after)
        if np.isnan(getattr(got, channel)).any():
            masked.append(second)
    return masked


@pytest.mark.parametrize("channel", ["util", "temp_c"])
def test_a_value_that_stays_while_power_changes_is_stuck(channel):
    # samples 0, 2 and 4 are at 100 W, samples 1, 3 and 5 far from it: the sixth is one too many
    power = [{"power_w": 100.0 if n % 2 == 0 else 300.0} for n in range(7)]
    assert masked_at(power, channel) == [5, 6]


def test_a_stuck_sensor_that_moves_again_is_believed_again():
    rows = [{"power_w": 100.0 if n % 2 == 0 else 300.0} for n in range(7)]
    assert masked_at([*rows, {"temp_c": 61.0}, {"temp_c": 62.0}], "temp_c") == [5, 6]


@pytest.mark.parametrize(
    ("rows", "channel", "why"),
    [
        ([{"power_w": 200.0 + n} for n in range(30)], "temp_c", "power hardly changes"),
        ([{"power_w": 9.0 if n < 9 else 26.0} for n in range(30)], "util", "a T4 wakes up"),
        ([{"util": 1.0, "power_w": 100.0 + 200 * (n % 2)} for n in range(30)], "util", "full"),
        ([{"power_w": 100.0 + 200 * (n % 2)} for n in range(30)], "mem", "memory is held"),
        ([{"power_w": 100.0 + 200 * (n % 2)} for n in range(30)], "mem_bandwidth", "in the cache"),
        ([{"power_w": 300.0 if n == 9 else 50.0} for n in range(30)], "temp_c", "one burst"),
        ([{"temp_c": 60.0 + max(0, n - 10), "power_w": 50.0 + 250 * (n > 8)} for n in range(30)],
         "temp_c", "a job that begins warms the GPU only then"),
        ([{"util": 0.0, "power_w": 443.0 if n < 2 else 127.0} for n in range(30)],
         "util", "the power of an H200 falls later than its use"),
        ([{"power_w": NAN} for _ in range(30)], "temp_c", "nothing speaks against it"),
    ],
)  # fmt: skip
def test_a_value_that_may_well_stay_the_same_is_believed(rows, channel, why):
    assert masked_at(rows, channel, stuck_after=3) == [], why


def test_a_power_that_stays_while_use_changes_is_stuck():
    rows = [{"util": 0.1 if n % 2 == 0 else 0.9} for n in range(7)]
    assert masked_at(rows, "power_w") == [5, 6]
    assert masked_at(rows, "util") == []


def test_a_sample_on_an_earlier_time_is_dropped_and_counted():
    past = Past()
    checked(one(10.0), past)
    got, warnings = checked(one(9.0, util=0.9), past)
    assert len(got.time_s) == 0
    assert warnings == {"clock went back": 1}
    got, warnings = checked(one(11.0, util=0.7), past)
    assert got.util.tolist() == [0.7] and not warnings


def test_one_gpus_clock_does_not_drop_the_samples_of_another():
    past = Past()
    checked(scrape(10.0), past)
    mixed = scrape(0.0)._replace(time_s=np.array([9.0, 11.0]))
    got, warnings = checked(mixed, past)
    assert got.gpu.tolist() == [1] and warnings == {"clock went back": 1}


def test_the_same_time_twice_and_no_time_are_dropped():
    past = Past()
    checked(one(10.0), past)
    assert checked(one(10.0), past)[1] == {"time seen twice": 1}
    assert checked(one(NAN), past)[1] == {"no time": 1}
    assert past.gpus["time_s"].tolist() == [10.0]


def test_a_clock_that_was_set_back_is_believed_after_a_while():
    past, kept = Past(), []
    checked(one(1e6), past)
    for time_s in range(8):  # from the fifth sample in a row on
        got, warnings = checked(one(float(time_s)), past)
        kept += got.time_s.tolist()
        assert ("clock was set back" in warnings) == (time_s == 4)
    assert kept == [4, 5, 6, 7]


def test_a_gpu_that_vanished_has_a_masked_row():
    past = Past()
    checked(scrape(1.0), past)
    got, warnings = checked(scrape(2.0, {}), past)
    assert got.gpu.tolist() == [0, 1] and got.time_s.tolist() == [2.0, 2.0]
    assert np.isnan(got.util).tolist() == [False, True]
    assert warnings == {"GPU missing": 1}


def test_a_gpu_that_was_never_there_is_missing_if_it_was_expected():
    _, warnings = checked(scrape(1.0), Past(("a/0", "a/1", "a/2")))
    assert warnings == {"GPU missing": 1}


def test_a_batch_of_many_times_equals_one_batch_a_time():
    rng, beats, names = np.random.default_rng(1), 100, ("a", "b", "c")
    time_s = np.repeat(rng.permuted(np.arange(float(beats))), 3)
    measures = [rng.choice([0.5, NAN], 3 * beats, p=[0.9, 0.1]) for _ in range(2)]
    measures += [np.full(3 * beats, 60.0), rng.choice([100.0, 300.0], 3 * beats), measures[0]]
    whole = GpuSamples(time_s, np.tile([0, 1, 2], beats), *measures, names)
    got, warnings = checked(whole, Past(), 2)
    past, parts, total = Past(), [], Counter()
    for beat in range(beats):
        rows = {name: getattr(whole, name)[3 * beat : 3 * beat + 3] for name in COLUMNS}
        part, counted = checked(whole._replace(**rows), past, 2)
        parts.append(part)
        total += counted
    for name in COLUMNS:
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(getattr(got, name), joined)
    assert warnings == total
    assert warnings["temp_c: stuck"] > 0 and warnings["clock went back"] > 0


# --- sources


class NVMLError(Exception):
    pass


class Nvml:
    """A machine of two V100, the second of which may have no sensors or be lost."""

    NVMLError, NVML_TEMPERATURE_GPU = NVMLError, 0

    def __init__(self, driver=True, second="sound"):
        self.driver, self.second, self.shut = driver, second, 0

    def nvmlInit(self):
        if not self.driver:
            raise NVMLError("no driver")

    def nvmlShutdown(self):
        self.shut += 1

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        if index and self.second == "lost":
            raise NVMLError("lost")
        return index

    def nvmlDeviceGetName(self, handle):
        return b"Tesla V100-SXM2-16GB" if handle else "Tesla V100-SXM2-16GB"

    def _sensor(self, handle, value):
        if handle and self.second == "blind":
            raise NVMLError("not supported")
        return value

    def nvmlDeviceGetUtilizationRates(self, handle):
        return self._sensor(handle, SimpleNamespace(gpu=80, memory=40))

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=4, total=16)

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return self._sensor(handle, 65)

    def nvmlDeviceGetPowerUsage(self, handle):
        return self._sensor(handle, 250_500)


@pytest.fixture
def nvml(monkeypatch):
    def install(**told):
        made = Nvml(**told)
        monkeypatch.setattr(gpus_file, "pynvml", made)
        return made

    return install


def test_nvml_is_read_in_shares_degrees_and_watts(nvml):
    machine = nvml()
    got = read_nvml(5.0, host="n1")
    assert got.names == ("n1/0", "n1/1") and got.models == ("Tesla V100-SXM2-16GB",) * 2
    assert got.time_s.tolist() == [5.0, 5.0]
    assert got.util.tolist() == [0.8, 0.8] and got.mem_bandwidth.tolist() == [0.4, 0.4]
    assert got.mem.tolist() == [0.25, 0.25]
    assert got.temp_c.tolist() == [65, 65] and got.power_w.tolist() == [250.5, 250.5]
    assert machine.shut == 1


def test_a_machine_without_a_driver_has_no_gpus(nvml):
    nvml(driver=False)
    got = read_nvml(5.0)
    assert got.names == () and len(got.time_s) == 0


@pytest.mark.parametrize(("second", "mem"), [("lost", NAN), ("blind", 0.25)])
def test_a_gpu_that_does_not_answer_hides_no_other(nvml, second, mem):
    nvml(second=second)
    got = read_nvml(5.0, host="n1")
    assert got.names == ("n1/0", "n1/1") and got.util[0] == 0.8
    assert np.isnan([got.util[1], got.temp_c[1], got.power_w[1]]).all()
    np.testing.assert_equal(got.mem[1], mem)


def test_load_of_machines_replays_as_the_use_of_their_gpus(tmp_path):
    none = np.full(3, NAN)
    load = Samples(np.array([0.0, 30.0, 30.0]), np.array([0, 0, 1]), none, none, none, none, none,
                   np.array([0.2, 0.4, NAN]), ("n1", "n2"))  # fmt: skip
    save_samples(load, tmp_path / "load.parquet")
    got = replayed(load_samples(tmp_path / "load.parquet"), gpus=2)
    assert got.names == ("n1/0", "n1/1", "n2/0", "n2/1")
    beat = between(got, 30.0, 60.0)
    assert beat.gpu.tolist() == [0, 1, 2, 3]
    np.testing.assert_equal(beat.util, [0.4, 0.4, NAN, NAN])
    watch = GpuWatch(got.names)
    watch.take(between(got, 0.0, 30.0))
    watch.take(beat)
    assert watch.seen(30.0).mask[:, 0].tolist() == [1, 1, 0, 0]


def test_the_gpus_of_a_cluster_are_named_by_node_and_index():
    names = gpu_names(adlro_cluster())
    assert len(names) == 16 and names[0] == "volta-0/0" and names[-1] == "radeon-3/0"


# --- the scheduler's view


def test_the_view_has_the_newest_of_each_gpu_in_the_schedulers_order():
    watch = GpuWatch(("a/1", "a/0"))
    watch.take(scrape(1.0))
    watch.take(scrape(2.0, {"util": 0.1}, {"util": 0.9, "temp_c": NAN}))
    view = watch.seen(2.0)
    np.testing.assert_equal(view.value, [[0.9, 0.25, NAN, 200.0], [0.1, 0.25, 60.0, 200.0]])
    assert view.mask.tolist() == [[1, 1, 0, 1], [1, 1, 1, 1]]


def test_before_any_sample_everything_is_masked():
    assert GpuWatch(("a/0",)).seen(0.0).mask.tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize(("now_s", "fresh"), [(60.0, 1), (61.0, 0), (-61.0, 0)])
def test_what_is_older_than_fresh_s_or_from_the_future_is_masked(now_s, fresh):
    watch = GpuWatch(("a/0",), fresh_s=60.0)
    watch.take(one(0.0))
    assert watch.seen(now_s).mask.tolist() == [[fresh] * 4]


def test_a_gpu_that_vanished_is_masked_at_once_and_comes_back():
    watch = GpuWatch(("a/0", "a/1"))
    for time_s, rows in ((1.0, ({}, {})), (2.0, ({},)), (3.0, ({}, {}))):
        watch.take(scrape(time_s, *rows))
        assert watch.seen(time_s).mask[:, 0].tolist() == [1, len(rows) - 1]
    assert watch.warnings == {"GPU missing": 1}


def test_a_sample_from_the_past_does_not_replace_a_newer_one():
    watch = GpuWatch(("a/0",))
    watch.take(one(2.0, util=0.2))
    watch.take(one(1.0, util=0.1))
    assert watch.seen(2.0).value[0, 0] == 0.2
    assert watch.warnings == {"clock went back": 1}


@pytest.mark.parametrize("error", [TraceError("http://n1: cannot be read"), OSError("refused")])
def test_a_source_that_raises_is_masked_and_the_others_go_on(error):
    def down(now_s):
        raise error

    def first(now_s):
        return scrape(now_s, {})

    def second(now_s):
        return scrape(now_s, {}, names=("b/0",))

    watch = GpuWatch(("a/0", "b/0"))
    assert watch.poll("n1", first, 1.0) and watch.poll("n2", second, 1.0)
    assert not watch.poll("n1", down, 2.0) and watch.poll("n2", second, 2.0)
    assert watch.seen(2.0).mask[:, 0].tolist() == [0, 1]
    assert watch.warnings == {"n1: no answer": 1} and watch.said == {"n1": str(error)}
    assert watch.poll("n1", first, 3.0)
    assert watch.seen(3.0).mask[:, 0].tolist() == [1, 1] and not watch.said


def test_a_source_that_covers_one_host_does_not_miss_the_others_gpus():
    watch = GpuWatch(("a/0", "b/0"))
    watch.take(scrape(1.0, {}), "a")
    watch.take(scrape(1.0, {}, names=("b/0",)), "b")
    assert watch.seen(1.0).mask.all() and not watch.warnings


def modelled(model: str) -> GpuSamples:
    return scrape(1.0, {})._replace(models=(model,))


def test_an_unknown_model_is_named_once_with_the_nearest_known():
    watch = GpuWatch(("a/0",), models=("a100", "v100", "t4"))
    watch.take(modelled("V100S"))
    watch.take(modelled("V100S")._replace(time_s=np.array([2.0])))
    told = "GPU model 'V100S' is not in the cluster; the nearest is 'v100'"
    assert watch.warnings == {told: 1}
    assert watch.seen(2.0).mask.all()


@pytest.mark.parametrize("model", ["NVIDIA A100-SXM4-80GB", "a100", "Tesla V100-SXM2-16GB", ""])
def test_a_model_whose_name_holds_a_known_kind_is_known(model):
    watch = GpuWatch(("a/0",), models=("a100", "v100"))
    watch.take(modelled(model))
    assert not watch.warnings


def test_names_of_a_source_are_told_to_be_those_of_the_cluster():
    known_as = {"a/0": "volta-0/0", "Tesla V100": "volta"}
    watch = GpuWatch(("volta-0/0",), models=("volta", "turing"), known_as=known_as)
    watch.take(modelled("Tesla V100"))
    assert watch.seen(1.0).mask.all() and not watch.warnings


def test_a_gpu_that_the_cluster_has_not_is_passed_over_with_a_warning():
    watch = GpuWatch(("a/0",))
    watch.take(scrape(1.0))
    assert watch.warnings == {"GPU 'a/1' is not in the cluster; the nearest is 'a/0'": 1}
    assert watch.seen(1.0).mask.all()


def test_the_example_file_names_the_gpus_as_the_preset_does():
    file, _ = read_cluster(Path(__file__).parents[3] / "examples" / "adlro.yaml")
    assert gpu_names(file) == gpu_names(adlro_cluster())
