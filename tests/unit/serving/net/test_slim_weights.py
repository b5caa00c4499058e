"""The weight file of a slimmable network: small, whole, and readable without torch."""

import subprocess
import sys

import numpy as np
import pytest

from trimtab.errors import ServeError
from trimtab.serving.net.slim_form import Form, parameters
from trimtab.serving.net.slim_weights import as_stored, dense, load, quantised, save, shapes

SMALL = Form(channels=(16, 16, 32, 32), group=4, classes=5, blocks=(1, 1, 1, 1), side=8)


def arrays(form=SMALL, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype("f4") for name, shape in shapes(form).items()}


def test_a_file_gives_back_what_it_says_it_stores(tmp_path):
    facts = {"command": "train", "accuracy_stored": [0.5] * 256}
    save(tmp_path / "a.npz", SMALL, arrays(), facts)
    held = load(tmp_path / "a.npz")
    expected = as_stored(arrays())
    assert held.form == SMALL
    assert held.facts == facts
    assert (held.accuracy == 0.5).all()
    assert held.arrays.keys() == expected.keys()
    assert all(np.array_equal(held.arrays[name], value) for name, value in expected.items())


def test_a_file_without_measurements_has_no_accuracy(tmp_path):
    save(tmp_path / "a.npz", SMALL, arrays(), {})
    assert np.isnan(load(tmp_path / "a.npz").accuracy).all()


def test_a_quantised_filter_is_the_filter_at_mean_square_one_to_half_a_level():
    weight = np.random.default_rng(0).normal(size=(6, 5, 3, 3)) * 1e-5  # after much weight decay
    levels, scale = quantised(weight)
    assert levels.dtype == np.int8 and scale.dtype == np.float16
    flat = weight.reshape(6, -1)
    flat = flat / np.sqrt((flat**2).mean(1, keepdims=True))
    error = np.abs(levels.reshape(6, -1) * scale[:, None].astype(float) - flat)
    # half a level, and what rounding the scale to float16 may cut off the largest
    assert (error <= scale[:, None].astype(float) * (0.5 + 127 * 2**-11)).all()


def test_a_filter_of_zeros_stays_zero():
    levels, scale = quantised(np.zeros((2, 3, 1, 1)))
    assert not levels.any() and np.isfinite(scale).all()


def test_a_resnet_18_fits_in_twelve_megabytes(tmp_path):
    # random numbers compress worst
    save(tmp_path / "a.npz", Form(), arrays(Form()), {"accuracy_stored": [0.123456] * 256})
    assert (tmp_path / "a.npz").stat().st_size <= 12_000_000


def test_dense_arrays_are_as_many_as_the_segments_have():
    from trimtab.serving.net.slim_weights import Weights

    weights, widths = Weights(SMALL, arrays(), {}), (2, 0, 3, 1)
    held = [
        dense(weights, segment, widths[max(segment - 1, 0)], width)
        for segment, width in enumerate(widths)
    ]
    count = sum(value.size for one in held for value in one.values())
    assert count == parameters(SMALL, widths) + 2 * 3  # and the mean and spread of pixels


def test_loading_needs_no_torch(tmp_path):
    save(tmp_path / "a.npz", SMALL, arrays(), {})
    code = (
        "import sys; from trimtab.serving.net.slim_weights import load;"
        f"load({str(tmp_path / 'a.npz')!r}); import trimtab.serving.net.segments;"
        "print({'torch', 'onnx'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_weights_that_are_not_finite_are_not_written(tmp_path):
    bad = arrays()
    bad["stem.gain"][0] = np.nan
    with pytest.raises(ServeError, match=r"stem\.gain"):
        save(tmp_path / "a.npz", SMALL, bad, {})
    assert not list(tmp_path.iterdir())


def test_weights_with_a_part_missing_are_not_written(tmp_path):
    held = arrays()
    del held["head.bias"]
    with pytest.raises(ServeError, match=r"head\.bias"):
        save(tmp_path / "a.npz", SMALL, held, {})


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut off"])
def test_a_file_of_something_else_is_refused_by_name(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ServeError, match=r"a\.npz: not a weight file"):
        load(tmp_path / "a.npz")


def test_an_npz_of_something_else_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with pytest.raises(ServeError, match="not a weight file"):
        load(tmp_path / "a.npz")


def test_a_truncated_file_is_refused(tmp_path):
    save(tmp_path / "a.npz", SMALL, arrays(), {})
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "b.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ServeError, match=r"b\.npz"):
        load(tmp_path / "b.npz")


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(ServeError, match=r"none\.npz: no such file"):
        load(tmp_path / "none.npz")
