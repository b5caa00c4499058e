"""Where the plays of a training run, and what is said where Ray is not there."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from trimtab.errors import PolicyError
from trimtab.training.spread import check_place, spread


def test_here_it_is_the_executor_which_is_ended():
    with spread("", lambda: ThreadPoolExecutor(2)) as pool:
        assert list(pool.map(lambda number: number * number, range(4))) == [0, 1, 4, 9]
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.map(abs, [1])


def test_without_ray_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "trimtab.training.on_ray", raising=False)
    with (
        pytest.raises(PolicyError, match=r"on=ray needs Ray, .*; pip install 'trimtab\[ray\]'"),
        spread("ray", lambda: ThreadPoolExecutor(1)),
    ):
        pass


def test_an_unknown_place_is_named():
    with pytest.raises(PolicyError, match=r"on='rye' is unknown; give ray, ray:ADDRESS"):
        check_place("rye")
    for place in ("", "ray", "ray:auto", "ray:10.0.0.1:6379"):
        check_place(place)
