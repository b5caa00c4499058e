"""The constants that the package ships."""

import json
from pathlib import Path

import numpy as np
import pytest

from trimtab.llm.cost.constants import ARCHS, PATH, law_of, read, replace_section
from trimtab.llm.cost.kernels import LAW
from trimtab.llm.spec import specs


@pytest.mark.parametrize("arch", ARCHS)
def test_every_architecture_has_a_whole_law(arch: str):
    found = law_of(arch)
    assert found.values.shape == (len(LAW),)
    assert np.isfinite(found.values).all()
    assert (found.values >= 0).all()


@pytest.mark.parametrize("arch", ["Ampere", "Hopper"])
def test_a_measured_architecture_needs_no_stand_in(arch: str):
    assert law_of(arch).spread == 0.0
    assert law_of(arch).note == ""


@pytest.mark.parametrize(("arch", "like"), [("Blackwell", "Hopper"), ("Volta", "Ampere")])
def test_an_unmeasured_architecture_says_what_stands_in_for_it(arch: str, like: str):
    found = law_of(arch)
    assert arch in found.note
    assert like in found.note
    assert found.spread > 0.1
    place = LAW.index("gemm_byte")
    assert found.values[place] == law_of(like).values[place]


def test_an_unknown_architecture_is_the_least_sure():
    assert law_of("Itanium").spread == max(law_of(arch).spread for arch in ARCHS)


def test_every_gpu_has_an_architecture_of_its_own_or_a_stand_in():
    named = read()["kernels"]["archs"]
    assert {gpu.arch for gpu in specs.gpus().values()} <= set(named)


def test_a_section_is_replaced_alone_and_equal_numbers_give_equal_bytes(tmp_path: Path):
    path = tmp_path / "constants.json"
    replace_section("one", {"b": 2.0, "a": 1.0}, path)
    replace_section("two", {"c": 3.0}, path)
    first = path.read_bytes()
    replace_section("one", {"a": 1.0, "b": 2.0}, path)
    assert path.read_bytes() == first
    assert json.loads(first) == {"one": {"a": 1.0, "b": 2.0}, "two": {"c": 3.0}}


def test_the_shipped_file_says_how_it_was_fitted():
    found = json.loads(PATH.read_text(encoding="utf-8"))
    for name in ("kernels", "links", "serving"):
        section = found[name]
        assert section["command"].startswith("trimtab plan fit")
        assert section["figures"]
        assert section["fitted"]


def test_products_fit_better_than_the_additive_law():
    # the additive law t = cF F/peak + cB bytes/BW + t0 reaches 6.9 % and 9.6 %
    errors = {row["what"]: row["held_out_error"] for row in read()["kernels"]["figures"]}
    assert errors["products, a100"] < 0.069
    assert errors["products, h100"] < 0.096
