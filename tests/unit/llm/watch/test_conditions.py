"""What others take: shares less the job's own, stand-ins for dead sensors, and Prometheus."""

import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
from tests.prometheus_server import always, prometheus_server

from trimtab.errors import PlanError
from trimtab.llm.watch import conditions as conditions_file
from trimtab.llm.watch.conditions import (
    DEFAULT_QUERIES,
    LEAST_FREE,
    Host,
    Raw,
    Sensors,
    chosen_queries,
    prometheus_read,
)
from trimtab.load.prometheus import Server, windowed

server = prometheus_server


class Script:
    """Sensors that read these one after the other, and what they warned of."""

    def __init__(self, *readings):
        self.readings, self.warnings = list(readings), []
        self.sensors = Sensors(lambda now_s: self.readings.pop(0), self.warnings.append)

    def next(self, now_s=0.0, own_link=0.0):
        return self.sensors.conditions(now_s, own_link)


def test_the_jobs_own_use_does_not_count():
    script = Script(Raw(cpu=0.7, own_cpu=0.5, link=0.6, taken=3e9, gpu=0.9, memory=0.4))
    seen = script.next(10.0, own_link=0.25)
    assert seen.time_s == 10.0
    assert seen.cpu_load == pytest.approx(0.2)  # 0.7 - 0.5
    assert seen.free_link == pytest.approx(0.65)  # 1 - (0.6 - 0.25)
    assert (seen.taken_b, seen.gpu_load, seen.host_memory) == (3e9, 0.9, 0.4)
    assert script.warnings == []


def test_a_job_that_uses_more_than_is_measured_leaves_a_calm_cluster():
    seen = Script(Raw(cpu=0.2, own_cpu=0.3, link=0.1)).next(own_link=0.5)
    assert (seen.cpu_load, seen.free_link) == (0.0, 1.0)


def test_a_full_link_leaves_a_little():
    assert Script(Raw(link=1.0)).next().free_link == LEAST_FREE


def test_without_sensors_the_cluster_is_calm_and_nobody_is_warned():
    script = Script(Raw())
    seen = script.next()
    assert (seen.cpu_load, seen.free_link, seen.taken_b) == (0.0, 1.0, 0.0)
    assert math.isnan(seen.gpu_load) and math.isnan(seen.host_memory)
    assert script.warnings == []


def test_a_dead_sensor_leaves_its_last_value_and_warns_once_until_it_is_back():
    dead = Raw(faults={"cpu": "psutil: gone"})
    script = Script(dead, Raw(cpu=0.5), dead, dead, Raw(cpu=0.25), dead)
    loads = [script.next().cpu_load for _ in range(6)]
    assert loads == [0.0, 0.5, 0.5, 0.5, 0.25, 0.25]
    assert script.warnings == [
        "CPU load: a calm cluster's value is taken: psutil: gone",
        "CPU load: the last known value is taken: psutil: gone",
        "CPU load: the last known value is taken: psutil: gone",
    ]


def one(value):
    return [({"instance": "a"}, always(value))]


def test_prometheus_tells_the_worst_machine_and_the_mean_gpu(server):
    server.series = {
        "c": [*one(0.25), *one(0.5)],
        "g": [*one(0.5), *one(1.0)],
        "l": one(1.02),  # a rate overshoots a little
        "t": one(5e9),
    }
    queries = {"cpu": "c", "gpu": "g", "link": "l", "taken": "t", "memory": ""}
    raw = prometheus_read(Server(server.url), queries, 0.0)
    assert (raw.cpu, raw.gpu, raw.link, raw.taken) == (0.5, 0.75, 1.02, 5e9)
    assert math.isnan(raw.memory) and raw.faults == {}
    assert Sensors(lambda now_s: raw, pytest.fail).conditions(0.0).free_link == LEAST_FREE


def test_a_query_without_a_usable_answer_is_a_fault_and_not_a_zero(server):
    server.series = {"c": one(37.0)}  # percent, not a share
    raw = prometheus_read(Server(server.url), {"cpu": "c", "link": "l"}, 0.0)
    assert math.isnan(raw.cpu) and math.isnan(raw.link)
    assert raw.faults["cpu"].endswith("query cpu finds no usable series; replace it")


def test_a_server_that_fails_is_a_fault_of_every_query(server):
    server.reply = (503, b"")
    raw = prometheus_read(Server(server.url), {"cpu": "c", "gpu": "g"}, 0.0)
    assert raw.faults.keys() == {"cpu", "gpu"}
    assert "HTTP 503" in raw.faults["cpu"]


def test_default_queries_are_asked_with_the_window(server):
    server.series = {windowed(DEFAULT_QUERIES["cpu"], 120.0): one(0.5)}
    assert prometheus_read(Server(server.url), DEFAULT_QUERIES, 0.0).cpu == 0.5
    assert len(server.asked) == 4  # whose the memory is, DCGM cannot tell


def test_a_query_of_ones_own_takes_the_place_of_the_default():
    assert chosen_queries({"cpu": "mine"})["cpu"] == "mine"
    assert chosen_queries({"cpu": "mine"})["gpu"] == DEFAULT_QUERIES["gpu"]
    with pytest.raises(PlanError, match="query 'power' measures nothing here; take one of cpu"):
        chosen_queries({"power": "x"})


class Ports:
    def __init__(self, *ways):
        self.ways = ways

    def shares(self, now_s):
        return self.ways


class Samples:
    """A probe of fixed shares."""

    def __init__(self, **columns):
        self.columns = {name: np.array([value]) for name, value in columns.items()}

    def sample(self, now_s):
        return SimpleNamespace(**self.columns)


@pytest.mark.parametrize(
    ("rdma", "ethernet", "expected"),
    [
        ((0.3, 0.1), (0.9, 0.9), 0.3),  # collectives pass through the RDMA ports
        ((math.nan, math.nan), (0.2, 0.4), 0.4),
        ((math.nan, math.nan), (math.nan, math.nan), math.nan),
    ],
)
def test_the_busier_way_of_the_links_that_carry_collectives_counts(rdma, ethernet, expected):
    host = Host()
    net_in, net_out = ethernet
    host._probe = Samples(cpu=0.5, mem=0.25, net_in=net_in, net_out=net_out, gpu=math.nan)
    host._ports = Ports(*rdma)
    raw = host.read(0.0)
    assert raw.link == pytest.approx(expected, nan_ok=True)
    assert ("link" in raw.faults) == math.isnan(expected)
    assert (raw.cpu, raw.memory) == (0.5, 0.25)
    assert math.isnan(raw.own_cpu) and math.isnan(raw.taken)


def test_the_host_tells_the_jobs_cpu_and_the_neighbours_memory(monkeypatch):
    monkeypatch.setattr(conditions_file, "others_memory_b", lambda own: 4e9)
    host = Host(str(os.getpid()))
    host.read(0.0)
    raw = host.read(1.0)
    assert raw.taken == 4e9 and raw.own_cpu >= 0 and "taken" not in raw.faults


def test_a_job_that_does_not_run_is_a_fault():
    host = Host(str(2**22 + 1))  # beyond the largest PID
    faults = host.read(0.0).faults
    assert "does not run on this machine" in faults["own_cpu"] == faults["taken"]


def test_a_probe_that_raises_is_a_fault():
    def broken(now_s):
        raise OSError("no /proc/stat")

    host = Host()
    host._probe = SimpleNamespace(sample=broken)
    raw = host.read(0.0)
    assert math.isnan(raw.cpu) and raw.faults["cpu"] == "psutil: no /proc/stat"


def test_this_machine_has_conditions():
    host = Host()
    sensors = Sensors(host.read, lambda text: None)
    sensors.prime(0.0)
    seen = sensors.conditions(1.0)
    assert 0 <= seen.cpu_load <= 1 and LEAST_FREE <= seen.free_link <= 1
    assert seen.taken_b == 0.0 and 0 < seen.host_memory < 1
