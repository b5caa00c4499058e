"""Load from a Prometheus server, played here by a real HTTP server that answers as its API does."""

import socket

import numpy as np
import pytest
from tests.prometheus_server import always, prometheus_server

from trimtab.errors import TraceError
from trimtab.traces.load.prometheus import DEFAULT, MAX_POINTS, query_range

server = prometheus_server  # the fixture, under the name that these tests use


def test_two_exporters_of_one_machine_meet_in_one_row(server):
    server.series = {
        "c": [({"instance": "a:9100"}, always(0.25)), ({"instance": "b:9100"}, always(0.5))],
        "g": [({"instance": "a:9400"}, always(0.75))],
    }
    seen = query_range(
        server.url, start_s=1000, end_s=1060, step_s=30, queries={"cpu": "c", "gpu": "g"}
    )
    assert seen.names == ("a", "b")
    assert seen.source == server.url
    assert seen.node.tolist() == [0, 0, 0, 1, 1, 1]
    assert seen.time_s.tolist() == [1000, 1030, 1060] * 2
    assert seen.cpu.tolist() == [0.25] * 3 + [0.5] * 3
    assert np.array_equal(seen.gpu, [0.75] * 3 + [np.nan] * 3, equal_nan=True)
    assert np.isnan(seen.mem).all()


def test_a_gap_is_absent_and_a_missing_measure_is_a_mask(server):
    server.series = {
        "c": [({"instance": "a"}, lambda t: None if 1030 <= t <= 1060 else 0.5)],
        "m": [({"instance": "a"}, lambda t: None if t == 1030 else 0.9)],
    }
    seen = query_range(server.url, start_s=1000, end_s=1090, queries={"cpu": "c", "mem": "m"})
    assert seen.time_s.tolist() == [1000, 1060, 1090]  # nothing at 1030
    assert np.array_equal(seen.cpu, [0.5, np.nan, 0.5], equal_nan=True)
    assert seen.mem.tolist() == [0.9] * 3


def test_what_is_no_ratio_is_not_measured(server):
    values = {0: "NaN", 1: "+Inf", 2: -0.01, 3: 1.01, 4: 9223372036854775794 / 100, 5: 0.5}
    server.series = {"c": [({"instance": "a"}, lambda t: values[int(t)])]}
    seen = query_range(server.url, start_s=0, end_s=5, step_s=1, queries={"cpu": "c"})
    # a rate overshoots a little; a sensor's "blank" is far out
    assert seen.time_s.tolist() == [2, 3, 5]
    assert seen.cpu.tolist() == [0.0, 1.0, 0.5]


def test_a_long_time_is_asked_in_pieces_without_a_seam(server):
    server.series = {"c": [({"instance": "a"}, lambda t: t % 100 / 100)]}
    points = 2 * MAX_POINTS + 17
    seen = query_range(
        server.url, start_s=5.0, end_s=5.0 + points - 1, step_s=1, queries={"cpu": "c"}
    )
    assert len(server.asked) == 3
    assert np.array_equal(seen.time_s, 5.0 + np.arange(points))
    assert np.allclose(seen.cpu, (seen.time_s % 100) / 100)


def test_a_step_that_is_no_whole_number_keeps_its_grid(server):
    server.series = {"c": [({"instance": "a"}, always(0.5))]}
    seen = query_range(server.url, start_s=0.1, end_s=3.1, step_s=0.3, queries={"cpu": "c"})
    assert np.allclose(seen.time_s, 0.1 + 0.3 * np.arange(11))


def test_the_default_queries_ask_for_every_measure(server):
    cpu = DEFAULT["cpu"].replace("$window", "120000ms")
    server.series = {cpu: [({"instance": "a:9100"}, always(0.5))]}
    seen = query_range(server.url + "/", start_s=0, end_s=60)
    assert seen.cpu.tolist() == [0.5] * 3
    assert [asked["query"].count("$") for asked in server.asked] == [0] * 6
    assert set(server.paths) == {"/api/v1/query_range"}


def test_the_window_of_a_rate_is_a_step_at_least(server):
    server.series = {"rate(x[300000ms])": [({"instance": "a"}, always(0.5))]}
    query_range(server.url, start_s=0, end_s=600, step_s=300, queries={"cpu": "rate(x[$window])"})


def test_instances_that_differ_in_the_port_alone_stay_apart(server):
    server.series = {
        "c": [({"instance": f"localhost:{port}"}, always(0.5)) for port in (9100, 9101)]
    }
    seen = query_range(server.url, start_s=0, end_s=0, queries={"cpu": "c"})
    assert seen.names == ("localhost:9100", "localhost:9101")


def test_headers_reach_the_server(server):
    server.series = {"c": [({"instance": "a"}, always(0.5))]}
    query_range(
        server.url,
        start_s=0,
        end_s=0,
        queries={"cpu": "c"},
        headers={"Authorization": "Bearer token"},
    )
    assert server.headers[0]["Authorization"] == "Bearer token"


def test_two_series_of_one_machine_are_refused(server):
    labels = ({"instance": "a", "cpu": "0"}, {"instance": "a", "cpu": "1"})
    server.series = {"c": [(label, always(0.5)) for label in labels]}
    with pytest.raises(TraceError, match=r"queries\['cpu'\] finds instance=a twice; join"):
        query_range(server.url, start_s=0, end_s=0, queries={"cpu": "c"})


def test_a_series_without_an_instance_is_refused(server):
    server.series = {"c": [({"job": "node"}, always(0.5))]}
    with pytest.raises(TraceError, match="without the label instance"):
        query_range(server.url, start_s=0, end_s=0, queries={"cpu": "c"})


def test_an_empty_result_is_refused(server):
    with pytest.raises(TraceError, match=r"no query found anything between 0 and 60 s"):
        query_range(server.url, start_s=0, end_s=60)


def test_the_servers_own_words_name_a_bad_query(server):
    error = {"status": "error", "errorType": "bad_data", "error": "parse error: unexpected end"}
    server.reply = (400, error)
    with pytest.raises(TraceError, match=r"'cpu'\]: HTTP 400: bad_data: parse error"):
        query_range(server.url, start_s=0, end_s=60, queries={"cpu": "sum("})


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((401, b"Unauthorized"), "HTTP 401: Unauthorized; give headers"),
        ((503, b""), "HTTP 503: an empty answer"),
        ((200, b"<html>log in</html>"), "not Prometheus' .<html>log in"),
        ((200, {"status": "success", "data": {"resultType": "vector", "result": []}}), "not Prom"),
        ((200, {"status": "error", "errorType": "execution", "error": "no"}), "execution: no"),
    ],
)
def test_an_answer_that_is_no_matrix_is_refused(server, reply, message):
    server.reply = reply
    with pytest.raises(TraceError, match=message):
        query_range(server.url, start_s=0, end_s=60)


def test_a_server_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(TraceError, match=rf"{url}: cannot be reached \(Connection refused\)"):
            query_range(url, start_s=0, end_s=60)


def test_a_server_that_does_not_answer_is_left(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TraceError, match=r"no answer in 0\.1 s"):
            query_range(url, start_s=0, end_s=60, timeout_s=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "localhost:9090"}, "is not an address"),
        ({"url": "file:///etc/hosts"}, "is not an address"),
        ({"start_s": 70}, "start_s=70 is not before end_s=60"),
        ({"end_s": float("inf")}, "is not before"),
        ({"step_s": 0}, "step_s=0 is not positive"),
        ({"queries": {"power": "x"}}, "'power'. is not a measure; known: cpu, mem"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(change, message):
    asked = {"url": "http://127.0.0.1:1", "start_s": 0, "end_s": 60} | change
    with pytest.raises(TraceError, match=message):
        query_range(asked.pop("url"), **asked)
