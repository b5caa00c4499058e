"""The fits give back the laws that made the measurements, noise included."""

import numpy as np
import pytest

from trimtab.llm.calibrate import laws
from trimtab.llm.calibrate.gpu_profile import MEASURED, GpuProfile, believable
from trimtab.llm.calibrate.rates import fastest, rates
from trimtab.llm.cost.constants import law_of
from trimtab.llm.cost.kernels import LAW, attention_s, gemms_s, stream_s
from trimtab.llm.cost.links import all_reduces_s
from trimtab.llm.spec import specs

H200, PCIE = specs.gpu("H200"), specs.gpu("H100-PCIe")
SMS = 132.0
KNOWN = {
    "sms": SMS, "gemm_flop": 1.25, "gemm_byte": 1.15, "gemm_start_s": 6e-6, "gemm_wave": 0.5,
    "gemm_half": 1.08, "gemm_ragged": 2.2, "stream_share": 0.85, "stream_start_s": 3e-6,
    "flash_share": 0.6, "flash_half": 700.0, "flash_back": 2.4, "score_b": 17.0,
    "link_share": 0.7, "link_start_s": 3e-5, "link_chunk_s": 5e-6, "pcie_share": 0.65,
}  # fmt: skip


def noisy(run_s, rng, spread=0.02):
    return np.asarray(run_s) * np.exp(rng.normal(0.0, spread, np.shape(run_s)))


def made_rows(gpu, rng):
    """Rows of every kind as a GPU of the law KNOWN would give them."""
    law = laws.with_values(law_of(gpu.arch).values, list(KNOWN), np.array(list(KNOWN.values())))
    m = rng.choice([1, 16, 64, 256, 512, 1024, 3000, 8192, 16384], 200).astype(float)
    n, k = (rng.choice([512, 1024, 4096, 5120, 8192, 16384], 200).astype(float) for _ in range(2))
    peaks = gpu.flops, gpu.memory_bps
    ragged = np.array([[4096.0, 50257.0, 8192.0], [2048.0, 50257.0, 2048.0]])
    whole = ragged + [0.0, 50304 - 50257, 0.0]
    heads = [(16384 // s, 2048 // d, s, d) for s in (512, 1024, 2048, 8192) for d in (64, 128)]
    each = [(b, h, h, s, s, d, 1.0) for b, h, s, d in heads]
    fused_s = noisy([attention_s.py_func(*one, 1.0, *peaks, law) for one in each], rng)
    unfused_s = [attention_s.py_func(*one, 0.0, *peaks, law) for one in each]
    sizes_b = 2.0 ** np.arange(20, 31)
    bytes_b = np.tile(4096.0 * 4.0 ** np.arange(10), 3)
    ranks = np.repeat([2.0, 4.0, 8.0], 10)
    links = (np.full(30, bps) for bps in (gpu.link_bps, 1.0))
    sums_s = all_reduces_s(bytes_b, ranks, ranks, *links, law)
    back_s = noisy(2.4 * np.asarray(fused_s), rng)
    made = {
        "products": [m, n, k, noisy(gemms_s(m, n, k, *peaks, law), rng)],
        # both a fifth slower than the law says: what counts is the one beside the other
        "ragged": [*ragged.T, *(1.2 * gemms_s(*one.T, *peaks, law) for one in (ragged, whole))],
        "fused": [*np.array(heads).T, fused_s, back_s],
        "unfused": [*np.array(heads).T, noisy(unfused_s, rng)],
        "streams": [sizes_b, noisy([stream_s.py_func(b, peaks[1], law) for b in sizes_b], rng)],
        "heat": [np.arange(9.0), np.r_[1e-3, np.full(8, 1.2e-3)]],
        "launches": [
            np.array([0.0, 0.5, 0.9, 1.5]),
            7.5e-6 * (1 + 0.4 * np.array([0.0, 1.0, 9.0, 19.0])),
        ],
        "sums": [bytes_b, ranks, noisy(sums_s, rng)],
        # of 700 W: 105 at rest, 350 with streams, 630 at half of the peak
        "power": [
            np.array([0, 0, 0.5 * gpu.flops]),
            np.array([0, 1, 1]),
            np.array([105, 350, 630]),
        ],
    }
    return {kind: np.transpose(columns).tolist() for kind, columns in made.items()}


@pytest.mark.parametrize(
    ("gpu", "missing"),
    [(H200, {"pcie_share"}), (PCIE, {"link_share", "link_chunk_s"})],
    ids=["fast link", "PCIe"],
)
def test_measurements_give_back_the_law_that_made_them(gpu, missing):
    found = laws.fitted(made_rows(gpu, np.random.default_rng(3)), gpu, SMS)
    assert found.notes == []
    for name, value in KNOWN.items():
        if name in missing:
            assert name not in found.law
        else:
            # a start is small beside the rest, a wave hides among tiles
            loose = 0.3 if name.endswith("_s") or name in ("gemm_wave", "flash_half") else 0.06
            assert found.law[name] == pytest.approx(value, rel=loose), name
    assert all(one.mean_error < 0.05 for one in found.figures)
    assert all(believable(name, value) for name, value in found.law.items())


def test_heat_host_load_and_power_come_out_as_they_are_used():
    found = laws.fitted(made_rows(H200, np.random.default_rng(3)), H200, SMS).law
    assert found["hot"] == pytest.approx(1.2)
    assert found["host"] == pytest.approx(7.5e-6 / laws.REFERENCE_LAUNCH_S)
    assert found["load_slow"] == pytest.approx(0.4)
    # 105 / 700, 350 / 700 less that, and 280 / 700 over half of the peak
    assert found["idle_power"] == pytest.approx(0.15)
    assert found["busy_power"] == pytest.approx(0.35)
    assert found["flop_power"] == pytest.approx(0.8)


def test_a_cool_gpu_is_not_sped_up_by_lasting_load():
    rows = {"heat": [[0.0, 1e-3], [1.0, 0.9e-3], [2.0, 0.9e-3]]}
    assert laws.fitted(rows, H200, SMS).law == {"sms": SMS, "hot": 1.0}


def test_products_are_held_out_by_halves():
    figures = laws.fitted(made_rows(H200, np.random.default_rng(3)), H200, SMS).figures
    products = next(one for one in figures if one.what == "products")
    assert products.rows == 200 and products.held_out_error < 0.05
    summed = next(one for one in figures if one.what == "all-reduce")
    assert summed.held_out == "group size" and summed.held_out_error < 0.1


def test_too_few_rows_are_noted_and_nothing_is_fitted():
    rows = made_rows(H200, np.random.default_rng(3))
    found = laws.fitted({"products": rows["products"][:4]}, H200, SMS)
    assert found.law == {"sms": SMS} and found.figures == []
    assert found.notes == ["products: 4 of 10 rows; give more --seconds"]


def test_constants_that_cannot_be_are_left_out_with_the_others_of_their_fit():
    # a hundred times the bandwidth of the memory
    rows = {"streams": [[b, b / (100 * H200.memory_bps)] for b in 2.0 ** np.arange(20, 31)]}
    found = laws.fitted(rows, H200, SMS)
    assert found.law == {"sms": SMS}
    assert found.notes[0].startswith("streams: stream_share=") and "left out" in found.notes[0]


def test_power_without_a_reading_at_rest_is_left_out():
    rows = {"power": [[0.0, 1.0, 300.0], [1e14, 1.0, 500.0], [1e14, 1.0, 510.0]]}
    assert laws.fitted(rows, H200, SMS).law == {"sms": SMS}


def test_every_limit_is_of_a_constant_and_every_constant_has_one():
    from trimtab.llm.calibrate.gpu_profile import LIMITS

    assert set(LIMITS) == set(LAW)
    for arch in ("Ampere", "Hopper", "CDNA3", "other"):
        for name, value in zip(LAW, law_of(arch).values, strict=True):
            assert believable(name, float(value)), (arch, name)


def test_rates_stand_beside_the_datasheet():
    rows = {
        "products": [[1000.0, 1000.0, 1000.0, 4e-6], [1000.0, 1000.0, 1000.0, 5e-6]],
        "streams": [[4e9, 1e-3]],
        "sums": [[1e9, 2.0, 4e-3], [1e9, 8.0, 5e-3]],
        "launches": [[0.0, 6e-6], [0.9, 9e-6]],
        "eights": [[1000.0, 1000.0, 1000.0, 4e-6, 2.5e-6]],
        "fused": [[1.0, 16.0, 1024.0, 128.0, 1e-5, 3e-5]],
        "power": [[0.0, 0.0, 90.0], [5e14, 1.0, 690.0]],
    }
    columns = {name: list(laws.COLUMNS[name]) for name in rows}
    lines = {one.what: one for one in rates(GpuProfile(H200, {"hot": 1.25}, [], rows, columns))}
    # 2e9 FLOP in 4 us; sustained a fifth less; in 8 bits 2.5 us
    assert lines["products"].measured == pytest.approx(500)
    assert lines["products"].listed == pytest.approx(989)
    assert lines["products in 8 bits"].measured == pytest.approx(800)
    assert lines["8 bits over 16"].measured == pytest.approx(1.6)
    assert lines["8 bits over 16"].listed == pytest.approx(1979 / 989)
    # 2 x 16 x 1024^2 x 128 in 10 us
    assert lines["fused attention"].measured == pytest.approx(2 * 16 * 1024**2 * 128 / 1e-5 / 1e12)
    assert lines["element-wise work"].measured == pytest.approx(4000)
    # 2 x 1 GB x 1/2 in 4 ms, 2 x 1 GB x 7/8 in 5 ms, of 450
    assert lines["all-reduce, 2 ranks"].measured == pytest.approx(250)
    assert lines["all-reduce, 8 ranks"].measured == pytest.approx(350)
    assert lines["all-reduce, 8 ranks"].listed == pytest.approx(450)
    assert lines["launch, 0.9 busy threads a core"].measured == pytest.approx(9)
    assert lines["power, products"].listed == 700
    assert fastest({}, "products") == 0.0


def test_peaks_that_were_measured_are_not_shown_as_listed():
    from dataclasses import replace

    own = replace(H200, source=MEASURED)
    rows = {"streams": [[4e9, 1e-3]], "launches": [[0.0, 6e-6]]}
    shown = rates(GpuProfile(own, {}, [], rows, {}))
    assert [one.listed for one in shown] == [None, pytest.approx(5.0)]
