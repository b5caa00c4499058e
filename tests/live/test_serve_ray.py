"""Servers as Ray actors join, answer, come back after a kill and leave nothing behind."""

import signal

import numpy as np
import pytest
from tests.live.serving import Serving, body_of, post

pytest.importorskip("ray")

BODY = body_of(np.zeros((1, 3, 32, 32), np.float32))


def test_a_fleet_of_ray_actors_answers_survives_a_kill_and_drains():
    with Serving("--ray", "--noop") as serving:
        status, found, _ = post(serving, BODY)
        assert (status, found["parameters"]["server"]) == (200, "ray-0")
        server = serving.server_pid("ray-0")
        server.send_signal(signal.SIGKILL)
        serving.until(lambda: serving.text().count("ray-0 is ready") == 2, 60)
        assert post(serving, BODY)[0] == 200
        whole = serving.tree()
        assert serving.stop() == 0
        assert not serving.alive(whole)
