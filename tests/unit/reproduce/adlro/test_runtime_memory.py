"""The measurement of the runtime memory: what it draws, and what it says on the built-in table."""

import math

import numpy as np
import pytest
from tests.data import found

from trimtab.errors import TraceError
from trimtab.policies.adlro.memory import RuntimeMemory
from trimtab.reproduce.adlro import runtime_memory
from trimtab.reproduce.adlro.runtime_memory import METHODS, SCENES, drawn, measured, table
from trimtab.traces.scenes.gavel import MEASURED


def test_the_built_in_table_has_every_type_on_three_kinds():
    cells = table()
    assert len(cells.family) == 26 * 3
    assert np.unique(cells.family).tolist()[:3] == ["A3C", "CycleGAN", "LM"]
    lm = (cells.family == "LM") & (cells.batch_size == 20) & (cells.kind == 2)
    assert cells.log_rate[lm] == pytest.approx(math.log(64.7425))


def test_gavels_own_table_has_the_built_in_one_and_more_gpus():
    path = found("data", "profiles", "gavel_isolated_throughputs.csv")
    cells, ours = table(path), table()
    assert sorted(set(cells.gpus)) == [1, 2, 4, 8]
    alone = np.sort(cells.log_rate[cells.gpus == 1])
    assert alone == pytest.approx(np.sort(ours.log_rate), abs=1e-3)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("observations", [1, 5, 20])
def test_a_draw_shows_no_cell_that_it_asks(scene, observations):
    cells = table()
    draw = drawn(cells, "ResNet-18", scene, observations, seed=4)
    shown = draw.train[-observations:]
    assert (cells.family[np.concatenate((shown, draw.ask))] == "ResNet-18").all()
    assert (cells.family[draw.train[:-observations]] != "ResNet-18").all()
    assert not np.isin(draw.ask, draw.train).any()
    if scene == SCENES[1]:
        assert not np.isin(cells.kind[shown], cells.kind[draw.ask]).any()


def test_more_observations_ask_the_same_cells_and_keep_the_first_runs():
    cells = table()
    few, many = (drawn(cells, "LM", SCENES[0], count, seed=1) for count in (1, 5))
    assert few.ask.tolist() == many.ask.tolist()
    assert few.train.tolist() == many.train[: len(few.train)].tolist()
    assert few.log_rate.tolist() == many.log_rate[: len(few.train)].tolist()


def test_settings_are_picked_without_the_family_left_out(monkeypatch):
    asked = []

    def spy(cells, draw, ask, seed, choice):
        asked.extend(cells.family[np.concatenate((draw.train, ask))])
        return cells.log_rate[ask] + choice

    monkeypatch.setitem(METHODS, "spy", (spy, [{"choice": 1.0}, {"choice": 0.1}]))
    found = runtime_memory._tuned(table(), "spy", "LM", SCENES[0], 5)
    assert found == {"choice": 0.1}
    assert "LM" not in asked and "Transformer" in asked


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, int], dict]:
    pytest.importorskip("torchhd")
    pytest.importorskip("sklearn")
    return {(row["method"], row["observations"]): row for row in measured(2, quick=True)}


@pytest.mark.slow
def test_every_method_has_a_row_for_every_number_of_observations(rows):
    assert set(rows) == {(name, count) for name in METHODS for count in (1, 5, 20)}
    for row in rows.values():
        assert row["low"] <= row["error"] <= row["high"]
        assert 0 <= row["regret"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["means", "neighbours", "boosting"])
@pytest.mark.parametrize("observations", [1, 5, 20])
def test_the_memory_errs_less_than_methods_without_a_prior(rows, method, observations):
    assert rows[method, observations]["change"] < 0


@pytest.mark.slow
def test_more_observations_lower_the_error_of_the_memory(rows):
    errors = [rows["hyperdimensional", count]["error"] for count in (1, 5, 20)]
    assert errors == sorted(errors, reverse=True)


def test_the_truth_has_no_error_and_no_regret():
    cells = table()
    draw = drawn(cells, "LM", SCENES[0], 5, seed=0)
    found = runtime_memory._judged(
        cells, draw, lambda cells, draw, ask, seed: cells.log_rate[ask], 0, {}
    )
    assert found == (0, 0, 0)


def test_regret_is_the_speed_lost_by_the_kind_that_looked_fastest():
    cells = table()
    draw = drawn(cells, "CycleGAN", SCENES[0], 5, seed=0)
    error, mape, regret = runtime_memory._judged(
        cells, draw, lambda cells, draw, ask, seed: -cells.log_rate[ask], 0, {}
    )
    assert regret == pytest.approx(1 - 0.5048 / 4.4261)  # the K80 for the V100
    assert error > 0 and mape > 0


def test_four_of_five_cells_lie_within_twice_the_spread():
    pytest.importorskip("torchhd")
    cells, within = table(), []
    for family in ("LM", "ResNet-50", "Transformer"):
        draw = drawn(cells, family, SCENES[0], 5, seed=0)
        memory = RuntimeMemory(MEASURED, method="hyperdimensional")
        for row, log_rate in zip(draw.train, draw.log_rate):
            features = runtime_memory._features(cells, row)
            memory.observe(features, MEASURED[cells.kind[row]], math.exp(log_rate))
        for row in draw.ask:
            found = memory.predict(runtime_memory._features(cells, row))
            kind = cells.kind[row]
            off = abs(math.log(found.mean[kind]) - cells.log_rate[row])
            within.append(off < 2 * found.spread[kind])
    assert np.mean(within) >= 0.8


def test_sias_profiles_give_one_cell_a_batch_size_gpus_and_kind(tmp_path):
    for suffix, step_s in zip(runtime_memory.SIA, (0.5, 0.25, 0.2, 0.1)):
        (tmp_path / "bert").mkdir(exist_ok=True)
        (tmp_path / "bert" / f"placements-{suffix}.csv").write_text(
            f"placement,local_bsz,step_time\n1,4,{step_s}\n11,4,9\n2,8,{2 * step_s}\n"
        )
    (tmp_path / "partial").mkdir()  # measured on one kind only
    (tmp_path / "partial" / "placements-aws.csv").write_text(
        "placement,local_bsz,step_time\n1,4,1\n"
    )
    cells = table(tmp_path)
    assert cells.kinds == ("t4", "rtx6000", "2080ti", "a100")
    assert set(cells.family) == {"bert"} and len(cells.family) == 8
    alone = cells.log_rate[cells.gpus == 1]
    assert np.exp(alone) == pytest.approx([2, 4, 5, 10])  # steps a second: 1 / step_time


def test_a_bad_table_is_named(tmp_path):
    with pytest.raises(TraceError, match="holds no model"):
        table(tmp_path)
    with pytest.raises(TraceError, match=r"absent\.csv: no such file"):
        table(tmp_path / "absent.csv")
    (tmp_path / "bad.csv").write_text("job_type,scale_factor\nLM,1\n")
    with pytest.raises(TraceError, match=r"bad\.csv: not Gavel's table"):
        table(tmp_path / "bad.csv")
