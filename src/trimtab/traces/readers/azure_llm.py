"""Read Azure's traces of LLM requests (Splitwise, ISCA 2024): arrival, prompt and output tokens.

The trace says what was asked, not how long it took: run times are modelled by two rates. The
defaults are Llama-2 70B on two A100-80GB as Splitwise's profiles have it (Mutinifni/splitwise-sim
@8f99e7d, MIT): a prompt of 1,024 tokens in 377.3 ms, and 65.6 ms a token in a batch of 16.
"""

from pathlib import Path

import numpy as np

from trimtab.build import workload
from trimtab.core import Workload
from trimtab.errors import TraceError
from trimtab.traces.readers.csv_rows import read_rows

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
PREFILL_HZ = 1024 / 0.3773  # prompt tokens a second
DECODE_HZ = 1 / 0.0656  # output tokens a second of one request in a batch
BATCH = 16  # requests that share a device


def read_azure_llm(
    path: str | Path,
    *,
    lenient: bool | None = None,
    prefill_hz: float = PREFILL_HZ,
    decode_hz: float = DECODE_HZ,
    batch: int = BATCH,
) -> Workload:
    """Each request a job of context / prefill_hz + generated / decode_hz seconds.

    It takes a `batch`-th of one device, which stands for the GPUs that hold the model. `meta` keeps
    each job's `context_tokens` and `generated_tokens`. `lenient` drops broken rows and counts them.
    """
    for name, value in (("prefill_hz", prefill_hz), ("decode_hz", decode_hz), ("batch", batch)):
        if not value > 0:
            raise TraceError(f"{path}: {name}={value} is not above 0; give a rate or a batch size")
    rows = read_rows(path, COLUMNS, lenient=lenient, header=True)
    rows.parse("ContextTokens", "GeneratedTokens")
    for name in COLUMNS[1:]:
        tokens = rows[name]
        rows.refuse((tokens < 0) | (tokens != np.floor(tokens)), name, "is not a whole number >= 0")
    rows.parse_time("TIMESTAMP")
    rows.keep(np.argsort(rows["TIMESTAMP"], kind="stable"))
    context, generated = (rows[name] for name in COLUMNS[1:])
    return workload(
        rows["TIMESTAMP"] - rows["TIMESTAMP"][0],
        context / prefill_hz + generated / decode_hz,
        np.full(len(rows), 1 / batch),
        resources=("gpu",),
        gpus=1,
        gpu_share=1 / batch,
        kinds=("request",),
        source=Path(path).name,
        meta={
            "context_tokens": context.astype(np.int64),
            "generated_tokens": generated.astype(np.int64),
            "modelled": {"prefill_hz": prefill_hz, "decode_hz": decode_hz, "batch": batch},
            "dropped": rows.dropped,
        },
    )
