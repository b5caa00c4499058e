"""The runtime memory: what it learns from few runs, forgets, saves and refuses."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

from trimtab.errors import PolicyError, UnknownName
from trimtab.policies.adlro.factorised import FactorisedPrior
from trimtab.policies.adlro.memory import FIELDS, METHODS, RuntimeMemory, drawn_items, load

KINDS = ("k80", "p100", "v100")
SPEED = dict(zip(KINDS, (1.0, 3.0, 5.0)))


def hyperdimensional(**settings) -> RuntimeMemory:
    pytest.importorskip("torchhd")
    return RuntimeMemory(KINDS, method="hyperdimensional", **settings)


def factorised(**settings) -> RuntimeMemory:
    return RuntimeMemory(KINDS, method="factorised", **settings)


def job(job_type: str, batch_size: float, **more) -> dict:
    return {"job_type": job_type, "batch_size": batch_size, **more}


def taught(memory: RuntimeMemory) -> RuntimeMemory:
    """Two job types on all kinds: the rate is the kind's speed, halved by four times the batch."""
    for (name, scale), kind, size in itertools.product(
        (("a", 1.0), ("b", 40.0)), KINDS, (4, 16, 64)
    ):
        memory.observe(job(name, size), kind, scale * SPEED[kind] / math.sqrt(size))
    return memory


@pytest.mark.parametrize("method", METHODS)
def test_one_run_of_a_new_type_tells_its_rate_on_every_kind(method):
    memory = taught(hyperdimensional() if method == "hyperdimensional" else factorised())
    memory.observe(job("new", 16), "k80", 7.0)
    # the kinds' speeds are 1 : 3 : 5 for all types; from 16 to 64 the rate halves
    expected = np.array([7.0, 21.0, 35.0]) / 2
    assert memory.predict(job("new", 64)).mean == pytest.approx(expected, rel=0.1)


def test_a_type_that_defies_the_prior_is_recalled_by_its_own_runs():
    # slow on the fastest kind, unlike every other type
    memories = {"hyperdimensional": taught(hyperdimensional()), "factorised": taught(factorised())}
    off = {}
    for method, memory in memories.items():
        for size, kind in itertools.product((4, 16), KINDS):
            memory.observe(job("odd", size), kind, 5.0 / SPEED[kind] / math.sqrt(size))
        off[method] = abs(math.log(memory.predict(job("odd", 8)).mean[2] / (1 / math.sqrt(8))))
    assert off["hyperdimensional"] < off["factorised"] / 2


def test_an_empty_memory_says_that_it_knows_nothing():
    found = factorised().predict(job("a", 4))
    assert np.isinf(found.spread).all()
    assert found.observations.tolist() == [0, 0, 0]


def test_spread_shrinks_with_runs_and_is_wider_far_from_them():
    memory = taught(hyperdimensional())
    spreads = []
    for _ in range(3):
        spreads.append(memory.predict(job("new", 16)).spread[0])
        memory.observe(job("new", 16), "k80", 7.0)
    assert spreads == sorted(spreads, reverse=True)
    assert memory.predict(job("new", 4096)).spread[0] > memory.predict(job("new", 16)).spread[0]


def test_observations_count_the_runs_of_the_type_on_each_kind():
    memory = taught(factorised())
    memory.observe(job("a", 4), "v100", 2.5)
    assert memory.predict(job("a", 999)).observations.tolist() == [3, 3, 4]


def test_numbers_may_be_missing():
    memory = taught(hyperdimensional())
    memory.observe({"job_type": "bare"}, "p100", 6.0)
    found = memory.predict({"job_type": "bare", "batch_size": None})
    assert found.mean == pytest.approx([2.0, 6.0, 10.0], rel=0.1)


def test_load_is_told_from_the_type():
    memory = hyperdimensional()
    for load_, name in itertools.product((0.0, 0.5, 1.0), ("a", "b")):
        memory.observe({"job_type": name, "load": load_}, "v100", 10.0 / (1 + load_))
    memory.observe({"job_type": "c", "load": 0.0}, "v100", 4.0)
    assert memory.predict({"job_type": "c", "load": 1.0}).mean[2] == pytest.approx(2.0, rel=0.15)


def test_after_drift_a_faded_past_yields_sooner():
    stayed, faded = taught(hyperdimensional()), taught(hyperdimensional())
    faded.refit(keep=0.2)
    for memory in (stayed, faded):
        memory.observe(job("a", 4), "v100", 0.5)  # five times slower since an update
    found = [memory.predict(job("a", 4)).mean[2] for memory in (stayed, faded)]
    assert abs(math.log(found[1] / 0.5)) < abs(math.log(found[0] / 0.5)) / 2


def test_what_has_faded_is_forgotten():
    memory = taught(factorised())
    memory.refit(keep=0.01)
    assert np.isinf(memory.predict(job("a", 4)).spread).all()


def test_a_full_type_forgets_its_oldest_run():
    memory = factorised(records_a_type=2)
    for size in (1, 2, 4):
        memory.observe(job("a", size), "k80" if size == 1 else "p100", 1.0)
    assert memory.predict(job("a", 1)).observations.tolist() == [0, 2, 0]


def test_one_seed_gives_one_prediction_and_another_nearly_the_same():
    one, same, other = (
        taught(hyperdimensional(seed=seed)).predict(job("a", 23)).mean for seed in (1, 1, 2)
    )
    assert one.tolist() == same.tolist()
    assert one.tolist() != other.tolist()
    assert other == pytest.approx(one, rel=0.1)


def test_records_are_torchhd_bundles_of_bound_roles_and_fillers():
    torchhd = pytest.importorskip("torchhd")
    import torch

    memory = hyperdimensional(seed=3)
    _, places = memory._read(job("a", 16384, load=0.0))
    kinds, batch_size, _, load_, _ = (
        torchhd.ensure_vsa_tensor(torch.from_numpy(item), "MAP")
        for item in drawn_items(3, len(FIELDS), 1024, 3)
    )
    batch, idle = batch_size[-1], load_[0]  # the highest level, and the lowest
    alone = torchhd.multiset(torch.stack((kinds[1], batch, idle)))
    together = torchhd.bind(torchhd.bind(kinds[1], batch), idle)
    expected = torchhd.bundle(alone, together).numpy() / math.sqrt(1024)
    assert memory._encode(places)[1] == pytest.approx(expected, abs=1e-6)


def test_levels_far_apart_are_less_alike():
    pytest.importorskip("torchhd")
    levels = drawn_items(3, 1, 4096, 0)[1]
    like = levels @ levels[0] / 4096  # (levels,)
    assert like[0] == 1
    assert like[[16, 32, 48, 63]] == pytest.approx([0.75, 0.5, 0.24, 0], abs=0.06)


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_memory_predicts_and_learns_as_before(tmp_path, method):
    memory = taught(hyperdimensional() if method == "hyperdimensional" else factorised())
    memory.observe({"job_type": "bare"}, "p100", 6.0)
    memory.refit(keep=0.5)
    memory.save(tmp_path / "memory")
    loaded = load(tmp_path / "memory")
    for one in (memory, loaded):
        one.observe(job("a", 4), "v100", 0.7)
    for asked in (job("a", 8), job("new", 8), {"job_type": "bare"}):
        for ours, theirs in zip(memory.predict(asked), loaded.predict(asked)):
            assert ours == pytest.approx(theirs, rel=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["memory"]


def test_a_saved_memory_loads_and_learns_without_torch(tmp_path):
    taught(hyperdimensional()).save(tmp_path / "memory")
    code = (
        "import sys; sys.modules['torch'] = sys.modules['torchhd'] = None\n"
        "from trimtab.policies.adlro.memory import load\n"
        f"memory = load({str(tmp_path / 'memory')!r})\n"
        "memory.observe({'job_type': 'new', 'batch_size': 16}, 'k80', 7.0)\n"
        "print(memory.predict({'job_type': 'new', 'batch_size': 16}).mean[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(7.0, rel=0.05)


def test_without_torch_hd_the_message_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchhd", None)
    with pytest.raises(PolicyError, match=r"torch-hd.*trimtab\[train\].*method='factorised'"):
        RuntimeMemory(KINDS, method="hyperdimensional")


@pytest.mark.parametrize(
    ("features", "kind", "value", "message"),
    [
        (job("a", 4), "a100", 1.0, "gpu_kind='a100'.*k80, p100, v100"),
        (job("a", 4), "k80", 0.0, "value=0.0 .*above 0"),
        (job("a", 4), "k80", math.nan, "value=nan .*above 0"),
        (job("a", 4), "k80", "fast", "value='fast' is not a number"),
        (job("a", 0), "k80", 1.0, "batch_size=0 .*above 0"),
        (job("a", 4, load=math.inf), "k80", 1.0, "load=inf .*finite"),
        (job("a", 4, batchsize=3), "k80", 1.0, "'batchsize' is unknown.*batch_size"),
    ],
)
def test_a_bad_run_is_refused_and_leaves_no_trace(features, kind, value, message):
    memory = factorised()
    with pytest.raises((PolicyError, UnknownName), match=message):
        memory.observe(features, kind, value)
    assert memory.predict(job("a", 4)).observations.sum() == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, "method='magic'.*hyperdimensional"),
        ({"noise": 0.0}, "noise=0.0"),
        ({"records_a_type": -1}, "records_a_type=-1"),
        ({"gpu_kinds": ("k80", "k80")}, "gpu_kinds=.*once"),
    ],
)
def test_bad_settings_are_named(settings, message):
    settings = {"gpu_kinds": KINDS, "method": "factorised", **settings}
    with pytest.raises((PolicyError, UnknownName), match=message):
        RuntimeMemory(**settings)


def test_bad_files_are_named(tmp_path):
    with pytest.raises(PolicyError, match="absent: no such file"):
        load(tmp_path / "absent")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(PolicyError, match="text: is not a saved runtime memory"):
        load(tmp_path / "text")
    np.savez(tmp_path / "old.npz", header=np.array('{"version": 0}'))
    with pytest.raises(PolicyError, match="version=0"):
        load(tmp_path / "old.npz")


def test_keep_outside_0_to_1_is_refused():
    with pytest.raises(PolicyError, match=r"keep=1.5 is not in 0..1"):
        factorised().refit(keep=1.5)


def test_the_prior_is_the_ridge_regression_with_a_column_a_type():
    rng = np.random.default_rng(0)
    types = np.repeat([0, 1, 2], (4, 1, 7))
    x, y, weight = rng.normal(size=(12, 3)), rng.normal(size=12), rng.uniform(1, 2, 12)
    prior = FactorisedPrior(3, ridge=0.3, noise=0.01)
    for number in range(3):
        rows = types == number
        prior.put(str(number), x[rows], y[rows], weight[rows])
    level = weight @ y / weight.sum()
    columns = np.concatenate((np.eye(3)[types], x), axis=1)  # all effects in one large matrix
    matrix = (columns.T * weight) @ columns + 0.3 * np.eye(6)
    effect = np.linalg.solve(matrix, (columns.T * weight) @ (y - level))
    ask = rng.normal(size=(2, 3))
    for number in range(3):
        mean, variance = prior.expected(str(number), ask)
        row = np.concatenate((np.tile(np.eye(3)[number], (2, 1)), ask), axis=1)
        assert mean == pytest.approx(level + row @ effect)
        doubt = (row @ np.linalg.inv(matrix) * row).sum(1)
        assert variance / variance[0] == pytest.approx(doubt / doubt[0])
