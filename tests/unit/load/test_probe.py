"""The probe: shares from counters, and NaN where a sensor is dead or absent."""

import math
from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
from tests.unit.load.nvml import Nvml, NVMLError

from trimtab.errors import TrimtabError
from trimtab.load import probe as probe_file
from trimtab.load.probe import Probe

Times = namedtuple("Times", "user system idle iowait steal guest")
MBIT = 125_000  # bytes


class Machine(Nvml):
    """A machine of made-up counters in place of psutil and NVML."""

    def __init__(self):
        super().__init__()
        self.cpu = Times(0, 0, 0, 0, 0, 0)
        self.links = {"eth0": (True, 1000), "lo": (True, 0), "veth1": (True, 10_000)}
        self.bytes = dict.fromkeys(self.links, (0, 0))
        self.disks = {"sda": 0, "sdb": 0, "loop0": 0}

    def cpu_times(self):
        return self.cpu

    def virtual_memory(self):
        return SimpleNamespace(total=1000, available=250)

    def net_if_stats(self):
        return {n: SimpleNamespace(isup=up, speed=mb) for n, (up, mb) in self.links.items()}

    def net_io_counters(self, pernic):
        return {n: SimpleNamespace(bytes_recv=i, bytes_sent=o) for n, (i, o) in self.bytes.items()}

    def disk_io_counters(self, perdisk):
        return {name: SimpleNamespace(busy_time=ms) for name, ms in self.disks.items()}

    def nvmlDeviceGetUtilizationRates(self, handle):
        if self.gpus[handle] < 0:
            raise NVMLError("not supported")
        return SimpleNamespace(gpu=self.gpus[handle])


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(probe_file, "psutil", made)
    monkeypatch.setattr(probe_file, "pynvml", made)
    return made


def test_a_sample_is_the_share_since_the_one_before(machine):
    probe = Probe("here")
    first = probe.sample(100.0)
    assert first.names == ("here",)
    assert first.mem.tolist() == [0.75]
    assert np.isnan([first.cpu, first.net_in, first.net_out, first.disk, first.gpu]).all()
    # of 100 CPU seconds 60 idle and 10 waiting for a disk; the guest's 5 are in user already
    machine.cpu = Times(user=15, system=10, idle=60, iowait=10, steal=5, guest=5)
    machine.bytes = {"eth0": (250 * MBIT, 2500 * MBIT), "lo": (9**9, 9**9), "veth1": (9**9, 9**9)}
    machine.disks = {"sda": 1000, "sdb": 4000, "loop0": 10_000}
    second = probe.sample(110.0)
    assert second.time_s.tolist() == [110.0]
    assert second.cpu[0] == pytest.approx(0.3)
    assert second.net_in[0] == pytest.approx(0.025)  # 250 of 1000 x 10 Mbit
    assert second.net_out[0] == pytest.approx(0.25)
    assert second.disk[0] == pytest.approx(0.4)  # sdb, 4 of 10 s; a loop device is no disk


def test_a_link_of_unknown_speed_is_not_measured(machine):
    machine.links["eth0"] = (True, 0)
    probe = Probe()
    probe.sample(0.0)
    assert np.isnan(probe.sample(1.0).net_in).all()


def test_links_that_know_their_speed_add_up(machine):
    machine.links |= {"eth1": (True, 3000), "eth2": (False, 1000)}
    machine.bytes |= {"eth1": (0, 0), "eth2": (0, 0)}
    probe = Probe()
    probe.sample(0.0)
    machine.bytes = {"eth0": (1000 * MBIT, 0), "eth1": (1000 * MBIT, 0), "eth2": (0, 0)}
    assert probe.sample(1.0).net_in[0] == pytest.approx(0.5)  # 2000 of 4000 Mbit


def test_an_interface_made_anew_is_not_measured_once(machine):
    machine.bytes["eth0"] = (500, 500)
    probe = Probe()
    probe.sample(0.0)
    machine.bytes["eth0"] = (10, 10)
    assert np.isnan(probe.sample(1.0).net_in).all()
    assert probe.sample(2.0).net_in[0] == 0.0


def test_a_clock_that_stands_still_gives_no_rates(machine):
    probe = Probe()
    probe.sample(5.0)
    again = probe.sample(5.0)
    assert np.isnan([again.cpu, again.net_in, again.disk]).all()


def test_sensors_that_raise_are_not_measured(machine, monkeypatch):
    def hidden(**_):
        raise NotImplementedError("no /proc/diskstats")

    monkeypatch.setattr(machine, "disk_io_counters", hidden)
    monkeypatch.setattr(machine, "net_io_counters", hidden)
    probe = Probe()
    probe.sample(0.0)
    seen = probe.sample(1.0)
    assert np.isnan([seen.disk, seen.net_in]).all()


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([20, 60], 0.4),
        ([20, -1], 0.2),  # the second does not answer
        ([None, 60], 0.6),  # the first fell off the bus
        ([-1, -1], math.nan),
        ([None], math.nan),
        ([], math.nan),
    ],
)
def test_gpu_is_the_mean_of_those_that_answer(machine, gpus, expected):
    machine.gpus = gpus
    probe = Probe()
    assert probe.sample(0.0).gpu[0] == pytest.approx(expected, nan_ok=True)
    probe.close()
    probe.close()
    assert machine.shut == (1 if gpus else 0)
    assert np.isnan(probe.sample(1.0).gpu[0])


def test_watch_keeps_its_beat_and_leaves_out_what_it_slept_through(machine):
    now = [1000.0]

    def sleep(seconds):
        # the third wait takes 25 s too long
        now[0] += seconds + (25.0 if now[0] == 1020.0 else 0.0)

    beats = Probe().watch(10.0, until_s=1070.0, clock=lambda: now[0], sleep=sleep)
    times = [float(seen.time_s[0]) for seen in beats]
    assert times == [1010, 1020, 1055, 1060, 1070]


def test_a_watch_without_time_between_is_refused(machine):
    with pytest.raises(TrimtabError, match="every_s=0 is not positive"):
        next(Probe().watch(0))


def test_this_machine_can_be_measured():
    probe = Probe()
    probe.sample(0.0)
    seen = probe.sample(1.0)
    assert 0 < seen.mem[0] <= 1
    values = np.array(seen[2:8])
    assert (np.isnan(values) | ((values >= 0) & (values <= 1))).all()
    probe.close()
