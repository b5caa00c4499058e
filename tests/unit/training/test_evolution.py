"""CMA-ES on functions whose least value is known."""

import numpy as np
import pytest

from trimtab.training.evolution import Evolution

N = 6


def ellipsoid(x):
    """Least 0 at 1; a step along the last axis counts a thousand times one along the first."""
    return (10.0 ** np.linspace(0, 3, N) * (x - 1) ** 2).sum(-1)


def rosenbrock(x):
    """Least 0 at 1, at the end of a bent valley."""
    return (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(-1)


def run(search, loss, generations):
    for _ in range(generations):
        candidates = search.ask()
        search.tell(candidates, loss(candidates))
    return search


@pytest.mark.parametrize(("loss", "generations"), [(ellipsoid, 250), (rosenbrock, 500)])
def test_it_finds_the_least(loss, generations):
    search = run(Evolution(np.zeros(N), 0.5, seed=1), loss, generations)
    assert search.mean == pytest.approx(np.ones(N), abs=1e-4)
    assert search.sigma < 1e-3


def test_only_ranks_count():
    plain = run(Evolution(np.zeros(N), 0.5, seed=2), ellipsoid, 20)
    bent = run(Evolution(np.zeros(N), 0.5, seed=2), lambda x: np.log(ellipsoid(x)), 20)
    assert plain.mean.tolist() == bent.mean.tolist()


def test_a_search_that_was_stopped_goes_on_to_the_last_bit():
    whole = run(Evolution(np.zeros(N), 0.5, seed=3), ellipsoid, 30)
    first = run(Evolution(np.zeros(N), 0.5, seed=3), ellipsoid, 12)
    second = Evolution(np.zeros(N), 0.5, seed=3)
    second.load(first.state())
    run(second, ellipsoid, 18)
    assert second.mean.tolist() == whole.mean.tolist()
    assert second.sigma == whole.sigma


def test_seeds_differ_and_nothing_to_choose_is_refused():
    one, two = (Evolution(np.zeros(N), 0.5, seed=seed).ask() for seed in (1, 2))
    assert one.tolist() != two.tolist()
    assert one.shape == (4 + int(3 * np.log(N)), N)
    for bad in ({"sigma": 0.0}, {"sigma": 1.0, "population": 1}):
        with pytest.raises(ValueError, match="leave nothing to choose"):
            Evolution(np.zeros(N), **bad)
