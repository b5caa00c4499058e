"""`trimtab serve top`: the picture of a fleet from its metrics, and what it says without one."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from trimtab.cli.serve import serve_top
from trimtab.cli.serve.serve_top import Scrape, looked, metrics_address, summary, top
from trimtab.errors import ServeError
from trimtab.serving.front.metrics_text import text
from trimtab.serving.net.slim_form import row_of
from trimtab.serving.view import FleetView, ServerView


def fleet(**more):
    counts = np.zeros(256, int)
    counts[row_of((0, 0, 1, 3))], counts[row_of((0, 0, 3, 3))] = 30, 10
    known = {
        "ready": True, "arrived": 100, "answered": 80, "in_time": 60, "refused": 7,
        "answered_rows": 40, "accuracy_sum": 30.0, "width_counts": counts, "come_hz": 12.5,
        "latency_p99_s": 0.123, "queued_by_segment": (5, 0, 1, 0), "queue_max": 512,
        "servers": [
            ServerView("one", state="ready", util=0.5, busy=1, waiting_by_segment=(1, 2, 0, 0),
                       coming=4, power_w=30.0, power_source="model", memory_b=12e6),
            ServerView("[two]", state="suspect"),
        ],
    }  # fmt: skip
    return FleetView("slim", "planned", **{**known, **more})


@pytest.fixture
def served():
    """A fleet's address; what it answers can be set."""
    said = {"text": text(fleet())}

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(said["text"].encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Metrics)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", said
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_one_picture_has_the_fleet_and_a_line_a_server(served, capsys):
    top(served[0], once=True)
    shown = capsys.readouterr().out
    assert "slim by planned  ready" in shown
    assert "come 12.5/s" in shown and "in time 75.0%" in shown and "accuracy 75.00%" in shown
    assert "p99 123 ms" in shown and "refused 7" in shown
    assert "queue 5 + 0 + 1 + 0 of 512 rows" in shown
    assert "1: 0.25 100%" in shown and "3: 0.5 75% 1 25%" in shown
    one, two = (line for line in shown.splitlines() if line.lstrip().startswith(("one", "[two]")))
    assert "████░░░░  50%" in one and "30 W model" in one and " 7 " in one
    assert "suspect" in two


def test_the_picture_as_json(served, tmp_path):
    top(served[0], json_file=str(tmp_path / "top.json"))
    told = json.loads((tmp_path / "top.json").read_text())
    assert told["ended"]["refused"] == 7 and told["in_time_share"] == 0.75
    assert told["servers"][0]["waiting"] == 3 and told["servers"][1]["state"] == "suspect"


def test_a_fleet_that_has_answered_nothing_has_a_picture(served, capsys):
    served[1]["text"] = text(FleetView("slim", "planned"))
    top(served[0], once=True)
    shown = capsys.readouterr().out
    assert "not ready" in shown and "in time -" in shown


def test_the_routers_problem_is_shown(served, capsys):
    served[1]["text"] = text(fleet(router_problem="ppo gave NaN"))
    top(served[0], once=True)
    assert "router: ppo gave NaN" in capsys.readouterr().out


def test_rates_are_between_two_looks(served):
    first = looked(f"{served[0]}/metrics")
    counts = fleet().width_counts
    counts[row_of((2, 2, 2, 2))] = 5
    served[1]["text"] = text(fleet(arrived=150, answered=100, width_counts=counts))
    second = Scrape(first.at_s + 10.0, looked(f"{served[0]}/metrics").values)
    told = summary(second, first)
    assert told["come_hz"] == pytest.approx(5.0) and told["done_hz"] == pytest.approx(2.0)
    assert told["width_shares"] == [{"0.75": 1.0}] * 4


def test_a_front_started_again_has_no_negative_rate(served):
    first = looked(f"{served[0]}/metrics")
    served[1]["text"] = text(fleet(arrived=3, come_hz=1.5))
    second = Scrape(first.at_s + 10.0, looked(f"{served[0]}/metrics").values)
    assert summary(second, first)["come_hz"] == 1.5


def test_watching_goes_on_when_the_fleet_is_lost_and_ends_with_ctrl_c(served, capsys, monkeypatch):
    waits = []

    def wait(seconds):
        waits.append(seconds)
        served[1]["text"] = "nothing_of_ours 1\n"
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(serve_top.time, "sleep", wait)
    top(served[0], every=0.5)
    printed = capsys.readouterr()
    assert waits == [0.5, 0.5]
    assert "as last seen" in printed.out and "the fleet goes on" in printed.err


def test_no_fleet_is_one_sentence():
    with pytest.raises(ServeError, match=r"no fleet answers .*; start one with `trimtab serve`"):
        top("http://127.0.0.1:1", once=True)


def test_another_server_is_told_apart(served):
    served[1]["text"] = "python_info 1\n"
    with pytest.raises(ServeError, match="answers, but is no Trimtab fleet"):
        top(served[0], once=True)


@pytest.mark.parametrize("url", ["host:80", "http://host:80/", "http://host:80/metrics"])
def test_an_address_may_be_short(url):
    assert metrics_address(url) == "http://host:80/metrics"


@pytest.mark.parametrize(
    ("asked", "named"), [({"url": "ftp://host"}, "no HTTP address"), ({"every": 0.0}, "--every 0")]
)
def test_a_mistake_is_named(asked, named):
    with pytest.raises(ServeError, match=named):
        top(**asked)
