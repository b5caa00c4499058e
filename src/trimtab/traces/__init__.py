"""Workloads from files and from generators, clusters from files and presets.

A reader loads when a file of its kind is read: Parquet brings pyarrow, the others cost NumPy.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from trimtab.core import Workload
from trimtab.errors import TraceError
from trimtab.traces.readers.alibaba2017 import is_alibaba2017
from trimtab.traces.readers.csv_rows import content
from trimtab.traces.readers.pai import is_pai
from trimtab.traces.readers.philly import is_job_log
from trimtab.traces.readers.sacct import is_sacct
from trimtab.traces.readers.swf_text import WIDTH

PACKED = (".gz", ".xz", ".bz2")
READERS = {  # kind of file: module and function(path, *, lenient, ...)
    "swf": ("trimtab.traces.readers.swf", "read_swf"),
    "parquet": ("trimtab.traces.readers.parquet", "load"),
    "openb": ("trimtab.traces.readers.openb", "read_workload"),
    "alibaba2017": ("trimtab.traces.readers.alibaba2017", "read_alibaba2017"),
    "pai": ("trimtab.traces.readers.pai", "read_pai"),
    "philly": ("trimtab.traces.readers.philly", "read_philly"),
    "azure-llm": ("trimtab.traces.readers.azure_llm", "read_azure_llm"),
    "sacct": ("trimtab.traces.readers.sacct", "read_sacct"),
    "prepared": ("trimtab.traces", "read_prepared"),
}
BEGINS = {  # of a header: the kind of file
    "name,cpu_milli,memory_mib,num_gpu": "openb",
    "timestamp,duration,num_gpus": "philly",
    "TIMESTAMP,ContextTokens,GeneratedTokens": "azure-llm",
}
DIRTY = ("swf", "alibaba2017", "pai", "philly", "azure-llm")  # are published with bad rows
SNIFFED_BYTES = 65536
MANIFEST, MADE_BY = "manifest.json", "trimtab trace prepare"


def read(
    path: str | Path,
    *,
    lenient: bool | None = None,
    nodes: str | None = None,
    machine: str | None = None,
) -> Workload:
    """The workload in a file, whose kind its suffix tells, or else its content.

    `lenient` drops and counts bad rows, False refuses them; None drops a few of the formats that
    are published with such. `nodes` and `machine` are for logs of processors: see `read_swf`.
    """
    path = Path(path)
    kind = file_kind(path)
    if kind not in READERS:
        raise TraceError(
            f"{path}: the kind of trace is unknown ({kind}); give an SWF log (.swf, also packed: "
            f"{' '.join(PACKED)}), a .parquet workload, an openb pod list, Alibaba's batch_task of "
            f"2017 or pai_task_table of 2020, a Philly job log, Azure's LLM requests, Slurm's "
            f"sacct (--parsable2 or --json), or a folder that `{MADE_BY}` made"
        )
    options: dict[str, Any] = {"lenient": lenient if kind in DIRTY else bool(lenient)}
    if kind == "swf":
        options |= {"nodes": nodes, "machine": machine}
    else:
        check_no_machine(path, nodes, machine)
    module, function = READERS[kind]
    work: Workload = getattr(import_module(module), function)(path, **options)
    return work


def check_no_machine(trace: str | Path, nodes: str | None, machine: str | None) -> None:
    """Raise where a log's machine is asked for of what is no log of processors."""
    for option, value in (("--nodes", nodes), ("--machine", machine)):
        if value is not None:
            raise TraceError(
                f"{trace}: {option} {value} is for logs in the standard workload format, which "
                "this is not; leave it out, or give nodes with --cluster"
            )


def file_kind(path: str | Path) -> str:
    """A key of READERS, or in words what the file looks like."""
    path = Path(path)
    if is_prepared(path):
        return "prepared"
    bare = path.with_suffix("") if path.suffix in PACKED else path
    if bare.suffix.removeprefix(".") in READERS:
        return bare.suffix.removeprefix(".")
    if path.is_dir():
        return "a folder"
    data = content(path)[:SNIFFED_BYTES]
    if data.startswith(b"PAR1"):
        return "parquet"
    return _text_kind(data.decode("latin-1").removeprefix("ï»¿"))  # a byte order mark


def _text_kind(text: str) -> str:
    if is_job_log(text):
        return "philly"
    if is_sacct(text):
        return "sacct"
    lines = [line for line in text.splitlines() if line.strip()]
    for begin, kind in BEGINS.items():
        if lines and lines[0].startswith(begin):
            return kind
    fields = [field.strip() for field in lines[0].split(",")] if lines else [""]
    if is_alibaba2017(fields):
        return "alibaba2017"
    if is_pai(fields):
        return "pai"
    rows = [line for line in lines if not line.lstrip().startswith(";")]
    if lines and (not rows or len(rows[0].split()) >= WIDTH):
        return "swf"
    return f"its first line is {rows[0][:60]!r}" if rows else "it is empty"


def is_prepared(path: str | Path) -> bool:
    """Whether a folder's manifest says that `trimtab trace prepare` made it."""
    try:
        manifest = json.loads((Path(path) / MANIFEST).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("made_by") == MADE_BY


def read_prepared(path: str | Path, *, lenient: bool = False) -> Workload:
    """The workload of a prepared folder, which was cleaned when it was made."""
    if not (Path(path) / "workload.parquet").is_file():
        raise TraceError(
            f"{path}: holds the load of machines and no work to schedule; prepare a folder with "
            f"batch_task, or give a trace of jobs"
        )
    module, function = READERS["parquet"]
    return getattr(import_module(module), function)(
        Path(path) / "workload.parquet", lenient=lenient
    )
