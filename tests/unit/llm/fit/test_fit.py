"""The fits recover the constants that made a table."""

import csv
import io
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.cost import priors
from trimtab.llm.cost.constants import law_of, read
from trimtab.llm.cost.kernels import gemms_s
from trimtab.llm.cost.links import all_reduces_s, sends_s
from trimtab.llm.cost.profiles import law_rows
from trimtab.llm.fit import fit, fit_kernels, fit_links, fit_serving
from trimtab.llm.fit.figures import column, law_row, lines, search, table
from trimtab.llm.spec import specs

GEMM = {"gemm_byte": 1.2, "gemm_start_s": 6e-6, "gemm_wave": 0.5, "gemm_half": 1.08}
LINK = {"link_share": 0.7, "link_start_s": 2e-5, "link_chunk_s": 3e-6}
SLOW = {"pcie_share": 0.6, "node_share": 0.6, "node_start_s": 4e-5}
SERVE = {"launch_s@Ampere": 5e-5, "launch_s@Hopper": 2e-5, "sequence_host_s": 1e-4}


def write(path: Path, rows: list[dict[str, object]]) -> None:
    text = io.StringIO()
    made = csv.DictWriter(text, list(rows[0]))
    made.writeheader()
    made.writerows(rows)
    raw = text.getvalue().encode()
    path.write_bytes(lzma.compress(raw) if path.suffix == ".xz" else raw)


def write_gemms(folder: Path) -> None:
    rng = np.random.default_rng(1)
    rows: list[dict[str, object]] = []
    for name, flop in (("a100", 1.3), ("h100", 1.5)):
        gpu = specs.gpu(fit_kernels.GPUS[name])
        law = law_row(priors.KERNELS | {"sms": priors.SMS[gpu.arch]} | GEMM | {"gemm_flop": flop})
        m = rng.integers(1, 512, 500) * 8.0
        n, k = (rng.integers(8, 200, 500) * 64.0 for _ in range(2))
        run_s = gemms_s(m, n, k, gpu.flops, gpu.memory_bps, law)
        rows += [
            {"gpu": name, "model": i % 4, "M": a, "N": b, "K": c, "median_ms": t * 1e3}
            for i, (a, b, c, t) in enumerate(zip(m, n, k, run_s))
        ]
    write(folder / fit_kernels.SOURCE, rows)


def message_rows(topology: str, op: str, ranks: int, near: int, run_s: Callable) -> list[dict]:
    size_b = np.linspace(2e3, 6e7, 60)
    return [
        {
            "topology": topology,
            "op": op,
            "workers": ranks,
            "devices_per_node": near,
            "size_elems_or_bytes": b,
            "median_ms": t * 1e3,
        }
        for b, t in zip(size_b, run_s(size_b))
    ]


def write_messages(folder: Path) -> None:
    law = law_row(LINK | SLOW)

    def summed(ranks: float, near: float, link_bps: float, card_bps: float) -> Callable:
        return lambda size_b: all_reduces_s(
            size_b, *(np.full(60, x) for x in (ranks, near, link_bps, card_bps)), law
        )

    rows = []
    for name, pcie_bps in fit_links.PCIE_BPS.items():
        link_bps = specs.gpu(fit_links.GPUS[name]).link_bps
        for ranks in (2, 4, 8):
            run_s = summed(ranks, ranks, link_bps, 1.0)
            rows += message_rows(f"{name}_dgx", "all_reduce", ranks, ranks, run_s)
        run_s = summed(4, 4, pcie_bps, 1.0)
        rows += message_rows(f"{name}_pairwise_nvlink", "all_reduce", 4, 4, run_s)
    rows += message_rows("a100_dgx", "all_reduce", 2, 1, summed(2, 1, 1.0, 1e10))
    rows += message_rows("h100_dgx", "send_recv", 2, 1, lambda b: sends_s(b, 50e9, law))
    write(folder / fit_links.SOURCE, rows)


def write_served(folder: Path) -> None:
    values = {"long_link_slow": 4.0, "link_slow": 1.5} | SERVE
    rows: list[dict[str, object]] = []
    for label, gpu in fit_serving.GPUS.items():
        for model in ("llama2-70b", "bloom-176b"):
            for tp in (4, 8):
                made = fit_serving.serving_cases(
                    specs.model(model),
                    specs.gpu(gpu),
                    tp=tp,
                    batch=np.array([1, 1, 1, 4, 16]),
                    prompt=np.array([128, 512, 2048, 512, 512]),
                    chunk=0,
                )
                if model == "bloom-176b" and tp == 4:
                    continue  # does not fit
                cost = fit_serving.serving_cost(made, law_rows(), fit_serving.built(values))
                rows += [
                    {
                        "model": model,
                        "hardware": label,
                        "tensor_parallel": tp,
                        "prompt_size": int(row["prompt"]),
                        "batch_size": int(row["batch"]),
                        "token_size": int(row["generated"]),
                        "prompt_time": one["prefill_s"] * 1e3,
                        "token_time": one["decode_s"] * 1e3,
                        "average_power": one["power_w"] / row["tdp_w"],
                        "peak_power": 1.0,
                    }
                    for row, one in zip(made, cost)
                ]
    write(folder / fit_serving.SOURCE, rows)


def test_products_give_back_the_law_that_made_them(tmp_path: Path):
    write_gemms(tmp_path)
    section, figures = fit_kernels.fit_kernels(tmp_path)
    for arch, flop in (("Ampere", 1.3), ("Hopper", 1.5)):
        for name, value in (GEMM | {"gemm_flop": flop}).items():
            assert section["laws"][arch][name] == pytest.approx(value, rel=0.05), name
    assert figures[0].held_out_error < 0.02
    # the law of another GPU misses by what differs: 1.3 for 1.5
    assert 0.05 < figures[-1].mean_error < 0.2


def test_collectives_give_back_the_law_that_made_them(tmp_path: Path):
    write_messages(tmp_path)
    section, figures = fit_links.fit_links(tmp_path)
    for arch in ("Ampere", "Hopper"):
        for name, value in (LINK | SLOW).items():
            assert section["laws"][arch][name] == pytest.approx(value, rel=0.1), name
    assert max(figure.mean_error for figure in figures) < 0.02


def test_served_times_give_back_the_host_that_made_them(tmp_path: Path):
    write_served(tmp_path)
    section, figures = fit_serving.fit_serving(tmp_path, law_rows())
    assert section["launch_s"]["Ampere"] == pytest.approx(5e-5, rel=0.1)
    assert section["launch_s"]["Hopper"] == pytest.approx(2e-5, rel=0.1)
    assert section["values"]["step_host_s"] == priors.SERVING["step_host_s"]
    assert max(figure.mean_error for figure in figures) < 0.05


def test_a_fit_writes_its_sections_and_leaves_the_others(tmp_path: Path):
    for made in (write_gemms, write_messages, write_served):
        made(tmp_path)
    path = tmp_path / "constants.json"
    path.write_text('{"training": {"kept": 1}}')
    figures = fit.fit(tmp_path, path)
    found = read(path)
    assert found["training"] == {"kept": 1}
    assert law_of("Hopper", found).values[0] == pytest.approx(1.5, rel=0.05)
    assert len(found["serving"]["figures"]) == len(figures) - len(
        found["kernels"]["figures"] + found["links"]["figures"]
    )
    first = path.read_bytes()
    fit.fit(tmp_path, path)
    assert path.read_bytes() == first
    assert len(lines(figures)) == len(figures) + 1


def test_a_search_moves_constants_that_start_at_one():
    found = search(lambda x: float(np.abs(np.log(x / [3.0, 0.5])).sum()), [1.0, 1.0])
    assert found == pytest.approx([3.0, 0.5], rel=0.01)


def test_a_missing_table_is_named(tmp_path: Path):
    with pytest.raises(PlanError, match=r"gemm_microbench.*is missing; name the folder"):
        fit.fit(tmp_path)


def test_a_missing_column_is_named(tmp_path: Path):
    write(tmp_path / "short.csv", [{"gpu": "a100"}])
    with pytest.raises(PlanError, match="column 'M' is missing"):
        column(table(tmp_path / "short.csv"), "M")
