"""One value of a query now, and the default queries."""

import math

import pytest
from tests.prometheus_server import always, prometheus_server

from trimtab.errors import TraceError
from trimtab.load.prometheus import LINK_QUERY, QUERIES, Server, check_address, instant, windowed

server = prometheus_server


def test_an_instant_query_gives_the_finite_values_of_its_series(server):
    server.series = {
        "load": [({"instance": n}, always(v)) for n, v in zip("abc", (0.25, 0.5, "NaN"))]
    }
    assert instant(Server(server.url), "load", 100.0) == [0.25, 0.5]
    assert server.asked == [{"query": "load", "time": "100.000"}]
    assert server.paths == ["/api/v1/query"]


def test_a_query_that_finds_nothing_gives_nothing(server):
    assert instant(Server(server.url), "absent", 100.0) == []


def test_a_bad_query_is_named_with_the_servers_words(server):
    server.reply = (400, {"status": "error", "errorType": "bad_data", "error": "parse error"})
    with pytest.raises(TraceError, match=r"query cpu: HTTP 400: bad_data: parse error; correct"):
        instant(Server(server.url), "sum(", 0.0, "query cpu")


def test_a_range_is_no_instant(server):
    server.reply = (200, {"status": "success", "data": {"resultType": "matrix", "result": []}})
    with pytest.raises(TraceError, match="not Prometheus'"):
        instant(Server(server.url), "up", 0.0)


def test_the_window_of_rates_is_put_in():
    assert windowed("rate(x[$window])", 120.0) == "rate(x[120000ms])"


def test_default_queries_have_balanced_brackets_and_no_gaps_but_the_window():
    for query in (*QUERIES.values(), LINK_QUERY):
        filled = windowed(query, 60.0)
        assert "$" not in filled
        assert all(filled.count(a) == filled.count(b) for a, b in ("()", "[]", "{}"))


@pytest.mark.parametrize("url", ["localhost:9090", "file:///etc/hosts", "http://"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(TraceError, match="is not an address"):
        check_address(url)


def test_a_value_that_is_not_a_number_is_left_out(server):
    server.series = {"x": [({}, always("+Inf")), ({}, always(0.1))]}
    values = instant(Server(server.url), "x", 0.0)
    assert values == [0.1] and all(math.isfinite(value) for value in values)
