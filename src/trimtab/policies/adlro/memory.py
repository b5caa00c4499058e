"""What a job's speed will be on every kind of GPU, from the few runs that were seen (ADLRO 3.2).

memory = RuntimeMemory(("k80", "p100", "v100"), seed=0)
memory.observe({"job_type": "LM", "batch_size": 20, "gpus": 1}, "k80", 17.1)     # steps a second
memory.predict({"job_type": "LM", "batch_size": 40, "gpus": 1}).mean             # one a GPU kind

A prediction is a product of two parts, fitted in logarithms. The factorised prior is shared by all
jobs: an effect of the job type, one of the GPU kind, a power of each number. What a type's own runs
say beyond it is held in an associative memory of hypervectors and recalled by likeness.

The paper names a hyperdimensional module and no more; encoding, recall and prior are ours.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import PolicyError, UnknownName
from trimtab.files import whole
from trimtab.policies.adlro.factorised import FactorisedPrior

VERSION = 1
LEVELS = 64  # hypervectors between a number's low and high
LEAST_WEIGHT = 0.05  # of an observation that has faded; below it a record is forgotten
MOST_ANSWERS = 1024  # kept between two runs
METHODS = ("hyperdimensional", "factorised")
DEFAULT = "hyperdimensional"  # where it wins and where it does not: docs/policies/runtime-memory.md


class Field(NamedTuple):
    """A number that a job may bring: its range, and whether its ratios matter or its steps."""

    low: float
    high: float
    ratios: bool


FIELDS = {
    "batch_size": Field(1.0, 16384.0, True),
    "gpus": Field(1.0, 64.0, True),
    "load": Field(0.0, 1.0, False),  # of the GPU's node at the start
    "priority": Field(0.0, 1.0, False),
}


class Prediction(NamedTuple):
    """Of one job on each GPU kind; `mean` is in the unit of what was observed."""

    mean: Array  # (kinds,) geometric mean
    spread: Array  # (kinds,) standard deviation of the logarithm
    observations: Array  # (kinds,) runs of this job type there, faded ones in part


class Runs:
    """The records of one job type: runs alike in GPU kind and numbers are one, with a weight."""

    def __init__(self, fields: int, dimensions: int) -> None:
        self.row: dict[tuple[float | None, ...], int] = {}  # (kind, numbers) -> record
        self.place = np.zeros((0, fields))  # (records, fields) NaN = not given
        self.kind = np.zeros(0, np.int64)  # (records,)
        self.log_value = np.zeros(0)  # (records,)
        self.weight = np.zeros(0)  # (records,) runs, faded ones in part
        self.vector = np.zeros((0, dimensions), np.float32)  # (records, D)
        self.inverse: Array | None = None  # (records, records) of likeness plus noise
        self.recalled = np.zeros(dimensions, np.float32)  # (D,) all records in one
        self.settled = -1  # the observation count that `recalled` rests on

    def add(self, key: tuple[float | None, ...], log_value: float, vector: Array) -> None:
        row = self.row.get(key)
        if row is None:
            self.row[key] = len(self.kind)
            self.place = np.concatenate((self.place, _row(key[1:])[None]))
            self.kind = np.append(self.kind, int(key[0] or 0))
            self.log_value = np.append(self.log_value, log_value)
            self.weight = np.append(self.weight, 1.0)
            self.vector = np.concatenate((self.vector, vector[None]))
        else:
            self.weight[row] += 1.0
            self.log_value[row] += (log_value - self.log_value[row]) / self.weight[row]
        self.inverse = None

    def keep(self, rows: Array) -> None:
        keys = list(self.row)
        self.row = {keys[row]: new for new, row in enumerate(rows)}
        self.place, self.kind, self.vector = self.place[rows], self.kind[rows], self.vector[rows]
        self.log_value, self.weight = self.log_value[rows], self.weight[rows]
        self.inverse = None


class RuntimeMemory:
    """Learns from every finished run and predicts for any job; values are positive, in one unit.

    A job is a mapping: `job_type`, and those of `fields` that are known. `factorised` is the prior
    alone and needs no torch; `hyperdimensional` needs torch-hd once, to draw its vectors, and none
    when loaded from a file. `signal` and `noise` are variances of the logarithm: how far a type may
    stray from the prior, and a run from its type.
    """

    def __init__(
        self,
        gpu_kinds: Sequence[str],
        *,
        method: str = DEFAULT,
        fields: Mapping[str, Field] = FIELDS,
        dimensions: int = 1024,
        signal: float = 0.3,
        noise: float = 0.03,
        ridge: float = 0.01,
        records_a_type: int = 64,
        seed: int = 0,
    ) -> None:
        _check(gpu_kinds, method, dimensions, signal, noise, ridge, records_a_type)
        self.gpu_kinds, self.method, self.fields = tuple(gpu_kinds), method, dict(fields)
        self.dimensions = dimensions if method == "hyperdimensional" else 0
        self.signal, self.noise, self.ridge = signal, noise, ridge
        self.records_a_type, self.seed = records_a_type, seed
        self._items: list[Array] = []
        if self.dimensions:
            self._items = drawn_items(len(self.gpu_kinds), len(self.fields), dimensions, seed)
        self._types: dict[str, Runs] = {}
        columns = len(self.gpu_kinds) + len(self.fields)
        self._prior = FactorisedPrior(columns, ridge=ridge, noise=noise)
        self._answers: dict[Any, Prediction] = {}  # to jobs asked since the last run
        self._count = 0

    def observe(self, features: Mapping[str, Any], gpu_kind: str, value: float) -> None:
        """Remember one finished run."""
        if gpu_kind not in self.gpu_kinds:
            known = ", ".join(self.gpu_kinds)
            raise UnknownName(f"gpu_kind={gpu_kind!r} is not of this memory; choose from: {known}")
        number = _number("value", value)
        if not 0 < number < math.inf:
            raise PolicyError(f"value={value} is not a finite number above 0; drop this run")
        job_type, places = self._read(features)
        self._add(job_type, self.gpu_kinds.index(gpu_kind), places, math.log(number))

    def predict(self, features: Mapping[str, Any]) -> Prediction:
        """What the job would reach on every GPU kind; a wide spread where nothing is known."""
        job_type, places = self._read(features)
        # a queue asks for the same kinds of job again and again between two finished runs
        answer = self._answers.get((job_type, places))
        if answer is None:
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            answer = self._answers[job_type, places] = self._predicted(job_type, places)
        return answer

    def _predicted(self, job_type: str, places: tuple[float | None, ...]) -> Prediction:
        kinds = len(self.gpu_kinds)
        x = self._shared(np.arange(kinds), _row(places))
        log_mean, variance = self._prior.expected(job_type, x)
        if self.dimensions:
            more, doubt = self._recall(job_type, self._encode(places))
            log_mean, variance = log_mean + more, variance + doubt
        seen, runs = np.zeros(kinds), self._types.get(job_type)
        if runs is not None:
            seen += np.bincount(runs.kind, runs.weight, minlength=kinds)
        answer = Prediction(np.exp(log_mean), np.sqrt(variance + self.noise), seen)
        for column in answer:
            column.flags.writeable = False  # it may be given out again
        return answer

    def refit(self, keep: float = 1.0) -> None:
        """Let all that was seen fade to `keep` of its weight, so that what comes counts more."""
        if not 0 <= keep <= 1:
            raise PolicyError(f"keep={keep} is not in 0..1; give the share of weight that stays")
        for job_type, runs in list(self._types.items()):
            runs.weight = runs.weight * keep
            runs.keep(np.flatnonzero(runs.weight >= LEAST_WEIGHT))
            self._settle(job_type)

    def save(self, path: str | Path) -> None:
        """Write all to one file, whole or not at all."""
        settings = {
            name: getattr(self, name)
            for name in ("gpu_kinds", "method", "signal", "noise", "ridge", "records_a_type")
        }
        settings |= {"seed": self.seed, "dimensions": self.dimensions or 1, "fields": self.fields}
        header = {"version": VERSION, "settings": settings, "types": list(self._types)}
        runs = list(self._types.values())
        size = np.array([len(one.kind) for one in runs], np.int64)
        items = enumerate(self._items)
        arrays: dict[str, Any] = {f"item{i}": item.astype(np.int8) for i, item in items}
        for name in ("place", "kind", "log_value", "weight"):
            blank = getattr(Runs(len(self.fields), 0), name)
            arrays[name] = np.concatenate([blank, *(getattr(one, name) for one in runs)])
        with whole(path) as place, place.open("wb") as file:
            np.savez_compressed(file, header=np.array(json.dumps(header)), size=size, **arrays)

    def _add(self, job_type: str, kind: int, places: tuple[float | None, ...], y: float) -> None:
        runs = self._types.get(job_type)
        if runs is None:
            runs = self._types[job_type] = Runs(len(self.fields), self.dimensions)
        key = (kind, *places)
        vector = np.zeros(0, np.float32)
        if key not in runs.row:
            if len(runs.kind) >= self.records_a_type:
                # the least sure goes, and of equals the oldest: rows are in order of arrival
                runs.keep(np.delete(np.arange(len(runs.kind)), np.argmin(runs.weight)))
            if self.dimensions:
                vector = self._encode(places)[kind]
        runs.add(key, y, vector)
        self._settle(job_type)

    def _read(self, features: Mapping[str, Any]) -> tuple[str, tuple[float | None, ...]]:
        """Job type and numbers of a job, each where it lies in the prior; None = not given."""
        for name in features:
            if name != "job_type" and name not in self.fields:
                known = ", ".join(("job_type", *self.fields))
                raise UnknownName(f"feature {name!r} is unknown; known features: {known}")
        places: list[float | None] = []
        for name, field in self.fields.items():
            value = features.get(name)
            if value is None:
                places.append(None)
                continue
            number = _number(name, value)
            if not math.isfinite(number) or (field.ratios and number <= 0):
                want = "a finite number above 0" if field.ratios else "a finite number"
                raise PolicyError(f"{name}={value} is not {want}; mend it or leave it out")
            places.append(_place(field, number))
        return str(features.get("job_type", "")), tuple(places)

    def _encode(self, places: tuple[float | None, ...]) -> Array:
        """The record of a job on each GPU kind, (kinds, D), of length 1 a part.

        A record bundles every filler bound to its role, and all of them bound to each other: runs
        are alike as far as single fields agree, and more so where all do.
        """
        fillers = [
            levels[_step(field, place)]
            for field, place, levels in zip(self.fields.values(), places, self._items[1:])
            if place is not None
        ]
        kinds = self._items[0]
        if not fillers:
            return kinds / np.float32(math.sqrt(self.dimensions))
        alone, together = fillers[0], fillers[0]
        for filler in fillers[1:]:
            alone, together = alone + filler, together * filler
        return (kinds + alone + kinds * together) / np.float32(math.sqrt(self.dimensions))

    def _recall(self, job_type: str, vector: Array) -> tuple[Array, Array]:
        """What the type's own records add to the prior on each GPU kind, and how unsure that is.

        Only records of the type are asked. Binding the type into every record would make the other
        types' quasi-orthogonal, which is the same but for crosstalk.
        """
        variance = self.signal * (vector * vector).sum(1)
        runs = self._types.get(job_type)
        if runs is None:
            return np.zeros(len(vector)), variance
        if runs.inverse is None:
            likeness = self.signal * (runs.vector @ runs.vector.T).astype(np.float64)
            runs.inverse = np.linalg.inv(likeness + np.diag(self.noise / runs.weight))
        if runs.settled != self._count:
            x = self._shared(runs.kind, runs.place)
            expected, _ = self._prior.expected(job_type, x)
            share = runs.inverse @ (runs.log_value - expected)
            runs.recalled = (self.signal * share).astype(np.float32) @ runs.vector
            runs.settled = self._count
        like = self.signal * (vector @ runs.vector.T)  # (kinds, records)
        known = ((like @ runs.inverse) * like).sum(1)
        return vector @ runs.recalled, np.maximum(variance - known, 0.0)

    def _shared(self, kind: Array, place: Array) -> Array:
        """Columns of the prior, (records, q): the GPU kind one-hot, then the numbers."""
        x = np.zeros((len(kind), len(self.gpu_kinds) + len(self.fields)))
        x[np.arange(len(kind)), kind] = 1.0
        x[:, len(self.gpu_kinds) :] = np.where(np.isnan(place), 0.0, place)
        return x

    def _settle(self, job_type: str) -> None:
        """Tell the prior of the type's records; one without any is forgotten."""
        runs = self._types[job_type]
        # a record seen often is sure, not more of a sample of jobs: it counts at most twice
        weight = 2 * runs.weight / (1 + runs.weight)
        self._prior.put(job_type, self._shared(runs.kind, runs.place), runs.log_value, weight)
        if not len(runs.kind):
            del self._types[job_type]
        self._answers.clear()
        self._count += 1


def load(path: str | Path) -> RuntimeMemory:
    """A memory as it was saved; needs neither torch nor torch-hd."""
    header, arrays = _opened(path)
    settings = dict(header["settings"])
    method = settings.pop("method")
    settings["fields"] = {name: Field(*field) for name, field in settings["fields"].items()}
    memory = RuntimeMemory(method="factorised", **settings)
    if method == "hyperdimensional":
        memory.method, memory.dimensions = method, settings["dimensions"]
        drawn = range(1 + len(memory.fields))
        memory._items = [arrays[f"item{i}"].astype(np.float32) for i in drawn]
    job_type = np.repeat(np.array(header["types"], object), arrays["size"])  # (records,)
    for row, name in enumerate(job_type):
        places = tuple(None if math.isnan(place) else place for place in arrays["place"][row])
        memory._add(name, int(arrays["kind"][row]), places, float(arrays["log_value"][row]))
    for name, runs in list(memory._types.items()):
        runs.weight = arrays["weight"][job_type == name]
        memory._settle(name)
    return memory


def _opened(path: str | Path) -> tuple[dict[str, Any], dict[str, Array]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(str(arrays["header"]))
        version = header["version"]
    except FileNotFoundError:
        raise PolicyError(f"{path}: no such file; save a memory there first") from None
    except (
        *(OSError, ValueError, KeyError, TypeError, AttributeError, EOFError),
        zipfile.BadZipFile,
    ) as problem:
        raise PolicyError(
            f"{path}: is not a saved runtime memory ({problem}); name one that save() wrote"
        ) from None
    if version != VERSION:
        raise PolicyError(f"{path}: version={version}, this Trimtab reads {VERSION}; save it anew")
    return header, arrays


def drawn_items(gpu_kinds: int, fields: int, dimensions: int, seed: int) -> list[Array]:
    """Hypervectors of +1 and -1, fillers bound to their roles: (kinds, D), then (levels, D) each.

    GPU kinds are unrelated; levels of a number are the less alike the farther they are apart.
    """
    try:
        import torch
        import torchhd
    except ImportError as problem:
        raise PolicyError(
            f"method='hyperdimensional' needs torch-hd to draw its vectors ({problem}); install "
            "trimtab[train], load a saved memory, or choose method='factorised'"
        ) from None
    generator = torch.Generator().manual_seed(seed)
    drawn: dict[str, Any] = {"vsa": "MAP", "generator": generator}
    roles = torchhd.random(1 + fields, dimensions, **drawn)
    fillers = [torchhd.random(gpu_kinds, dimensions, **drawn)]
    fillers += [torchhd.level(LEVELS, dimensions, **drawn) for _ in range(fields)]
    return [torchhd.bind(role, filler).numpy() for role, filler in zip(roles, fillers)]


def _place(field: Field, number: float) -> float:
    """Where a number lies from the middle of its range, in the unit that the prior is linear in."""
    if field.ratios:
        return math.log(number) - (math.log(field.low) + math.log(field.high)) / 2
    return number - (field.low + field.high) / 2


def _step(field: Field, place: float) -> int:
    high = _place(field, field.high)
    return round((LEVELS - 1) * min(max(0.5 + place / (2 * high), 0.0), 1.0))


def _row(places: tuple[float | None, ...]) -> Array:
    return np.array([math.nan if place is None else place for place in places])


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise PolicyError(f"{name}={value!r} is not a number; give one") from None


def _check(gpu_kinds: Sequence[str], method: str, *settings: float) -> None:
    if method not in METHODS:
        raise UnknownName(f"method={method!r} is unknown; choose from: {', '.join(METHODS)}")
    if not gpu_kinds or len(set(gpu_kinds)) != len(gpu_kinds):
        raise PolicyError(f"gpu_kinds={tuple(gpu_kinds)} must name each GPU kind once")
    names = ("dimensions", "signal", "noise", "ridge", "records_a_type")
    for name, value in zip(names, settings):
        if not 0 < value < math.inf:
            raise PolicyError(f"{name}={value} is not above 0; give a positive number")
