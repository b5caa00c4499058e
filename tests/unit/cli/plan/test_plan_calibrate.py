"""`trimtab plan calibrate`: what it writes, shows and refuses; here on the processor."""

import json

import pytest

pytest.importorskip("torch", reason="measuring needs torch")

from trimtab.cli.plan import plan_calibrate
from trimtab.cli.plan.plan_calibrate import calibrate
from trimtab.errors import PlanError
from trimtab.llm.calibrate import gpu_profile, measure
from trimtab.llm.calibrate.gpu_profile import believable, measured_pool, read_profile
from trimtab.llm.plan.planner import planned
from trimtab.llm.plan.question import question_of
from trimtab.llm.spec import specs

pytestmark = pytest.mark.usefixtures("forget")

# Constants of which each kind of row gives one.
LAWS = {"gemm_flop": "products", "stream_share": "streams", "flash_share": "fused",
        "host": "launches", "link_start_s": ("sums", "links")}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A profile of this processor and the JSON beside it: the whole command, once."""
    folder = tmp_path_factory.mktemp("calibrated")
    calibrate(folder / "cpu.json", "cpu", 6.0, str(folder / "told.json"))
    return folder / "cpu.json", json.loads((folder / "told.json").read_text())


@pytest.mark.slow
def test_the_whole_command_writes_laws_that_can_be_believed(written):
    profile = read_profile(written[0])
    for law, kind in LAWS.items():
        # on a machine that others keep busy a fit may come out absurd, and is then left out
        noted = any(note.startswith(kind) for note in profile.machine["notes"])
        assert law in profile.law or noted, (law, profile.machine["notes"])
    assert all(believable(name, value) for name, value in profile.law.items())
    assert {"products", "streams", "fused", "unfused", "heat", "launches", "sums"} <= set(
        profile.measured
    )
    for kind, rows in profile.measured.items():
        assert all(len(row) == len(profile.columns[kind]) for row in rows)
    assert profile.gpu.name == "CPU" and profile.gpu.source == gpu_profile.MEASURED


@pytest.mark.slow
def test_the_machine_is_told_without_its_name_or_paths(written):
    machine = read_profile(written[0]).machine
    assert machine.keys() == {
        "date", "device", "gpus", "dtype", "torch", "processor", "cores", "system", "notes",
    }  # fmt: skip
    import platform

    assert platform.node() not in [value for value in machine.values() if isinstance(value, str)]


@pytest.mark.slow
def test_a_plan_is_priced_with_the_measured_machine(written):
    made = measured_pool("2xCPU", written[0])
    model = specs.model("gpt2")
    answer = planned(question_of(model, made[0].gpu, made[0].gpus, global_batch=4, seq=512))
    # a core is thousands of times slower than any GPU
    fast = planned(question_of(model, specs.gpu("H100"), 2, global_batch=4, seq=512))
    assert answer.costs["step_s"][0] > 10 * fast.costs["step_s"][0]


@pytest.mark.slow
def test_json_holds_rates_laws_and_notes(written):
    _, told = written
    assert told["gpu"] == "CPU" and told["law"] and told["figures"]
    rates = {one["what"]: one for one in told["rates"]}
    assert rates["products"]["measured"] > 0 and rates["products"]["rows"] >= 10
    assert rates["launch, 0.9 busy threads a core"]["unit"] == "us"
    assert any("no meter" in note for note in told["notes"])
    assert "notes" not in told["machine"]


@pytest.mark.slow
def test_the_table_and_the_next_command_are_shown(written, tmp_path, monkeypatch, capsys):
    profile = read_profile(written[0])
    monkeypatch.setattr(measure, "calibrated", lambda *_, **__: profile)
    calibrate(tmp_path / "new.json", "cpu", 5.0)
    said = capsys.readouterr()
    assert "TFLOP/s" in said.out and "fused attention" in said.out and "note: power" in said.out
    assert f"--gpus 8xCPU --profile {tmp_path / 'new.json'}" in said.err.replace("\n", "")
    assert read_profile(tmp_path / "new.json") == profile


@pytest.mark.slow
def test_standard_output_is_json_alone(written, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "calibrated", lambda *_, **__: read_profile(written[0]))
    calibrate(tmp_path / "new.json", "cpu", 5.0, "-")
    assert json.loads(capsys.readouterr().out)["gpu"] == "CPU"


@pytest.mark.slow
def test_a_profile_may_be_written_again_and_nothing_else(written, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "calibrated", lambda *_, **__: read_profile(written[0]))
    calibrate(tmp_path / "cpu.json", "cpu", 5.0)
    calibrate(tmp_path / "cpu.json", "cpu", 5.0)
    (tmp_path / "notes.txt").write_text("mine")
    for taken in ("notes.txt", "."):
        with pytest.raises(PlanError, match="is there and no profile; name another file"):
            calibrate(tmp_path / taken, "cpu", 5.0)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match="cannot be written to"):
        plan_calibrate.check_target(tmp_path / "file" / "deep" / "x.json")
    plan_calibrate.check_target(tmp_path / "new" / "deep" / "x.json")


@pytest.mark.parametrize("seconds", [0.0, float("nan")])
def test_a_time_that_cannot_be_is_refused(tmp_path, seconds):
    with pytest.raises(PlanError, match=r"--seconds .* take about 90"):
        calibrate(tmp_path / "cpu.json", "cpu", seconds)


def test_ctrl_c_writes_nothing(tmp_path, monkeypatch):
    def stopped(*_, progress, **__):
        progress("products", 1.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "calibrated", stopped)
    with pytest.raises(KeyboardInterrupt):
        calibrate(tmp_path / "cpu.json", "cpu", 5.0)
    assert list(tmp_path.iterdir()) == []
