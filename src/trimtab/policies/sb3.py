"""Models of Stable-Baselines3 and sb3-contrib that learned in our environments, by their .zip.

named("sb3:ppo.zip")                 codec and window by what the model sees and may choose
named("sb3:ppo.zip,place=spread")    with the place rule of its environment, where not `best`

PPO, A2C, TRPO, MaskablePPO, DQN and QRDQN of trimtab/Queue-v0 and Grid-v0. Reading a .zip runs code
that is pickled in it, as Stable-Baselines3 does itself: take those that you trust.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

from trimtab.arrays import Array
from trimtab.codecs.grid import SINGLE, GridCodec
from trimtab.codecs.queue import WIDTH, QueueCodec
from trimtab.core import Decision, Snapshot, Start, Wait
from trimtab.errors import PolicyError, UnknownName
from trimtab.rules.names import PLACES, unknown

PARTS = ("data", "policy.pth")  # of every model that Stable-Baselines3 saves
NEEDED = ("policy_class", "policy_kwargs", "observation_space", "action_space")
CODECS = ("queue", "grid")
OBSERVATION, MASK = "observation", "action_mask"  # of our environments' observations
REMEDY = "save one with model.save('ppo.zip')"


class Named(NamedTuple):
    """What `sb3:FILE,codec=..,window=..,place=..` says; None where it leaves that to the file."""

    file: Path
    codec: str | None = None
    window: int | None = None
    place: str = "best"


def named(text: str | Path) -> Named:
    """The file and the settings behind it, each checked by itself."""
    path, *parts = str(text).split(",")
    given: dict[str, Any] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or key not in Named._fields[1:]:
            raise PolicyError(
                f"sb3:{text}: {part!r} is no setting; those of a model are codec=queue or grid, "
                "window=16 and place=best"
            )
        given[key] = value
    if "window" in given:
        if not given["window"].isdigit() or int(given["window"]) < 1:
            raise PolicyError(f"sb3:{text}: window={given['window']}; give a number from 1")
        given["window"] = int(given["window"])
    for key, known in (("codec", CODECS), ("place", PLACES)):
        if given.get(key, next(iter(known))) not in known:
            raise UnknownName(unknown(key, f"sb3:{text}", given[key], known))
    return Named(Path(path), **given)


def check(text: str | Path) -> None:
    """Raise what making the policy would, as far as can be told without loading torch."""
    asked = named(text)
    _facts(asked.file)
    _library()


class SB3Policy:
    """A saved model that plays as in its environment: one action at a time, the likeliest one, and
    an action that the mask forbids waits.

    Where nothing runs and the model would wait all the same, the first job that can start does.
    """

    def __init__(self, path: str | Path, seed: int = 0) -> None:
        self.asked = named(path)
        self.name = f"sb3:{self.asked.file.name}"
        self.network = opened(self.asked.file)
        self._masked = "action_masks" in signature(self.network.predict).parameters
        self._seen = seen_by(self.asked.file, self.network.observation_space)
        self.actions = int(self.network.action_space.n)
        self._codec: QueueCodec | GridCodec | None = None
        self._size = (0, 0)

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """One start, and a wish to be asked again at once: the next one sees what it changed."""
        nodes, resources = snapshot.capacity.shape
        if self._codec is None or self._size != (nodes, resources):
            self.suits(nodes, resources, snapshot.profile.rate.shape[0])
        assert self._codec is not None
        if not len(snapshot.queue):
            return []
        shown, mask = self._codec._look(snapshot)
        if not mask[:-1].any():
            return []
        action = self._chosen(shown, mask)
        if not mask[action]:
            action = len(mask) - 1 if mask[-1] else int(mask.argmax())
        made = self._codec.decode(action, snapshot)
        return [*made, Wait(snapshot.now_s)] if isinstance(made[0], Start) else []

    def suits(self, nodes: int, resources: int, kinds: int) -> None:
        """Raise for a cluster whose observations or actions are not those of the model."""
        self._codec = self._fitting(nodes, resources)
        self._size = (nodes, resources)

    def _fitting(self, nodes: int, resources: int) -> QueueCodec | GridCodec:
        """The codec whose observations and actions on this cluster are the model's."""
        asked, shape, starts = self.asked, self._seen, self.actions - 1
        shows = " x ".join(f"{n:,}" for n in shape)
        has = f"{asked.file}: sees {shows} numbers and has {self.actions:,} actions"
        codec: QueueCodec | GridCodec
        if len(shape) == 2 and asked.codec != "grid":
            if shape != (starts, WIDTH):
                raise PolicyError(
                    f"{has}; the queue codec shows window x {WIDTH} and has window + 1 actions: "
                    "train the model on trimtab/Queue-v0"
                )
            codec = QueueCodec(starts, asked.place)
        elif len(shape) == 1 and asked.codec != "queue":
            window = max(starts // nodes, 1)
            lends = GridCodec(nodes, resources, window, asked.place, lends=True)
            codec = GridCodec(nodes, resources, window, asked.place)
            codec = lends if lends.shape == shape else codec
            if codec.shape != shape or codec.actions != self.actions:
                wants = f"{nodes} x ({SINGLE} + {resources} + window) + {WIDTH} window"
                raise PolicyError(
                    f"{has}; the grid codec of this cluster of {nodes:,} nodes and {resources} "
                    f"resources shows {wants} numbers and has window x {nodes} + 1 actions: train "
                    "the model on this cluster, or on trimtab/Queue-v0, which fits any"
                )
        else:
            fits = "queue" if len(shape) == 2 else "grid"
            raise PolicyError(f"{has}; that is no codec={asked.codec}, give codec={fits}")
        if asked.window not in (None, codec.window):
            raise PolicyError(
                f"{has}: its window is {codec.window}, not {asked.window}; give "
                f"window={codec.window} or leave it out"
            )
        return codec

    def _chosen(self, shown: Array, mask: Array) -> int:
        space = self.network.observation_space
        seen: Any = shown
        if hasattr(space, "spaces"):
            seen = {key: {OBSERVATION: shown, MASK: mask}[key] for key in space.spaces}
        more = {"action_masks": mask.astype(bool)} if self._masked else {}
        action, _ = self.network.predict(seen, deterministic=True, **more)
        return int(action)


def seen_by(file: Path, space: Any) -> tuple[int, ...]:
    """The shape of the codec's part of a model's observations."""
    spaces = dict(space.spaces) if hasattr(space, "spaces") else {OBSERVATION: space}
    if OBSERVATION not in spaces or spaces.keys() - {OBSERVATION, MASK}:
        raise PolicyError(
            f"{file}: sees {', '.join(spaces)}; our environments show {OBSERVATION} and {MASK}, so "
            "train the model on trimtab/Queue-v0 or Grid-v0"
        )
    return tuple(spaces[OBSERVATION].shape or ())


def opened(file: Path) -> Any:
    """The network of a saved model, on the CPU, without what only training needs."""
    facts = _facts(file)
    load: Callable[..., Any] = _library()
    try:
        unused = {key: None for key in facts if key not in NEEDED}
        data, weights, _ = load(str(file), custom_objects=unused, device="cpu")
        settings = {k: v for k, v in data["policy_kwargs"].items() if k != "device"}
        spaces = data["observation_space"], data["action_space"]
        network = data["policy_class"](*spaces, lambda _: 0.0, **settings)
        network.load_state_dict(weights["policy"])
    except ModuleNotFoundError as missing:
        raise _lacking(missing, file) from missing
    except Exception as problem:  # whatever unpickling and torch raise
        said = " ".join(str(problem).split())[:200]
        raise PolicyError(
            f"{file}: a model that cannot be read here ({type(problem).__name__}: {said}); save it "
            "with the installed stable-baselines3"
        ) from problem
    if not hasattr(network.action_space, "n"):
        raise PolicyError(
            f"{file}: its actions are {network.action_space}; ours are a number of choices, so "
            "train the model on trimtab/Queue-v0 or Grid-v0"
        )
    if hasattr(network, "lstm_actor"):
        raise PolicyError(
            f"{file}: a recurrent model, whose memory no decision keeps; train PPO, MaskablePPO, "
            "DQN or another without one"
        )
    network.set_training_mode(False)
    return network


def _facts(file: Path) -> dict[str, Any]:
    """What a saved model says of itself, by name: nothing of it is unpickled."""
    if not file.is_file():
        raise PolicyError(f"{file}: no such file; {REMEDY}, and give sb3:ppo.zip")
    try:
        with ZipFile(file) as archive:
            parts = archive.namelist()
            facts = json.loads(archive.read(PARTS[0])) if set(PARTS) <= set(parts) else {}
    except (BadZipFile, ValueError, OSError) as problem:
        raise PolicyError(f"{file}: not a readable .zip ({problem}); {REMEDY}") from problem
    lacking = [key for key in NEEDED if key not in facts]
    if lacking:
        raise PolicyError(
            f"{file}: no model of Stable-Baselines3 (it has no {lacking[0]}); {REMEDY}"
        )
    return dict(facts)


def _library() -> Callable[..., Any]:
    """What opens the file of a model."""
    try:
        import sb3_contrib  # noqa: F401  MaskablePPO and QRDQN unpickle from it
        from stable_baselines3.common.save_util import load_from_zip_file
    except ModuleNotFoundError as missing:
        raise _lacking(missing) from missing
    made: Callable[..., Any] = load_from_zip_file
    return made


def _lacking(missing: ModuleNotFoundError, file: Path | None = None) -> PolicyError:
    top = (missing.name or "").partition(".")[0]
    if top in ("stable_baselines3", "sb3_contrib", "torch"):
        return PolicyError(
            f"policies of sb3: need {top}, which is not installed; pip install 'trimtab[sb3]'"
        )
    return PolicyError(
        f"{file}: the model needs the module {missing.name}, which is not there; put it where "
        "Python finds it (PYTHONPATH), or save the model without classes of your own"
    )
