"""Many independent trials on all processors; each is kept in a file as soon as it is finished.

A trial calls one function with plain settings, and its outcome depends on nothing else: not on
the number of workers, nor on what ran before it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.errors import TrimtabError
from trimtab.policies import file_of
from trimtab.sources import reached

KEPT_IN = "trials.jsonl"
TRAINED = (".onnx", ".npz", ".json", ".csv")  # weights, profiles and tables that ship
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Trial(NamedTuple):
    """A call that gives what JSON can hold."""

    call: str  # "module:function"
    settings: dict[str, Any]  # keyword arguments, plain values only

    @property
    def key(self) -> str:
        return json.dumps([self.call, self.settings], sort_keys=True)

    @property
    def name(self) -> str:
        return str(self.settings.get("policy", self.call.rpartition(".")[2].partition(":")[0]))


def finished(
    trials: Sequence[Trial], workers: int | None = None, keep: Path | None = None
) -> Generator[tuple[Trial, Any]]:
    """Each trial with its outcome, in the order in which they finish.

    `workers` None = one a processor; 1 runs all of them in this process. `keep` is a folder: what
    it holds of the same source and settings is not run again, and what finishes is added to it.
    """
    known = {} if keep is None else read_kept(keep)
    missing = []
    for trial in trials:
        if (follows(trial), trial.key) in known:
            yield trial, known[follows(trial), trial.key]
        else:
            missing.append(trial)
    count = min(workers or os.cpu_count() or 1, len(missing))
    runs = map(_with_outcome, missing) if count <= 1 else _in_processes(missing, count)
    for trial, outcome in runs:
        if keep is not None:
            add_kept(keep, trial, outcome)
        yield trial, outcome


def outcome_of(trial: Trial) -> Any:
    module, _, function = trial.call.partition(":")
    # through JSON, so that a kept outcome and a fresh one are the same to the last bit
    return json.loads(json.dumps(getattr(import_module(module), function)(**trial.settings)))


def _with_outcome(trial: Trial) -> tuple[Trial, Any]:
    return trial, outcome_of(trial)


def _in_processes(trials: Sequence[Trial], workers: int) -> Iterator[tuple[Trial, Any]]:
    before = set(multiprocessing.active_children())
    # spawned, not forked: a fork would copy the locks of threads that compiled code has started
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _follow_parent)
    try:
        with _one_thread_each():
            of_future = {pool.submit(outcome_of, trial): trial for trial in trials}
        for future in as_completed(of_future):
            yield of_future[future], future.result()
    except BrokenProcessPool:
        raise TrimtabError(
            f"a worker process was ended from outside, perhaps for want of memory; give fewer than "
            f"--workers {workers}"
        ) from None
    except BaseException:  # also Ctrl-C, and a reader who has seen enough
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _follow_parent() -> None:
    """Leave Ctrl-C to the first process, which ends this one, and end where that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def outlive() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=outlive, daemon=True).start()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """The workers take all processors already; libraries read this when they load."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@cache
def source_of(call: str) -> str:
    """A hash of the code and the trained weights that a trial follows from."""
    code = reached(Path(str(import_module(call.partition(":")[0]).__file__)), named=True)
    beside = {data for path in code for data in path.parent.iterdir() if data.suffix in TRAINED}
    found = sha256()
    for path in sorted({*code, *beside}):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def follows(trial: Trial) -> str:
    """A hash of all that a trial follows from: its source, and the file of a policy's network."""
    file = file_of(str(trial.settings.get("policy", "")))
    source = source_of(trial.call)
    return source + sha256(file.read_bytes()).hexdigest()[:16] if file else source


def read_kept(folder: Path) -> dict[tuple[str, str], Any]:
    """Outcomes by source and key; a line that was cut off while it was written counts for none."""
    known = {}
    path = folder / KEPT_IN
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
            known[row["source"], row["key"]] = row["outcome"]
        except (ValueError, KeyError, TypeError):
            continue
    return known


def add_kept(folder: Path, trial: Trial, outcome: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    row = {"source": follows(trial), "key": trial.key, "outcome": outcome}
    with open(folder / KEPT_IN, "a+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":  # the line before was cut off
                file.write(b"\n")
        file.write(json.dumps(row).encode() + b"\n")
