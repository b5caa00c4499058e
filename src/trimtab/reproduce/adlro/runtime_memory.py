"""Is the hyperdimensional runtime memory (ADLRO 3.2) better than simpler ways to guess a speed?

Measured on Gavel's table, or on Sia's profiles. A family of job types is left out, a few noisy runs
of it are shown, and the speeds of its other cells (batch size, GPUs, GPU kind) are asked. Every
method gets the same runs and the same features, and picks one of six settings on the families that
were not left out.
"""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import TraceError
from trimtab.metrics import interval
from trimtab.policies.adlro.memory import RuntimeMemory
from trimtab.traces.scenes.gavel import MEASURED, STEPS_HZ

OBSERVATIONS = (1, 5, 20)
NOISE = 0.1  # standard deviation of a run's logarithm, assumed: the table has one run a cell
# suffix of a file of Sia's profiles: the GPU of the cluster it was measured on
SIA = {"aws": "t4", "quad": "rtx6000", "rtx": "2080ti", "dgx-ext": "a100"}
SCENES = ("other cells", "a GPU kind not seen")
TUNING_SEED = 1_000_000  # the draws that settings are picked on, apart from those that count


class Cells(NamedTuple):
    """The measured cells of a table."""

    family: Array  # (C,) strings
    batch_size: Array  # (C,) NaN = the job has none
    gpus: Array  # (C,)
    kind: Array  # (C,) rows of kinds
    log_rate: Array  # (C,) of steps a second
    kinds: tuple[str, ...]  # of GPU


class Draw(NamedTuple):
    """What one trial shows and asks."""

    train: Array  # (T,) cells, those shown of the family last
    log_rate: Array  # (T,) with noise
    ask: Array  # (A,) cells


Method = Callable[..., Array]  # (cells, draw, ask (A,), seed, **setting) -> (A,) log rate


def table(path: str | Path | None = None) -> Cells:
    """Gavel's speeds as built in, one GPU a job; or those in a file or folder of published ones.

    A file is Gavel's CSV of isolated throughputs, up to eight GPUs a job: job_type, scale_factor,
    k80, p100, v100. A folder is Sia's (SOSP 2023) profiles: one folder a model in it.
    """
    if path is None:
        rows = [(job_type, 1, *steps_hz) for job_type, steps_hz in STEPS_HZ.items()]
    elif Path(path).is_dir():
        return _sia(Path(path))
    else:
        rows = _read(Path(path))
    cells = []
    for job_type, gpus, *steps_hz in rows:
        family, _, batch_size = str(job_type).rstrip(")").partition(" (batch size ")
        size = float(batch_size) if batch_size else math.nan
        cells += [
            (family, size, gpus, kind, math.log(rate))
            for kind, rate in enumerate(steps_hz)
            if rate > 0  # 0 = it does not fit
        ]
    return _cells(cells, MEASURED)


def _read(path: Path) -> list[tuple[Any, ...]]:
    try:
        with open(path, newline="") as file:
            return [
                (row["job_type"], int(row["scale_factor"]), *(float(row[k]) for k in MEASURED))
                for row in csv.DictReader(file)
            ]
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; leave it out to use the built-in table") from None
    except (KeyError, ValueError, TypeError) as problem:
        raise TraceError(
            f"{path}: not Gavel's table of isolated throughputs ({problem}); leave it out to use "
            "the built-in one"
        ) from None


def _sia(folder: Path) -> Cells:
    """One machine of 1, 2 or 4 GPUs and five of each model's batch sizes, from small to large."""
    cells = []
    for model in sorted(path for path in folder.iterdir() if path.is_dir()):
        step_s: dict[tuple[int, int, int], float] = {}  # kind, batch size, GPUs
        for kind, suffix in enumerate(SIA):
            path = model / f"placements-{suffix}.csv"
            for row in csv.DictReader(path.open(newline="")) if path.is_file() else ():
                if row["placement"] in ("1", "2", "4"):
                    key = (kind, int(float(row["local_bsz"])), int(row["placement"]))
                    step_s.setdefault(key, float(row["step_time"]))
        if len({kind for kind, _, _ in step_s}) < len(SIA):
            continue  # a model that did not run on every GPU cannot be asked for all
        sizes = sorted({size for _, size, _ in step_s})
        chosen = {sizes[i] for i in np.linspace(0, len(sizes) - 1, 5).round().astype(int)}
        cells += [
            (model.name, float(size), gpus, kind, -math.log(time_s))
            for (kind, size, gpus), time_s in step_s.items()
            if size in chosen
        ]
    if not cells:
        raise TraceError(f"{folder}: holds no model with placements-{'|'.join(SIA)}.csv of Sia")
    return _cells(cells, tuple(SIA.values()))


def _cells(rows: Iterable[tuple[str, float, int, int, float]], kinds: tuple[str, ...]) -> Cells:
    family, batch_size, gpus, kind, log_rate = (np.array(column) for column in zip(*rows))
    return Cells(family, batch_size, gpus, kind, log_rate, kinds)


def measured(
    seeds: int = 10, quick: bool = False, path: str | Path | None = None
) -> list[dict[str, Any]]:
    """Error of each method after 1, 5 and 20 runs, as rows with 95 % intervals over the seeds.

    `error` is the mean absolute error of the logarithm over the families, `mape` that of the rate
    relative to the truth, `regret` the speed lost by choosing the GPU kind that looked fastest.
    `change` is the error of `hyperdimensional` less this method's on the same draws: below 0, the
    hyperdimensional memory is better. `families_won` counts the families where it is.
    """
    cells = table(path)
    scenes, seeds = (SCENES[:1], min(seeds, 4)) if quick else (SCENES, seeds)
    rows = []
    for scene in scenes:
        for observations in OBSERVATIONS:
            scores = {
                name: _scores(cells, name, scene, observations, seeds, quick) for name in METHODS
            }
            rows += [_row(name, scene, observations, scores) for name in METHODS]
    return rows


def _row(name: str, scene: str, observations: int, scores: dict[str, Array]) -> dict[str, Any]:
    own, ours = scores[name], scores["hyperdimensional"]  # (seeds, families, metrics)
    error, half = interval(own[:, :, 0].mean(1))
    change, change_half = interval((ours - own)[:, :, 0].mean(1))
    half, change_half = half or 0.0, change_half or 0.0
    return {
        "method": name,
        "scene": scene,
        "observations": observations,
        "error": error,
        "low": error - half,
        "high": error + half,
        "mape": float(own[:, :, 1].mean()),
        "regret": float(own[:, :, 2].mean()),
        "change": change,
        "change_low": change - change_half,
        "change_high": change + change_half,
        "families_won": int(((ours - own)[:, :, 0].mean(0) < 0).sum()),
        "families": own.shape[1],
    }


def _scores(
    cells: Cells, name: str, scene: str, observations: int, seeds: int, quick: bool
) -> Array:
    """(seeds, families, 3): error, mape, regret."""
    method, settings = METHODS[name]
    families = np.unique(cells.family)
    scores = np.zeros((seeds, len(families), 3))
    for f, family in enumerate(families):
        # in haste the middle setting stands for the best
        setting = settings[len(settings) // 2]
        if not quick:
            setting = _tuned(cells, name, family, scene, observations)
        for seed in range(seeds):
            draw = drawn(cells, family, scene, observations, seed)
            scores[seed, f] = _judged(cells, draw, method, seed, setting)
    return scores


def _tuned(
    cells: Cells, name: str, left_out: str, scene: str, observations: int
) -> dict[str, float]:
    """The setting with the least error where each other family in turn is left out."""
    method, settings = METHODS[name]
    rest = cells.family != left_out
    others = Cells._make([*(column[rest] for column in cells[:-1]), cells.kinds])
    if len(settings) == 1:
        return settings[0]
    draws = [
        drawn(others, family, scene, observations, TUNING_SEED)
        for family in np.unique(others.family)
    ]

    def error(setting: dict[str, float]) -> float:
        return sum(_error(others, draw, method, TUNING_SEED, setting) for draw in draws)

    return min(settings, key=error)


def _error(cells: Cells, draw: Draw, method: Method, seed: int, setting: dict[str, float]) -> float:
    guess = method(cells, draw, draw.ask, seed, **setting)
    return float(np.abs(guess - cells.log_rate[draw.ask]).mean())


def drawn(cells: Cells, family: str, scene: str, observations: int, seed: int) -> Draw:
    """One trial; a seed asks the same cells whatever the number of observations.

    Every other cell of the table is shown once. Of the family, one third of the cells are asked,
    or all on one GPU kind; runs are drawn from the rest, each cell once before any comes again.
    """
    rng = np.random.default_rng((seed, *family.encode()))
    own = rng.permutation(np.flatnonzero(cells.family == family))
    asked = np.arange(len(own)) < max(1, len(own) // 3)
    if scene == SCENES[1]:
        asked = cells.kind[own] == rng.integers(len(cells.kinds))
    pool = own[~asked]
    rounds = [rng.permutation(pool) for _ in range(-(-max(OBSERVATIONS) // len(pool)))]
    shown = np.concatenate(rounds)[:observations]
    train = np.concatenate((np.flatnonzero(cells.family != family), shown))
    noise = rng.normal(0.0, NOISE, len(train))
    return Draw(train, cells.log_rate[train] + noise, own[asked])


def _judged(
    cells: Cells, draw: Draw, method: Method, seed: int, setting: dict[str, float]
) -> tuple[float, float, float]:
    family = np.flatnonzero(cells.family == cells.family[draw.ask[0]])
    guess = method(cells, draw, family, seed, **setting)
    asked = np.isin(family, draw.ask)
    off = (guess - cells.log_rate[family])[asked]
    lost = []
    for job in _jobs(cells, family):
        chosen = family[job[np.argmax(guess[job])]]
        lost.append(1 - math.exp(cells.log_rate[chosen] - cells.log_rate[family[job]].max()))
    return float(np.abs(off).mean()), float(np.abs(np.expm1(off)).mean()), float(np.mean(lost))


def _jobs(cells: Cells, rows: Array) -> Iterator[Array]:
    """Rows of `rows` that are one job on different GPU kinds."""
    job = np.stack((np.nan_to_num(cells.batch_size[rows]), cells.gpus[rows]), axis=1)
    _, number = np.unique(job, axis=0, return_inverse=True)
    for one in range(int(number.max()) + 1):
        yield np.flatnonzero(number.ravel() == one)


def _features(cells: Cells, row: int) -> dict[str, Any]:
    features = {"job_type": str(cells.family[row]), "gpus": float(cells.gpus[row])}
    if not math.isnan(cells.batch_size[row]):
        features["batch_size"] = float(cells.batch_size[row])
    return features


def _remembered(
    cells: Cells, draw: Draw, ask: Array, seed: int, method: str, **setting: Any
) -> Array:
    memory = RuntimeMemory(cells.kinds, method=method, seed=seed, **setting)
    for row, log_rate in zip(draw.train, draw.log_rate):
        memory.observe(_features(cells, row), cells.kinds[cells.kind[row]], math.exp(log_rate))
    mean = [memory.predict(_features(cells, row)).mean[cells.kind[row]] for row in ask]
    return np.log(mean)


def _hyperdimensional(cells: Cells, draw: Draw, ask: Array, seed: int, **setting: float) -> Array:
    return _remembered(cells, draw, ask, seed, "hyperdimensional", **setting)


def _factorised(cells: Cells, draw: Draw, ask: Array, seed: int, **setting: float) -> Array:
    return _remembered(cells, draw, ask, seed, "factorised", **setting)


def _means(cells: Cells, draw: Draw, ask: Array, seed: int) -> Array:
    """Mean of the type's runs times mean of the GPU kind, each relative to the mean of all."""
    kind, family = cells.kind[draw.train], cells.family[draw.train]
    level = draw.log_rate.mean()
    by_kind = np.array([draw.log_rate[kind == k].mean() - level for k in range(len(cells.kinds))])
    rest = draw.log_rate - by_kind[kind]
    by_family = {name: rest[family == name].mean() for name in np.unique(family)}
    return np.array([by_family[cells.family[row]] + by_kind[cells.kind[row]] for row in ask])


def _columns(cells: Cells, type_weight: float) -> Array:
    """(C, columns) for scikit-learn: type and GPU kind one-hot, batch size and GPUs as octaves."""
    families = np.unique(cells.family)
    octaves = np.log2(np.stack((cells.batch_size, cells.gpus), axis=1))
    octaves -= np.nanmean(octaves, axis=0)
    one_hot = cells.family[:, None] == families
    kind = cells.kind[:, None] == np.arange(len(cells.kinds))
    return np.concatenate((type_weight * one_hot, kind, np.nan_to_num(octaves) / 2), axis=1)


def _neighbours(
    cells: Cells, draw: Draw, ask: Array, seed: int, k: int, type_weight: float
) -> Array:
    from sklearn.neighbors import KNeighborsRegressor

    x = _columns(cells, type_weight)
    model = KNeighborsRegressor(min(k, len(draw.train)), weights="distance")
    return model.fit(x[draw.train], draw.log_rate).predict(x[ask])


def _boosting(
    cells: Cells, draw: Draw, ask: Array, seed: int, depth: int, learning_rate: float
) -> Array:
    from sklearn.ensemble import GradientBoostingRegressor

    x = _columns(cells, 1.0)
    model = GradientBoostingRegressor(
        n_estimators=100, max_depth=depth, learning_rate=learning_rate, random_state=seed % 2**32
    )
    return model.fit(x[draw.train], draw.log_rate).predict(x[ask])


def _on_the_prior(method: Method) -> Method:
    """The method applied to what the factorised prior leaves unexplained."""

    def guess(cells: Cells, draw: Draw, ask: Array, seed: int, **setting: Any) -> Array:
        both = np.concatenate((draw.train, ask))
        prior = _factorised(cells, draw, both, seed)
        shown, asked = prior[: len(draw.train)], prior[len(draw.train) :]
        left = draw._replace(log_rate=draw.log_rate - shown)
        return asked + method(cells, left, ask, seed, **setting)

    return guess


def _grid(first: str, firsts: Sequence[float], second: str, seconds: Sequence[float]) -> list:
    return [{first: a, second: b} for a in firsts for b in seconds]


_NEAR = _grid("k", (1, 3, 5), "type_weight", (1.0, 3.0))
_TREES = _grid("depth", (1, 2, 4), "learning_rate", (0.1, 0.3))
METHODS: dict[str, tuple[Method, list[dict[str, Any]]]] = {
    "hyperdimensional": (
        _hyperdimensional,
        _grid("signal", (0.03, 0.1, 0.3), "noise", (0.01, 0.03)),
    ),
    "factorised": (_factorised, [{"ridge": 10.0**-power} for power in (4, 3, 2.5, 2, 1, 0)]),
    "means": (_means, [{}]),
    "neighbours": (_neighbours, _NEAR),
    "boosting": (_boosting, _TREES),
    "neighbours on the prior": (_on_the_prior(_neighbours), _NEAR),
    "boosting on the prior": (_on_the_prior(_boosting), _TREES),
}
