"""A real HTTP server on this machine that answers as Prometheus' API does."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

LIMIT = 11_000  # points a series that a real server allows in one answer


class Prometheus:
    """Answers range and instant queries from `series`: {query: [(labels, value of a time)]}.

    A value of None leaves a gap.
    """

    def __init__(self):
        self.series, self.asked, self.paths, self.headers = {}, [], [], []
        self.reply = None  # (status, body) in place of the data
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.paths.append(urlsplit(self.path).path)
                outer.headers.append(dict(self.headers))
                fields = parse_qs(urlsplit(self.path).query)
                status, body = outer.reply or outer.answer({k: v[0] for k, v in fields.items()})
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def answer(self, asked):
        self.asked.append(asked)
        if "time" in asked:
            return self.instant(asked)
        start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
        if (end - start) / step > LIMIT:
            problem = "exceeded maximum resolution of 11,000 points per timeseries"
            return 400, {"status": "error", "errorType": "bad_data", "error": problem}
        times = [start + step * i for i in range(int((end - start) / step + 1e-6) + 1)]
        result = []
        for labels, value in self.series.get(asked["query"], []):
            values = [[time_s, str(value(time_s))] for time_s in times if value(time_s) is not None]
            if values:
                result.append({"metric": labels, "values": values})
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": result}}

    def instant(self, asked):
        time_s = float(asked["time"])
        found = [(labels, value(time_s)) for labels, value in self.series.get(asked["query"], [])]
        result = [
            {"metric": labels, "value": [time_s, str(value)]}
            for labels, value in found
            if value is not None
        ]
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def prometheus_server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Prometheus()
    yield made
    made.close()


def always(value):
    """A series that does not change."""
    return lambda time_s: value
