"""`trimtab serve` takes what training and profiling wrote, and says what another file is."""

import numpy as np
import pytest
from tests.fleets import FORM, PROFILE

from trimtab.errors import ServeError
from trimtab.files.formats import KINDS, family, kind_of
from trimtab.llm.calibrate import gpu_profile
from trimtab.serving.net import serve_profile, slim_weights
from trimtab.serving.routing import learned_router, lookahead
from trimtab.serving.routing.router_net import fresh_net
from trimtab.serving.service import Service
from trimtab.serving.settings import Settings


def weights_to(path):
    """What `trimtab train slim` writes with at its end."""
    rng = np.random.default_rng(0)
    shapes = slim_weights.shapes(FORM)
    arrays = {name: rng.random(shape, np.float32) + 0.5 for name, shape in shapes.items()}
    slim_weights.save(path, FORM, arrays, {"accuracy_stored": np.linspace(0.5, 0.9, 256).tolist()})


def router_to(path):
    """What `trimtab train router` writes with."""
    net = fresh_net(lookahead.SIGHTS, 4, lookahead.STEERED)
    learned_router.save(path, learned_router.AHEAD, net, {"command": "trimtab train router"})


def profile_to(path):
    """What `trimtab serve profile` writes with."""
    serve_profile.save(PROFILE, path)


@pytest.fixture
def files(tmp_path):
    """One file of each kind, by the option that takes it; and some that serving does not take."""
    weights_to(tmp_path / "slim.npz")
    router_to(tmp_path / "router.npz")
    profile_to(tmp_path / "here.npz")
    (tmp_path / "dqn.onnx").write_bytes(b"\x08\x07\x12\x07pytorch")
    (tmp_path / "checkpoint.pt").write_bytes(b"PK\x03\x04")
    (tmp_path / "gpu-profile.json").write_text(f'{{"format": "{gpu_profile.FORMAT}",\n "gpu": {{')
    return tmp_path


def service(**settings):
    lines = []
    made = Service(Settings(**settings), lines.append)
    made.close()
    return made


def test_serve_takes_what_train_slim_train_router_and_serve_profile_write(files):
    made = service(
        weights=str(files / "slim.npz"),
        router=str(files / "router.npz"),
        profile=str(files / "here.npz"),
    )
    assert (made.books.router.name, made.books.router.problem) == ("router.npz", "")
    assert made.weights.form == FORM
    assert made.profile.source == PROFILE.source
    assert made.profile.accuracy[-1] == pytest.approx(0.9)  # of these very weights


@pytest.mark.parametrize(
    ("option", "file", "told"),
    [
        ("weights", "router.npz", "a router, which `trimtab serve --router` takes"),
        ("weights", "here.npz", "`trimtab serve --profile` takes"),
        ("weights", "checkpoint.pt", "checkpoint, which `trimtab train` goes on from"),
        ("profile", "slim.npz", "`trimtab serve --weights` takes"),
        ("profile", "gpu-profile.json", "`trimtab plan --profile` takes"),
        ("router", "dqn.onnx", "a policy's network, which `trimtab compare` takes"),
        ("router", "gpu-profile.json", "`trimtab plan --profile` takes"),
    ],
)
def test_a_file_of_another_kind_is_told_in_one_line(files, option, file, told):
    with pytest.raises(ServeError) as raised:
        service(**{option: str(files / file)})
    line = str(raised.value)
    assert told in line and file in line and "\n" not in line


def test_a_router_that_is_another_npz_falls_back_and_says_what_the_file_is(files):
    router = service(router=str(files / "slim.npz")).books.router
    assert "fallback" in router.name
    assert (
        "slim.npz: not a learned router, but the weights of a slimmable network" in router.problem
    )


def test_every_format_that_is_written_is_known():
    for module in (slim_weights, learned_router, serve_profile, gpu_profile):
        assert family(module.FORMAT) in KINDS


def test_a_file_of_a_later_version_is_named_as_such(files, monkeypatch):
    monkeypatch.setattr(learned_router, "FORMAT", "trimtab router 2")
    with pytest.raises(ServeError, match=r"router\.npz: its format is 'trimtab router 1'"):
        learned_router.read(files / "router.npz")


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": ', b"[1]", b"\xff\xfe", b"PK\x03\x04"])
def test_a_file_of_nobody_has_no_kind(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    assert kind_of(tmp_path / "x.npz") == ""
    assert kind_of(tmp_path / "none.npz") == ""
