"""Profiles of one machine: written, read back, adopted, and refused where they are broken."""

import json
from dataclasses import replace

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.calibrate.gpu_profile import (
    GpuProfile,
    adopt,
    is_profile,
    known_gpu,
    measured_pool,
    read_profile,
    write_profile,
)
from trimtab.llm.cost import training
from trimtab.llm.cost.cases import cases
from trimtab.llm.cost.constants import law_of
from trimtab.llm.cost.intervals import step_spread
from trimtab.llm.cost.kernels import LAW
from trimtab.llm.cost.serving_cases import serving_cases
from trimtab.llm.cost.serving_cost import serving_cost
from trimtab.llm.plan.planner import planned
from trimtab.llm.plan.question import law_notes, question_of
from trimtab.llm.spec import specs
from trimtab.llm.spec.pool import pool

H200, H100 = specs.gpu("H200"), specs.gpu("H100")
LLAMA = specs.model("llama-3-8b")
SECONDS = ("gemm_flop", "gemm_byte", "gemm_start_s", "stream_start_s", "link_start_s",
           "link_chunk_s", "node_start_s")  # fmt: skip
SHARES = ("flash_share", "stream_share", "link_share", "pcie_share", "node_share")


pytestmark = pytest.mark.usefixtures("forget")


def twice_as_fast(gpu=H200):
    """A profile whose kernels and links take half of the architecture's time."""
    known = dict(zip(LAW, law_of(gpu.arch).values.tolist(), strict=True))
    law = {name: known[name] / 2 for name in SECONDS} | {name: known[name] * 2 for name in SHARES}
    law["flash_share"] = min(law["flash_share"], 2.0)
    rows = {"streams": [[1048576.0, 6e-6], [4194304.0, 7.5e-6]]}
    return GpuProfile(gpu, law, [], rows, {"streams": ["bytes_b", "run_s"]}, {"torch": "2.13"})


def step(gpu, **plan):
    return training.cost(
        cases(LLAMA, gpu, 8, **({"tp": 2, "global_batch": 64, "seq": 8192} | plan))
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "h200.json"
    write_profile(twice_as_fast(), path)
    return path


def test_a_profile_is_read_as_it_was_written(file):
    assert read_profile(file) == twice_as_fast()
    assert is_profile(file) and len(file.read_text().splitlines()) > 8
    assert list(file.parent.iterdir()) == [file]


def test_a_measured_gpu_takes_half_where_its_law_says_half(file):
    before = step(H200)[0]
    after = step(adopt(read_profile(file)))[0]
    for part in ("compute_s", "tp_s", "dp_s", "optimiser_s"):
        assert after[part] == pytest.approx(before[part] / 2, rel=1e-9), part
    # one node: what is left is the host's time a step, which no kernel shortens
    fixed_s = before["overhead_s"]
    assert after["step_s"] == pytest.approx((before["step_s"] - fixed_s) / 2 + fixed_s, rel=1e-9)


def test_adopting_changes_that_gpu_alone(file):
    h100, h200 = step(H100), step(H200)
    measured = adopt(read_profile(file))
    assert step(H100) == h100 and step(H200) == h200
    assert step(measured)["step_s"] < h200["step_s"]
    assert law_of(measured.law).spread == 0.0 and law_notes(measured) == []


def test_a_profile_read_back_plans_as_the_first_one(file):
    first = planned(question_of(LLAMA, adopt(twice_as_fast()), 16))
    again = planned(question_of(LLAMA, adopt(read_profile(file)), 16))
    assert np.array_equal(first.cases, again.cases) and np.array_equal(first.costs, again.costs)
    assert first.costs["step_s"][0] < planned(question_of(LLAMA, H200, 16)).costs["step_s"][0]


def test_serving_waits_for_the_host_of_the_profile():
    slow = adopt(replace(twice_as_fast(), law={"host": 4.0, "load_slow": 2.0}))
    usual_s, slow_s = (
        serving_cost(serving_cases(LLAMA, gpu, cpu_load=0.5))["host_s"][0] for gpu in (H200, slow)
    )
    # 1 + 2 x 0.5 / 0.5 instead of 1.5 for all of it, and four times that for what starts kernels
    assert 2.0 * usual_s < slow_s < 8.0 * usual_s


def test_a_mixed_pool_leaves_the_other_kind_as_it_was(file):
    made = measured_pool("8xH200+16xH100", file)
    assert [share.gpus for share in made] == [8, 16]
    assert made[0].gpu.law == "H200-SXM, measured" and made[1].gpu == H100
    assert pool("8xH200")[0].gpu == H200


def test_a_gpu_that_no_table_lists_goes_under_its_own_name(tmp_path):
    own = replace(H200, name="Foo 9000", arch="other")
    write_profile(twice_as_fast(own), tmp_path / "foo.json")
    made = measured_pool("4xNVIDIA Foo-9000", tmp_path / "foo.json")
    assert made[0].gpu.name == "Foo 9000" and made[0].gpu.law
    assert planned(question_of(LLAMA, made[0].gpu, 4)).costs["step_s"][0] > 0


def test_a_profile_of_a_gpu_that_is_not_asked_for_is_refused(file):
    with pytest.raises(PlanError, match=r"h200\.json: is of H200-SXM, which gpus='8xA100' do not"):
        measured_pool("8xA100", file)


def test_what_was_not_measured_keeps_its_part_of_the_spread():
    ada = specs.gpu("RTX 4090")
    law = {name: value for name, value in twice_as_fast(ada).law.items() if "share" not in name}
    base = law_of("Ada")
    kernels = adopt(replace(twice_as_fast(ada), law=law))
    assert 0 < law_of(kernels.law).spread < base.spread
    assert "lack the links" in law_notes(kernels)[0]
    whole = adopt(twice_as_fast(ada))
    assert step_spread(cases(LLAMA, whole, 8))[0] < step_spread(cases(LLAMA, ada, 8))[0]
    power = adopt(replace(twice_as_fast(ada), law={"idle_power": 0.1}))
    assert law_of(power.law).spread == base.spread


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("AMD Instinct MI250X / MI250", "MI250X-GCD"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
    ],
)
def test_a_driver_s_name_is_found_in_our_tables(name, listed):
    found = known_gpu(name)
    assert found is not None and found.name == listed


def test_a_slice_of_a_gpu_is_none_of_our_tables():
    assert known_gpu("NVIDIA A100-SXM4-80GB MIG 1g.10gb") is None and known_gpu("") is None


def changed(path, change):
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f.update(format="trimtab gpu profile 0"), "format is not 'trimtab gpu"),
        (lambda f: f["law"].update(gemm_flop=float("nan")), "NaN is no number"),
        (lambda f: f["law"].update(gemm_flops=1.0), "law 'gemm_flops' is unknown"),
        (lambda f: f["law"].update(stream_share=0), "stream_share=0 is not between 0.01 and 2"),
        (lambda f: f["law"].update(gemm_flop="fast"), "gemm_flop='fast' is not between"),
        (lambda f: f["law"].update(gemm_flop=True), "gemm_flop=True is not between"),
        (lambda f: f["law"].update(gemm_flop=-1.0), "gemm_flop=-1.0 is not between"),
        (lambda f: f.update(law=[1.0]), "law is no table of constants"),
        (lambda f: f["gpu"].update(memory_bps=0), "gpu memory_bps=0 cannot be"),
        (lambda f: f["gpu"].update(name=7), "gpu name=7 cannot be"),
        (lambda f: f["gpu"].update(bf16="yes"), "gpu bf16='yes' cannot be"),
        (lambda f: f["gpu"].update(colour="green"), "a field is missing or unknown"),
        (lambda f: f.pop("gpu"), "a field is missing or unknown"),
        (lambda f: f.update(gpu=None), "a field is missing or unknown"),
        (lambda f: f.update(figures={}), "figures is no list"),
    ],
)  # fmt: skip
def test_a_wrong_profile_is_refused_in_a_sentence(file, change, sentence):
    changed(file, change)
    with pytest.raises(PlanError, match=r"h200\.json.*") as refused:
        read_profile(file)
    assert sentence in str(refused.value) and "calibrate" in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '"a"', "\x00", "trimtab"])
def test_what_is_no_profile_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=r"x\.json: (cannot be read as a profile|format is not)"):
        read_profile(path)
    assert not is_profile(path)


def test_a_truncated_profile_is_refused_but_may_be_written_again(file):
    file.write_text(file.read_text()[:-40])
    assert is_profile(file)
    with pytest.raises(PlanError, match="cannot be read as a profile"):
        read_profile(file)


def test_a_missing_file_and_a_folder_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(PlanError, match="write one with `trimtab plan calibrate"):
        read_profile(tmp_path / "none.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match="cannot be written"):
        write_profile(twice_as_fast(), tmp_path / "file" / "h200.json")


def test_numbers_that_json_cannot_hold_are_not_written(tmp_path):
    broken = replace(twice_as_fast(), measured={"streams": [[1.0, float("nan")]]})
    with pytest.raises(ValueError, match="JSON"):
        write_profile(broken, tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []
