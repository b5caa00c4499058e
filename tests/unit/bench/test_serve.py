"""The servers' benchmark: what is asked is right, strangers are found out, nothing is left."""

import json
import signal
import socket
import subprocess
import sys

import numpy as np
import psutil
import pytest

from trimtab import cli
from trimtab.bench import serve, serve_hosts
from trimtab.bench.chosen import chosen_of
from trimtab.bench.peer_servers.front import MODEL
from trimtab.bench.peer_servers.ours import words
from trimtab.bench.serve import CASES, METRICS, Plan, Row, Session, highest
from trimtab.bench.serve_hosts import FLOOR, OURS, SERVERS, Host, Server, hosted, missing
from trimtab.bench.serve_wires import (
    AT_PREDICT,
    BINARY,
    JSON,
    check,
    expected,
    images,
    requests,
    wrong,
)
from trimtab.errors import ServeError, UnknownName
from trimtab.serving.client.load_gen import Driven, python_env
from trimtab.serving.front.oip import read_request, write_answer
from trimtab.serving.nouns import Answer

FRONT = [sys.executable, "-P", "-m", "trimtab.bench.peer_servers.front", "--model", "noop"]


def split(request: bytes) -> tuple[bytes, int | None]:
    """Body of a request, and the length of its JSON part where binary follows."""
    head, _, body = request.partition(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    assert int(fields[b"Content-Length"]) == len(body)
    size = fields.get(b"Inference-Header-Content-Length")
    return body, None if size is None else int(size)


def answered(kept: dict[int, bytes], statuses: list[int], body_of: list[int]) -> Driven:
    none = np.zeros(len(statuses))
    return Driven(none, none, none, np.array(statuses), np.array(body_of), kept, 1.0, 1.0)


@pytest.mark.parametrize("wire", [JSON, BINARY], ids=["json", "binary"])
def test_both_forms_carry_the_same_image_and_their_answers_are_read(wire):
    pixels = images()
    for image, request in zip(pixels, requests(wire)):
        asked, binary = read_request(MODEL, *split(request), 0.0)
        assert (asked.inputs["image"][0] == image).all()
    logits = np.arange(100, dtype=np.float32)
    pieces, _ = write_answer(MODEL, asked, binary, Answer({"logits": logits[None]}))
    assert (wire.logits(b"".join(pieces)) == logits).all()
    assert len(np.unique(pixels, axis=0)) == len(pixels)


def test_a_plain_request_has_the_same_pixels():
    body, _ = split(requests(AT_PREDICT)[3])
    assert (np.array(json.loads(body)["image"], np.float32) == images()[3].ravel()).all()


def test_an_answer_to_another_request_is_found_out():
    right = expected("net")
    assert len({row.tobytes() for row in right}) == len(right)
    bodies = [json.dumps({"logits": row.tolist()}).encode() for row in right]
    good = answered({0: bodies[0], 1: bodies[1]}, [200, 200], [0, 1])
    assert wrong(AT_PREDICT, "net", good) == 0
    mixed_up = answered({0: bodies[1], 1: b"{}"}, [200, 200], [0, 1])
    assert wrong(AT_PREDICT, "net", mixed_up) == 2
    with pytest.raises(ServeError, match="2 of 2 net answers are wrong"):
        check(AT_PREDICT, "net", mixed_up)
    with pytest.raises(ServeError, match="another server"):
        check(AT_PREDICT, "noop", good)
    refused = answered({0: b"busy"}, [503], [0])
    check(AT_PREDICT, "net", refused)


@pytest.mark.parametrize("limit_hz", [40.0, 90.0, 100.0, 1000.0])
def test_the_highest_rate_is_found_from_below_and_from_above(limit_hz):
    tried = []

    def passes(rate_hz: float) -> bool:
        tried.append(rate_hz)
        return rate_hz <= limit_hz

    found = highest(passes, 100.0, refine=3)
    assert limit_hz / 1.5 ** (1 / 8) <= found <= limit_hz
    assert found in tried


def test_a_server_that_holds_no_rate_reaches_none():
    assert highest(lambda rate_hz: False, 100.0, 3) == 0.0
    assert highest(lambda rate_hz: True, 0.0, 3) == 0.0


def row(metric: str, **servers: float) -> Row:
    names = {"ours": OURS, "bare": FLOOR, "lit": "LitServe", "ml": "MLServer"}
    return Row("noop-json", metric, {names[key]: (v, v, v) for key, v in servers.items()})


def test_the_best_peer_has_most_of_a_rate_and_least_of_a_cost():
    rate = row("rate", ours=600.0, bare=900.0, lit=200.0, ml=300.0)
    assert (rate.peer, rate.times(rate.peer)) == ("MLServer", 2.0)
    cost = row("cpu", ours=0.5, bare=0.25, lit=2.0, ml=1.0)
    assert (cost.peer, cost.times(cost.peer)) == ("MLServer", 2.0)
    assert serve.floor_cpu([rate, cost], "noop-json") == 2.0
    assert row("rate", bare=1.0).as_json()["value"] is None
    assert row("rate", ours=1.0).times(None) is None
    json.dumps(row("closed-16-p99", ours=float("inf")).as_json(), allow_nan=False)


def test_rounds_are_interleaved_and_the_median_counts(monkeypatch):
    monkeypatch.setattr(serve, "missing", lambda name, python: "")
    plan = Plan((OURS, FLOOR, "LitServe"), dict.fromkeys(SERVERS, "x"), CASES, rounds=2)
    session = Session(plan)
    one_round = [(name, model) for model in ("noop", "net") for name in plan.servers]
    assert session.turns == one_round * 2
    for value in (5.0, 1.0, 2.0):
        values = dict.fromkeys(METRICS, value)
        session.points.append(serve.Point(OURS, "net-json", values, {}, 1.0, 1.0))
    assert session.rows()[0].servers == {OURS: (2.0, 1.0, 5.0)}


def test_a_server_that_fails_is_named_and_the_others_go_on(monkeypatch):
    def measure(self, name, model):
        if name == OURS:
            raise ServeError("it broke")
        self.points.append((name, model))

    monkeypatch.setattr(serve, "missing", lambda name, python: "")
    monkeypatch.setattr(Session, "measure", measure)
    session = Session(Plan((OURS, FLOOR), dict.fromkeys(SERVERS, "x"), CASES, rounds=2))
    assert list(session.run())[-1] == "done"
    assert session.notes == {OURS: "it broke"}
    assert session.points == [(FLOOR, "noop"), (FLOOR, "net")] * 2


def test_names_that_are_unknown_are_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match="known: trimtab, trimtab-front, bare-app"):
        serve_hosts.named(["litserv"])
    with pytest.raises(UnknownName, match="known: noop-json"):
        chosen_of(["noop"], CASES, "case")
    assert chosen_of(["net-json,noop-json"], CASES, "case") == ("noop-json", "net-json")
    with pytest.raises(ServeError, match="/no/python is not a file"):
        serve_hosts.interpreters(["litserve=/no/python"])


def test_an_interpreter_is_given_to_all_peers_or_to_one(tmp_path):
    other = tmp_path / "python"
    other.touch()
    found = serve_hosts.interpreters([f"litserve={other}", __file__])
    assert (found[OURS], found["LitServe"], found["MLServer"]) == (
        sys.executable,
        str(other),
        __file__,
    )


def test_a_peer_that_is_not_installed_says_what_to_install(monkeypatch):
    peer = Server("none", ("no_such_package.at_all",), "no-such-package")
    monkeypatch.setitem(SERVERS, "LitServe", peer)
    said = missing("LitServe", sys.executable)
    assert said == f"not installed: {sys.executable} -m pip install no-such-package"
    assert Session(Plan(("LitServe",), {"LitServe": sys.executable})).notes == {"LitServe": said}


def test_a_server_answers_for_itself_and_leaves_nothing():
    orphans: dict[str, int] = {}
    with hosted("Trimtab front", "noop", orphans=orphans) as host:
        assert host.cpu_s() > 0 and host.memory_mb() > 1
        pids = [process.pid for process in host.members()]
        assert host.process.pid in pids
    assert orphans == {"Trimtab front": 0}
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_every_server_is_told_how_many_of_its_processes_compute(monkeypatch):
    told = []

    def started(command, **settings):
        told.append(command[command.index("--processes") + 1])
        raise ServeError("far enough")

    monkeypatch.setattr(serve_hosts.subprocess, "Popen", started)
    monkeypatch.setattr(serve, "missing", lambda name, python: "")
    plan = Plan(tuple(SERVERS), dict.fromkeys(SERVERS, "x"), ("noop-json",), 1, processes=3)
    session = Session(plan)
    list(session.run())
    assert told == ["3"] * len(SERVERS)
    assert set(session.notes.values()) == {"far enough"}


def test_ours_computes_in_as_many_servers_as_there_are_processes():
    asked = words("net", 1, 3)
    assert asked[asked.index("--servers") + 1] == "3"


def test_a_server_that_does_not_start_gives_its_last_words():
    said = "ended before it served: the front alone has no network"
    with pytest.raises(ServeError, match=said), hosted("Trimtab front", "net"):
        pass


def test_a_port_that_another_process_holds_is_found_out():
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
        host = Host("LitServe", "noop", stranger.getsockname()[1], process)
        try:
            with pytest.raises(ServeError, match="no process that was started listens"):
                host.own_port()
        finally:
            process.kill()
            process.wait()


LEAVES_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                         start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_a_process_left_behind_is_counted_and_killed():
    process = subprocess.Popen(
        [sys.executable, "-c", LEAVES_A_CHILD], stdout=subprocess.PIPE, text=True
    )
    host = Host("LitServe", "noop", 1, process)
    left = psutil.Process(int(process.stdout.readline()))
    assert host.stop() == 1
    assert process.returncode == -signal.SIGTERM
    assert not serve_hosts.alive(left)
    process.stdout.close()


def test_a_server_ends_itself_when_its_time_is_over():
    words = [*FRONT, "--port", "0", "--limit-s", "0.2"]
    process = subprocess.Popen(words, start_new_session=True, env=python_env())
    assert process.wait(60) == -signal.SIGKILL


def run(monkeypatch, capsys, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["trimtab", "bench", "serve", *words])
    with pytest.raises(SystemExit) as done:
        cli.main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


@pytest.mark.slow
def test_a_quick_run_measures_every_column(monkeypatch, capsys, tmp_path):
    path = tmp_path / "serve.json"
    words = ("--quick", "--only", "noop-binary", "--server", "trimtab-front", "--json", str(path))
    code, out, _ = run(monkeypatch, capsys, *words, "--seconds", "0.2")
    rows = {each["name"]: each for each in json.loads(path.read_text())}
    assert code == 0
    assert list(rows)[: len(METRICS)] == [f"noop-binary-{name}" for name in METRICS]
    for name, metric in METRICS.items():
        found = rows[f"noop-binary-{name}"]
        assert (found["unit"], found["peer"], found["value"]) == (metric.unit, None, None)
        assert found["servers"]["Trimtab front"]["median"] > 0 or name == "idle"
    assert rows["generator-cpu"]["value"] > 0
    assert rows["orphans"]["value"] == 0
    for said in ("trimtab bench serve --quick", " cores; Python", "Trimtab front", "left behind"):
        assert said in out


def test_bad_numbers_are_one_line(monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, "--rounds", "0")
    assert (code, out) == (2, "")
    assert err.startswith("error: --rounds 0")
    code, out, err = run(monkeypatch, capsys, "--processes", "0")
    assert (code, out) == (2, "")
    assert "--processes 0" in err and "1..64" in err
