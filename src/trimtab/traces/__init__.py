"""Workloads from files and from generators, clusters from files and presets.

A reader loads when a file of its kind is read: Parquet brings pyarrow, the others cost NumPy.
"""

from importlib import import_module
from pathlib import Path

from trimtab.core import Workload
from trimtab.errors import TraceError
from trimtab.traces.swf import WIDTH, read_bytes

PACKED = (".gz", ".xz", ".bz2")
READERS = {  # kind of file: module and function(path, *, lenient)
    "swf": ("trimtab.traces.swf", "read_swf"),
    "parquet": ("trimtab.traces.parquet", "load"),
    "openb": ("trimtab.traces.openb", "read_workload"),
}
OPENB_HEADER = "name,cpu_milli,memory_mib,num_gpu"
SNIFFED_BYTES = 65536


def read(path: str | Path, *, lenient: bool = False) -> Workload:
    """The workload in a file, whose kind its suffix tells, or else its content.

    `lenient` drops and counts the rows that a strict read refuses.
    """
    path = Path(path)
    kind = file_kind(path)
    if kind not in READERS:
        raise TraceError(
            f"{path}: the kind of trace is unknown ({kind}); give an SWF log (.swf, also packed: "
            f"{' '.join(PACKED)}), a .parquet workload or an openb pod list"
        )
    module, function = READERS[kind]
    return getattr(import_module(module), function)(path, lenient=lenient)


def file_kind(path: str | Path) -> str:
    """A key of READERS, or in words what the file looks like."""
    path = Path(path)
    bare = path.with_suffix("") if path.suffix in PACKED else path
    if bare.suffix.removeprefix(".") in READERS:
        return bare.suffix.removeprefix(".")
    if path.is_dir():
        return "a folder"
    data = read_bytes(path)[:SNIFFED_BYTES]
    if data.startswith(b"PAR1"):
        return "parquet"
    lines = [line for line in data.decode("latin-1").splitlines() if line.strip()]
    if lines and lines[0].startswith(OPENB_HEADER):
        return "openb"
    rows = [line for line in lines if not line.lstrip().startswith(";")]
    if lines and (not rows or len(rows[0].split()) >= WIDTH):
        return "swf"
    return f"its first line is {rows[0][:60]!r}" if rows else "it is empty"
