"""Power comes from the meter that there is, and says which one that was."""

import pytest

from trimtab.errors import ServeError
from trimtab.serving.server.power import Model, Nvml, Rapl, meter


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


class Driver:
    """Stands for NVML: one card that draws 123.5 W."""

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByIndex(self, index):
        return f"card {index}"

    def nvmlDeviceGetPowerUsage(self, card):
        return {"card 1": 123_500}[card]


def counter(folder, energy_uj, range_uj=1_000_000):
    folder.mkdir(exist_ok=True)
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")


def test_a_model_is_a_line_between_its_watts():
    model = Model(20.0, 60.0)
    assert model.read(0.25) == (30.0, "model")
    assert model.read(-1.0).watts == 20.0 and model.read(7.0).watts == 60.0


def test_rapl_is_energy_over_time_of_all_packages(tmp_path):
    clock = Clock()
    for package in (0, 1):
        counter(tmp_path / f"intel-rapl:{package}", 100)
    counter(tmp_path / "intel-rapl:0:0", 0)  # a part of package 0
    found = meter("cpu", powercap=tmp_path, clock=clock)
    clock.now_s = 0.5
    counter(tmp_path / "intel-rapl:0", 200_100)
    counter(tmp_path / "intel-rapl:1", 100_100)
    counter(tmp_path / "intel-rapl:0:0", 99_999)
    assert found.read() == (pytest.approx(0.6), "rapl")


def test_a_rapl_counter_may_start_again(tmp_path):
    clock = Clock()
    counter(tmp_path / "intel-rapl:0", 900_000, range_uj=999_999)
    found = Rapl([tmp_path / "intel-rapl:0"], clock)
    clock.now_s = 1.0
    counter(tmp_path / "intel-rapl:0", 100_000, range_uj=999_999)
    assert found.read().watts == pytest.approx(0.2)


def test_readings_too_close_repeat_the_last(tmp_path):
    clock = Clock()
    counter(tmp_path / "intel-rapl:0", 0)
    found = Rapl([tmp_path / "intel-rapl:0"], clock)
    clock.now_s = 1.0
    counter(tmp_path / "intel-rapl:0", 500_000)
    assert found.read().watts == pytest.approx(0.5)
    clock.now_s = 1.001
    counter(tmp_path / "intel-rapl:0", 900_000)
    assert found.read().watts == pytest.approx(0.5)


def test_nvml_tells_the_card_asked_for():
    assert Nvml(Driver(), 1).read(0.3) == (123.5, "nvml")


@pytest.mark.parametrize("broken", ["", "no number"])
def test_an_unreadable_counter_leaves_the_model(tmp_path, broken):
    counter(tmp_path / "intel-rapl:0", 0)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text(broken)
    assert meter("cpu", powercap=tmp_path, idle_w=1.0, busy_w=2.0).read(1.0) == (2.0, "model")


def test_a_machine_without_counters_has_the_model(tmp_path):
    assert meter("cpu", powercap=tmp_path).source == "model"


def test_watts_that_fall_with_work_are_refused():
    with pytest.raises(ServeError, match="idle_w=9"):
        Model(9.0, 3.0)
