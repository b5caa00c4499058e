"""`trimtab plan watch` reads a real Prometheus that scrapes a real node_exporter.

DCGM's and InfiniBand's series come from a text file of node_exporter's, since no GPU is here.
"""

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from trimtab.llm.watch.conditions import DEFAULT_QUERIES, prometheus_read
from trimtab.load.prometheus import Server

PROMETHEUS = shutil.which("prometheus")
EXPORTER = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
pytestmark = pytest.mark.skipif(
    not PROMETHEUS or not EXPORTER, reason="no Prometheus or node_exporter"
)
UNTIL_S = 30.0
PORT = 'device="mlx5_0",port="1"'
TEXT = f"""\
node_infiniband_state_id{{{PORT}}} 4
node_infiniband_rate_bytes_per_second{{{PORT}}} 5e10
node_infiniband_port_data_transmitted_bytes_total{{{PORT}}} 0
DCGM_FI_DEV_GPU_UTIL{{gpu="0"}} 80
DCGM_FI_DEV_GPU_UTIL{{gpu="1"}} 40
"""
SENT_BPS = 2e10  # of the 5e10 that the port can
CONFIG = """\
global: {{scrape_interval: 1s}}
scrape_configs: [{{job_name: node, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a Prometheus that has scraped a few times."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "more").mkdir()
    over = threading.Event()
    sending = threading.Thread(target=send, args=(folder / "more" / "gpus.prom", over))
    sending.start()
    exporter_port, port = free_port(), free_port()
    (folder / "p.yml").write_text(CONFIG.format(port=exporter_port))
    commands = (
        [EXPORTER, f"--web.listen-address=127.0.0.1:{exporter_port}", "--no-collector.netclass",
         f"--collector.textfile.directory={folder / 'more'}"],
        [PROMETHEUS, f"--config.file={folder / 'p.yml'}", f"--storage.tsdb.path={folder / 'data'}",
         f"--web.listen-address=127.0.0.1:{port}"],
    )  # fmt: skip
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen(command, **quiet) for command in commands]
    try:
        wait_for_rates(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        over.set()
        sending.join()
        for process in started:
            process.kill()
            process.wait(10)


def send(path: Path, over: threading.Event) -> None:
    """Let the port's counter grow until all is over."""
    began_s = time.monotonic()
    while not over.is_set():
        sent_b = SENT_BPS * (time.monotonic() - began_s)
        part = path.with_suffix(".part")
        part.write_text(
            f"{TEXT}node_infiniband_port_data_received_bytes_total{{{PORT}}} {sent_b}\n"
        )
        part.replace(path)
        over.wait(0.2)


def wait_for_rates(url: str) -> None:
    query = "/api/v1/query?query=count_over_time(node_load1[60s])%3E=6"
    end_s = time.monotonic() + UNTIL_S
    while time.monotonic() < end_s:
        try:
            with urllib.request.urlopen(url + query, timeout=5) as reply:
                if json.load(reply)["data"]["result"]:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.5)
    pytest.fail(f"Prometheus had no rates within {UNTIL_S:g} s")


def test_a_real_server_reads_our_queries(server):
    found = prometheus_read(Server(server), DEFAULT_QUERIES, time.time(), 4.0)
    assert not found.faults
    assert found.link == pytest.approx(SENT_BPS / 5e10, rel=0.3)
    assert found.gpu == pytest.approx(0.6)  # of 80 and 40 %


def test_a_watched_job_sees_what_a_real_prometheus_tells(server, tmp_path):
    words = ["plan", "llama-3-8b", "--gpus", "64xH100", "--watch", "--every", "1", "--rounds", "2"]
    words += ["--prometheus", server, "--state", str(tmp_path / "state.json"), "--json", "-"]
    done = subprocess.run(
        [sys.executable, "-m", "trimtab", *words],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    readings = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(readings) == 2
    for reading in readings:
        assert 0 <= reading["cpu_load"] <= 1
        assert 0 < reading["host_memory"] < 1
        assert reading["gpu_load"] == pytest.approx(0.6, abs=0.01)
        # the plan's own traffic is a part of what is seen
        assert 0.55 < reading["free_link"] <= 1.0
    assert "cannot be reached" not in done.stderr
    assert "finds no usable series" not in done.stderr
