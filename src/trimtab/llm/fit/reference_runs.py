"""The published training tables of a reference folder, as runs: one list of rows a source.

The tables name hidden sizes, GPUs and times; what they leave out (micro-batches, interleaving) is
in the launch scripts that their authors published, and stands below as configuration.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

from trimtab.errors import PlanError

Rows = list[dict[str, str]]

# Hidden size -> (micro-batch, interleave) of Megatron-LM's examples/sc21/run_table_1.sh.
SC21_BATCH = {
    2304: (16, 1), 3072: (16, 1), 4096: (16, 1), 6144: (8, 1), 8192: (4, 1), 10240: (2, 3),
    12288: (2, 2), 16384: (1, 2), 20480: (1, 3), 25600: (1, 1),
}  # fmt: skip
LLAMA2 = {
    "7b": {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 32, "ffn": 11008},
    "13b": {"hidden": 5120, "layers": 40, "heads": 40, "kv_heads": 40, "ffn": 13824},
    "34b": {"hidden": 8192, "layers": 48, "heads": 64, "kv_heads": 8, "ffn": 22016},
    "70b": {"hidden": 8192, "layers": 80, "heads": 64, "kv_heads": 8, "ffn": 28672},
}


def table(path: Path) -> Rows:
    """The rows of one CSV file."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except OSError as mistake:
        raise PlanError(f"{path}: cannot be read ({mistake}); give the reference folder") from None


def words(**fields: object) -> dict[str, str]:
    """A row of words."""
    return {name: str(value) for name, value in fields.items()}


def sc21(folder: Path) -> Rows:
    """Megatron-LM, SC 2021, table 1: 10 GPTs on up to 3,072 A100s, full recomputation."""
    out = []
    for row in table(folder / "sc21_megatron_table1_a100.csv"):
        micro, chunks = SC21_BATCH[int(row["hidden"])]
        out.append(
            words(
                gpu="A100-SXM-80GB", framework="megatron", precision="fp16", recompute="full",
                micro_batch=micro, interleave=chunks, step_s=row["derived_sec_per_iter"],
                sequence_parallel="false", flash="false", zero="0",
                **{name: row[name] for name in (
                    "hidden", "layers", "heads", "tp", "pp", "dp", "gpus", "global_batch", "seq",
                    "vocab", "tflops_per_gpu")},
            )
        )  # fmt: skip
    return out


def january2021(folder: Path) -> Rows:
    """The same authors three months before, without interleaving."""
    out = []
    for row in table(folder / "megatron_jan2021_a100_no_interleave.csv"):
        ways = int(row["model_parallel"])
        tp = min(ways, 8)
        out.append(
            words(
                gpu="A100-SXM-80GB", framework="megatron", precision="fp16", recompute="full",
                micro_batch=SC21_BATCH[int(row["hidden"])][0], tp=tp, pp=ways // tp, seq=2048,
                vocab=51200, sequence_parallel="false", flash="false", zero="0",
                **{name: row[name] for name in (
                    "hidden", "layers", "heads", "gpus", "global_batch", "tflops_per_gpu")},
            )
        )  # fmt: skip
    return out


def korthikanti(folder: Path) -> Rows:
    """Korthikanti et al. 2022: each model with full recomputation, then selective + sequence."""
    out = []
    for row in table(folder / "korthikanti2022_a100.csv"):
        shape = {name: row[name] for name in ("hidden", "layers", "heads", "tp", "pp", "gpus",
                                              "interleave", "global_batch")}  # fmt: skip
        shape |= words(gpu="A100-SXM-80GB", framework="megatron", seq=2048, vocab=51200,
                       micro_batch=row["microbatch"], flash="false", zero="0")  # fmt: skip
        whole = words(recompute="full", sequence_parallel="false", step_s=row["sec_full_recompute"])
        part = words(
            recompute="selective", sequence_parallel="true", step_s=row["sec_seqpar_selective"]
        )
        out += [shape | whole, shape | part]
    return out


def mtnlg(folder: Path) -> Rows:
    """Megatron-Turing 530B on DeepSpeed and Megatron-LM."""
    return [
        words(
            gpu="A100-SXM-80GB", framework="deepspeed", precision="bf16", recompute="full",
            hidden=20480, layers=105, heads=128, seq=2048, vocab=51200, micro_batch=1,
            step_s=row["sec_per_iter"], flash="false", zero="0", sequence_parallel="false",
            **{name: row[name] for name in ("gpus", "tp", "pp", "dp", "global_batch")},
        )
        for row in table(folder / "mtnlg530b_a100_40gb.csv")
    ]  # fmt: skip


def mpt(folder: Path) -> Rows:
    """MosaicML's llm-foundry: MPT of 125M to 70B on 8 to 64 A100s, sharded fully."""
    out = []
    for row in table(folder / "llm_foundry_mpt_a100_80.csv"):
        link = next(gb for gb in ("1600", "800", "400") if f"{gb} Gbps" in row["section"])
        out.append(
            words(
                gpu="A100-SXM-80GB", framework="composer", precision="bf16", zero="3",
                hidden=row["d_model"], layers=row["n_layers"], heads=row["n_heads"],
                ffn=int(row["d_model"]) * int(row["expansion_ratio"]), vocab=row["vocab_size"],
                seq=row["SeqLen (T)"], gpus=row["# GPUs"], micro_batch=row["MicroBatchSize"],
                global_batch=row["GlobalBatchSize"], node_link_bps=float(link) / 64 * 1e9,
                recompute="full" if row["Activation Checkpointing"] == "True" else "none",
                tokens_per_s_per_gpu=row["Throughput (T/s/GPU)"], oom="false",
            )
        )  # fmt: skip
    return out


def fms(folder: Path) -> Rows:
    """IBM and PyTorch's FSDP of Llama 2 on 128 A100s and 96 H100s.

    Recomputation is by the ratio of the table's own HFU to MFU: all of the 34B and 70B models.
    """
    out = []
    for row in table(folder / "fms_fsdp_llama2_a100_h100.csv"):
        ratio = float(row["hfu_a100"]) / float(row["mfu_a100"])
        again = "none" if ratio < 1.05 else "selective" if ratio < 1.25 else "full"
        for gpu, gpus, column in (("A100-SXM-80GB", 128, "tok_s_gpu_a100_128gpu"),
                                  ("H100-SXM5", 96, "tok_s_gpu_h100_96gpu")):  # fmt: skip
            out.append(
                words(
                    gpu=gpu, gpus=gpus, framework="fsdp", precision="bf16", zero="3", seq=4096,
                    vocab=32000, micro_batch=row["batch"], recompute=again, gated="true",
                    tokens_per_s_per_gpu=row[column], oom="false", **LLAMA2[row["model"]],
                )
            )  # fmt: skip
    return out


SOURCES: dict[str, Callable[[Path], Rows]] = {
    "Megatron-LM SC21": sc21,
    "Megatron-LM Jan 2021": january2021,
    "Korthikanti 2022": korthikanti,
    "MT-NLG 530B": mtnlg,
    "llm-foundry MPT": mpt,
    "FMS FSDP Llama 2": fms,
}
