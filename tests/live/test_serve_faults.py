"""`trimtab serve` loses no request when servers are killed, stopped, swamped or given nonsense."""

import shutil
import signal

import numpy as np
import psutil
from tests.live.serving import Load, Serving, body_of, post

from trimtab.serving.routing.learned_router import SHIPPED

IMAGE = np.random.default_rng(7).random((1, 3, 32, 32), np.float32)
BODY = body_of(IMAGE)
CROWD = 32


def test_killed_servers_lose_nothing_and_come_back():
    with Serving("--servers", "2", "--router", "shortest_queue", "--queue-max", "64") as serving:
        right = post(serving, BODY)[1]["outputs"][0]["data"]
        running = Load(serving, 8, BODY)
        for turn in range(2):
            many = len(running.answers)
            serving.until(lambda many=many: len(running.answers) > many + 30)
            victim = serving.children()[f"local-{turn}"]
            assert in_flight(serving) > 0
            victim.send_signal(signal.SIGKILL)
            serving.until(
                lambda victim=victim, turn=turn: (
                    serving.children().get(f"local-{turn}", victim) != victim
                    and serving.text().count(f"local-{turn} is ready") == 2
                ),
                60,
            )
        running.stop()
        resent = serving.metric("trimtab_serve_resent_rows_total")
        assert serving.stop() == 0
        assert not serving.orphans()
    assert running.statuses() == {200}
    assert not running.errors
    assert len(running.answers) == running.asked
    assert resent > 0
    assert all(found["outputs"][0]["data"] == right for _, _, found in running.answers)


def in_flight(serving):
    """Requests at servers, as seen within some looks: load comes and goes."""
    return max(serving.metric("trimtab_serve_in_flight_rows") for _ in range(5))


def test_all_but_one_killed_and_the_last_one_stopped_for_a_while():
    with Serving("--servers", "3", "--noop", "--router", "two_choices") as serving:
        running = Load(serving, 6, BODY, pause_s=0.002)
        serving.until(lambda: len(running.answers) > 100)
        servers = serving.children()
        for name in ("local-0", "local-1"):  # what loses two servers at once fails
            servers[name].send_signal(signal.SIGKILL)
            serving.until(lambda name=name: f"{name} is gone" in serving.text())
            many = len(running.answers)
            serving.until(lambda many=many: len(running.answers) > many + 50)
        serving.until(lambda: serving.text().count("is ready (3 in all)") == 2, 60)
        servers["local-2"].send_signal(signal.SIGSTOP)
        serving.until(lambda: "local-2 is silent" in serving.text())
        many = len(running.answers)
        serving.until(lambda: len(running.answers) > many + 100)
        servers["local-2"].send_signal(signal.SIGCONT)
        serving.until(lambda: serving.text().count("local-2 is ready") == 2)
        running.stop()
        assert serving.stop() == 0
        assert not serving.orphans()
    assert running.statuses() == {200}
    assert not running.errors


def test_servers_end_when_their_front_is_killed():
    with Serving("--servers", "2", "--noop") as serving:
        servers = list(serving.children().values())
        assert len(servers) == 2
        serving.process.kill()
        serving.process.wait(10)
        assert psutil.wait_procs(servers, timeout=60)[1] == []


def test_overload_is_refused_quickly_and_what_is_let_in_does_not_queue_behind_the_crowd():
    # a server that rests for 49 of 50 seconds: on any machine it is slower than those who ask
    options = ("--shares", "0.02", "--router", "slimmest", "--objective-ms", "300")
    with Serving(*options) as serving:
        running = Load(serving, CROWD, BODY, pause_s=0.2)
        serving.until(lambda: min(map(len, ended(running))) > 20, 120)
        running.stop()
        text = serving.text()
        assert serving.stop() == 0
    assert running.statuses() == {200, 429} or running.statuses() == {200, 503}, text
    assert not running.errors
    done, refused = ended(running)
    assert np.median(refused) < np.median(done)
    # those let in at once on average, by Little's law: what comes in beyond them is refused
    assert sum(done) / (running.ended_s - running.began_s) < CROWD / 2


def ended(load):
    """Seconds that each request took: those answered, those refused."""
    with load.lock:
        told = list(load.answers)
    done = [spent_s for status, spent_s, _ in told if status == 200]
    return done, [spent_s for status, spent_s, _ in told if status != 200]


def test_a_corrupt_router_falls_back_and_says_so(tmp_path):
    path = tmp_path / "router.npz"
    path.write_bytes(b"PK\3\4 not a router")
    with Serving("--noop", "--router", str(path)) as serving:
        assert "fallback" in serving.text()
        status, found, _ = post(serving, BODY)
        assert status == 200
        assert found["parameters"]["widths"] == "0.25,0.25,0.25,0.25"
        assert "router.npz" in serving.get("/metrics")[1]
        path.write_bytes(b"other nonsense")
        serving.until(lambda: "router not reloaded" in serving.text())
        serving.process.send_signal(signal.SIGHUP)
        serving.until(lambda: serving.text().count("router not reloaded") == 2)
        assert post(serving, BODY)[0] == 200
        assert serving.stop() == 0


def test_a_router_file_that_changes_is_taken_over_while_requests_run(tmp_path):
    path = tmp_path / "router.npz"
    shutil.copy(SHIPPED["light"], path)
    with Serving("--noop", "--router", str(path)) as serving:
        running = Load(serving, 4, BODY, pause_s=0.002)
        serving.until(lambda: len(running.answers) > 30)
        part = tmp_path / "part"
        shutil.copy(SHIPPED["learned"], part)
        part.replace(path)
        serving.until(lambda: "router router.npz loaded" in serving.text())
        many = len(running.answers)
        serving.until(lambda: len(running.answers) > many + 30)
        path.write_bytes(b"nonsense")
        serving.until(lambda: "router not reloaded" in serving.text())
        many = len(running.answers)
        serving.until(lambda: len(running.answers) > many + 30)
        running.stop()
        assert serving.stop() == 0
    assert running.statuses() == {200}
    assert not running.errors


def test_a_taken_port_is_one_line():
    with Serving("--noop") as serving:
        port = serving.address("http").split(":")[1]
        other = Serving("--noop", "--http-port", port, wait=False)
        with other:
            assert other.process.wait(60) == 2
            assert "choose another port" in other.text()
            assert "Traceback" not in other.text()
            assert not other.orphans()
        assert serving.ready()
        assert serving.stop() == 0
