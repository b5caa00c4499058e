"""The DCGM exporter's text: what counts, what is passed over, and which line is wrong."""

import math
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from trimtab.errors import TraceError
from trimtab.load.dcgm import parse_dcgm, read_dcgm

LABELS = 'gpu="{gpu}",UUID="GPU-{gpu}a",device="nvidia{gpu}",modelName="Tesla T4",Hostname="{host}"'


def line(metric: str, value: object, gpu: int = 0, host: str = "n1", more: str = "") -> str:
    return f"DCGM_FI_DEV_{metric}{{{LABELS.format(gpu=gpu, host=host)}{more}}} {value}"


def text(gpu: int = 0, host: str = "n1", util: object = 50) -> str:
    return "\n".join(
        [
            "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).",
            "# TYPE DCGM_FI_DEV_GPU_UTIL gauge",
            line("GPU_UTIL", util, gpu, host),
            line("MEM_COPY_UTIL", 20, gpu, host),
            line("GPU_TEMP", 61, gpu, host),
            line("POWER_USAGE", 66.5, gpu, host),
            line("FB_USED", 4000, gpu, host),
            line("FB_FREE", 12000, gpu, host),
            line("SM_CLOCK", 1590, gpu, host),
            "go_goroutines 12",
            "",
        ]
    )


def test_every_gpu_of_every_host_is_one_sample():
    got = parse_dcgm(text(0, "n1") + text(1, "n1", util=75) + text(0, "n2", util=0), now_s=7.0)
    assert got.names == ("n1/0", "n1/1", "n2/0")
    assert got.models == ("Tesla T4",) * 3
    assert got.gpu.tolist() == [0, 1, 2] and got.time_s.tolist() == [7.0] * 3
    assert got.util.tolist() == [0.5, 0.75, 0.0]
    assert got.mem.tolist() == [0.25] * 3  # 4000 of 16000 MB
    assert got.temp_c.tolist() == [61] * 3 and got.power_w.tolist() == [66.5] * 3
    assert got.mem_bandwidth.tolist() == [0.2] * 3


def test_memory_that_the_driver_reserves_is_part_of_the_whole():
    got = parse_dcgm(text() + line("FB_RESERVED", 4000), 0.0)
    assert got.mem.tolist() == [0.2]  # 4000 of 20000 MB


@pytest.mark.parametrize("value", ["NaN", "nan"])
def test_nan_is_not_measured(value):
    assert np.isnan(parse_dcgm(text(util=value), 0.0).util).all()


def test_what_an_exporter_leaves_out_is_not_measured():
    got = parse_dcgm(line("GPU_UTIL", 10) + "\n" + line("FB_USED", 100), 0.0)
    assert got.util.tolist() == [0.1]
    assert np.isnan([got.mem, got.temp_c, got.power_w, got.mem_bandwidth]).all()


def test_of_a_series_that_stands_twice_the_first_number_counts():
    pods = [line("GPU_UTIL", v, more=f',pod="p{v}"') for v in ("NaN", 30, 90)]
    got = parse_dcgm("\n".join(pods), 0.0)
    assert got.util.tolist() == [0.3]


def test_a_time_of_its_own_in_milliseconds_wins_over_the_clock():
    got = parse_dcgm(line("GPU_UTIL", "30 1700000000500"), 5.0)
    assert got.time_s.tolist() == [1700000000.5]


def test_a_label_may_hold_braces_commas_and_escaped_quotes():
    got = parse_dcgm('DCGM_FI_DEV_GPU_UTIL{modelName="a \\"b\\", {c}",gpu="3",} 30', 0.0, host="h")
    assert got.names == ("h/3",) and got.models == ('a "b", {c}',)


@pytest.mark.parametrize("text", ["", "\n# HELP nothing\n"])
def test_an_exporter_without_gpus_tells_of_none(text):
    assert parse_dcgm(text, 0.0).names == ()


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (line("GPU_UTIL", "many"), "'many' is no number"),
        (line("GPU_UTIL", ""), "is no number"),
        (line("GPU_UTIL", "1 2 3"), "is no number"),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0" 3', "labels"),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1"} 3', "the label gpu is missing"),
        ("<html>", "does not begin with a metric's name"),
    ],
)
def test_a_wrong_line_is_named(bad, problem):
    with pytest.raises(TraceError) as caught:
        parse_dcgm(f"# a comment\n{bad}\n", 0.0, source="exporter")
    message = str(caught.value)
    assert message.startswith("exporter:2:") and problem in message
    assert "DCGM exporter" in message


def test_another_exporters_text_is_refused():
    with pytest.raises(TraceError, match="none of its 2 lines"):
        parse_dcgm("node_load1 0.5\nnode_load5 0.5\n", 0.0)


class Exporter(BaseHTTPRequestHandler):
    def do_GET(self):
        found = self.path == "/metrics"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(text().encode() if found else b"nothing here")

    def log_message(self, *_):
        pass


@pytest.fixture
def address():
    server = HTTPServer(("127.0.0.1", 0), Exporter)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_exporter_is_read_by_its_address(address):
    got = read_dcgm(f"{address}/metrics", now_s=3.0)
    assert got.names == ("n1/0",) and got.source == f"{address}/metrics"
    assert math.isclose(got.util[0], 0.5)


def test_an_address_that_does_not_answer_is_named(address):
    with pytest.raises(TraceError, match="/other: cannot be read"):
        read_dcgm(f"{address}/other", 0.0)
    with pytest.raises(TraceError, match=r"http://127\.0\.0\.1:1/metrics: cannot be read"):
        read_dcgm("http://127.0.0.1:1/metrics", 0.0)
    with pytest.raises(TraceError, match="is not an address"):
        read_dcgm("localhost:9400", 0.0)
