"""The whole of `trimtab serve`, over real sockets and processes, when all goes well."""

import math
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.live.serving import Load, Serving, body_of, post, weights_path

from trimtab.serving.net.segments import Segments
from trimtab.serving.net.slim_weights import load

IMAGES = np.random.default_rng(7).random((3, 3, 32, 32), np.float32)
WIDTH_OF = {"0.25": 0, "0.5": 1, "0.75": 2, "1": 3}


@pytest.fixture(scope="module")
def serving():
    with Serving("--servers", "2", "--router", "slack_fit", "--with-grpc") as found:
        yield found
        assert found.stop() == 0
        assert not found.orphans()


@pytest.fixture(scope="module")
def segments():
    return Segments(load(weights_path()))


def direct(segments, images, widths):
    """Logits of the network run here, at widths as an answer names them."""
    x, before = images, 0
    for segment, text in enumerate(widths.split(",")):
        x = segments.run(segment, before, WIDTH_OF[text], x)
        before = WIDTH_OF[text]
    return x


def check(segments, logits, found_class, label, widths):
    wanted = direct(segments, IMAGES, widths)
    np.testing.assert_allclose(logits, wanted, rtol=1e-3, atol=1e-4)
    assert list(found_class) == wanted.argmax(axis=1).tolist()
    names = load(weights_path()).facts["classes"]
    assert list(label) == [names[at] for at in found_class]


def test_json_over_http_gives_the_networks_answer(serving, segments):
    status, found, _ = post(serving, body_of(IMAGES, ("logits", "class", "label")))
    assert status == 200
    data = {output["name"]: output["data"] for output in found["outputs"]}
    logits = np.array(data["logits"]).reshape(3, 100)
    check(segments, logits, data["class"], data["label"], found["parameters"]["widths"])
    assert found["parameters"]["server"].startswith("local-")


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_over_http_gives_the_networks_answer(serving, segments, binary):
    client = pytest.importorskip("tritonclient.http")
    with client.InferenceServerClient(serving.address("http")) as asks:
        assert asks.is_server_ready() and asks.is_model_ready("slim")
        given = client.InferInput("image", IMAGES.shape, "FP32")
        given.set_data_from_numpy(IMAGES, binary_data=binary)
        wanted = [client.InferRequestedOutput(name, binary_data=binary)
                  for name in ("logits", "class", "label")]  # fmt: skip
        found = asks.infer("slim", [given], outputs=wanted)
        widths = found.get_response()["parameters"]["widths"]
        label = [text.decode() if isinstance(text, bytes) else text
                 for text in found.as_numpy("label")]  # fmt: skip
        check(segments, found.as_numpy("logits"), found.as_numpy("class"), label, widths)


def test_tritonclient_over_grpc_gives_the_networks_answer(serving, segments):
    client = pytest.importorskip("tritonclient.grpc")
    with client.InferenceServerClient(serving.address("grpc")) as asks:
        assert asks.is_server_ready()
        given = client.InferInput("image", IMAGES.shape, "FP32")
        given.set_data_from_numpy(IMAGES)
        found = asks.infer("slim", [given], client_timeout=60)
        widths = found.get_response().parameters["widths"].string_param
        label = [text.decode() for text in found.as_numpy("label")]
        check(segments, found.as_numpy("logits"), found.as_numpy("class"), label, widths)


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (body_of(np.full((1, 3, 32, 32), math.nan)), 400, ""),
        (b'{"inputs": [{"name": "image"', 400, "JSON"),
        (body_of(np.zeros((1, 3, 8, 8))), 400, "shape"),
        (body_of(np.zeros((0, 3, 32, 32))), 400, ""),
        (body_of(np.zeros((65, 3, 32, 32))), 400, "at most 64"),
        (body_of(np.zeros((1, 3, 32, 32)), ("nothing",)), 400, "nothing"),
        (body_of(IMAGES[:1], timeout=1), 504, "deadline"),
        (b"\0" * 1000, 400, "JSON"),
    ],
)
def test_poisoned_requests_get_a_sentence_and_harm_nobody(serving, body, status, told):
    found, answer, _ = post(serving, body)
    assert found == status
    assert told in answer["error"]
    assert post(serving, body_of(IMAGES[:1]))[0] == 200


def test_the_example_of_the_guide_runs(serving):
    script = Path(__file__).parents[2] / "examples" / "ask_fleet.py"
    command = [sys.executable, script, serving.address("http")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "'server': 'local-" in done.stdout


def test_metrics_count_what_happened(serving):
    text = serving.get("/metrics")[1]
    assert 'router="slack_fit"' in text
    assert '"local-0"' in text


def test_a_deadline_that_can_be_met_is(serving):
    status, found, _ = post(serving, body_of(IMAGES[:1], timeout=5_000_000))
    assert status == 200
    assert found["parameters"]["widths"]


def test_sigterm_drains_ready_goes_first_and_nothing_fails():
    with Serving("--servers", "2", "--noop", "--grace-s", "0.6") as serving:
        running = Load(serving, 4, body_of(IMAGES[:1]), pause_s=0.002)
        serving.until(lambda: len(running.answers) > 50)
        serving.children()
        serving.process.send_signal(signal.SIGTERM)
        serving.until(lambda: not serving.ready())
        still = len(running.answers)
        serving.until(lambda: len(running.answers) > still + 10)  # answers go on in the grace
        running.stop()
        assert serving.process.wait(60) == 0
        assert not serving.orphans()
        assert "drained" in serving.text()
    assert running.statuses() <= {200, 503}
    assert not running.errors


def test_a_second_signal_ends_at_once():
    with Serving("--noop", "--grace-s", "20") as serving:
        serving.process.send_signal(signal.SIGINT)
        serving.until(lambda: "draining" in serving.text())
        assert serving.stop(signal.SIGINT, 10) == 130
        assert not serving.orphans()


def test_a_server_joins_and_leaves_while_requests_run():
    with Serving("--noop", "--fleet-port", "0", "--token", "secret") as serving:
        running = Load(serving, 4, body_of(IMAGES[:1]), pause_s=0.001)
        address = serving.address("fleet")
        command = [sys.executable, "-m", "trimtab", "serve", "join", address, "--noop", "--token"]
        wrong = subprocess.run([*command, "guess"], capture_output=True, text=True, timeout=600)
        assert wrong.returncode == 2
        assert "token is wrong" in wrong.stderr
        joined = subprocess.Popen([*command, "secret"], stdout=subprocess.DEVNULL)
        try:
            serving.until(lambda: "(2 in all)" in serving.text(), 60)
            many = len(running.answers)
            serving.until(lambda: len(running.answers) > many + 200)
            joined.send_signal(signal.SIGINT)
            assert joined.wait(60) == 0
        finally:
            joined.kill()
            joined.wait(10)
        many = len(running.answers)
        serving.until(lambda: len(running.answers) > many + 50)
        running.stop()
        assert serving.stop() == 0
    assert running.statuses() == {200}
    assert not running.errors
    used = {found["parameters"]["server"] for _, _, found in running.answers}
    assert len(used) == 2


def test_bad_options_are_one_line(tmp_path):
    command = [sys.executable, "-m", "trimtab", "serve"]
    for options, told in (
        (["--weights", str(tmp_path / "none.npz")], "no such file"),
        (["--router", "nonsense"], "max_batch"),
        (["--shares", "1,x"], "--shares"),
        (["--fixed", "0.3"], "0.25"),
        (["join", "nowhere"], "HOST:PORT"),
    ):
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=600)
        assert done.returncode == 2, done.stderr
        assert told in done.stderr
        assert "Traceback" not in done.stderr


def test_help_has_examples():
    command = [sys.executable, "-m", "trimtab", "serve", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0
    assert "serve join HOST:9000" in done.stdout
