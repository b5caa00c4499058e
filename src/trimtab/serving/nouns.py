"""The nouns of serving: a request, its answer, the model, the fleet, its servers and widths.

A front (`front/`) turns bytes into a `Request`, hands it to a `Fleet`, and turns the `Answer` into
bytes. It knows nothing of devices, widths or batches. The fleet (`fleet/`) asks a router
(`routing/`) which server runs which segment of the network (`net/`) at which width, and knows
nothing of sockets. `service.py` puts them together. Importing this costs NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np

from trimtab.arrays import Array
from trimtab.errors import ServeError

Scalar = bool | int | float | str

# The network is cut into segments that run one after another, each at a width of its own.
SEGMENTS = 4
WIDTHS = (0.25, 0.5, 0.75, 1.0)  # share of the channels; a width is an index into these
TUPLES: tuple[tuple[int, ...], ...] = tuple(product(range(len(WIDTHS)), repeat=SEGMENTS))  # 256

PARENT, STATE = "traceparent", "tracestate"  # of W3C Trace Context

# numpy has no bfloat16, so BF16 is float32 in memory; BYTES is an object array of `bytes`
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BF16": np.dtype("<f4"),
    "BYTES": np.dtype("O"),
}


@dataclass(slots=True)
class Request:
    """What a client asks for, checked. Times are on the front's clock (monotonic)."""

    inputs: dict[str, Array]  # aligned, maybe read-only; shapes and datatypes are the model's
    outputs: tuple[str, ...]  # the names wanted, never empty
    request_id: str = ""
    version: str = ""
    arrived_s: float = 0.0
    deadline_s: float = math.inf
    priority: int = 0  # as the client sent it: 0 = default, 1 = most urgent, larger = less urgent
    parameters: Mapping[str, Any] = field(default_factory=dict)
    trace: Mapping[str, str] = field(default_factory=dict)  # W3C headers of the caller's trace


class Why(Enum):
    """How a request ended."""

    DONE = "done"
    INVALID = "invalid"  # the request breaks the protocol or the model's metadata
    UNKNOWN = "unknown"  # no such model or version
    BUSY = "busy"  # admission refused it: come back after `retry_after_s`
    LATE = "late"  # its deadline passed, or cannot be met
    UNAVAILABLE = "unavailable"  # starting, draining, or no server is left
    FAILED = "failed"
    CANCELLED = "cancelled"  # its client left; nobody is told


@dataclass(slots=True)
class Answer:
    """The outputs of one request, or the reason why there are none."""

    outputs: Mapping[str, Array] = field(default_factory=dict)
    why: Why = Why.DONE
    reason: str = ""  # a sentence for the client where `why` is not DONE
    retry_after_s: float = 0.0  # 0 = say nothing
    parameters: Mapping[str, Scalar] = field(default_factory=dict)  # facts, such as the width used


class Spec(NamedTuple):
    """One input or output of the model."""

    name: str
    datatype: str  # a key of DTYPES
    shape: tuple[int, ...]  # -1 = any size


@dataclass(frozen=True)
class Metadata:
    """The one model that a fleet serves, as clients see it. The last version is the default."""

    name: str
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    versions: tuple[str, ...] = ("1",)
    platform: str = "trimtab"
    input_of: dict[str, Spec] = field(init=False, repr=False, compare=False)
    output_of: dict[str, Spec] = field(init=False, repr=False, compare=False)
    output_names: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for spec in (*self.inputs, *self.outputs):
            if spec.datatype not in DTYPES:
                raise ServeError(
                    f"model {self.name}: {spec.name} has datatype {spec.datatype!r};"
                    f" use one of {', '.join(DTYPES)}"
                )
        if not self.versions:
            raise ServeError(f"model {self.name}: versions is empty; name at least one")
        object.__setattr__(self, "input_of", {spec.name: spec for spec in self.inputs})
        object.__setattr__(self, "output_of", {spec.name: spec for spec in self.outputs})
        object.__setattr__(self, "output_names", tuple(spec.name for spec in self.outputs))


class Fleet(Protocol):
    """What answers requests."""

    @property
    def model(self) -> Metadata:
        """The model served. A front reads it once, when it starts."""
        ...

    @property
    def ready(self) -> bool:
        """Whether a request sent now would be served."""
        ...

    def submit(self, request: Request, done: Callable[[Answer], None]) -> Callable[[], None]:
        """Take one request; call `done` once on the event loop, maybe before returning.

        The result cancels: it may be called at any time, also after `done`; once it was called,
        `done` may still be called and is ignored.
        """
        ...

    def turn_away(self, trace: Mapping[str, str]) -> Answer | None:
        """The refusal that any request gets now, counted as one: it need not be read. None = read
        it and submit it. The same object as before where nothing has changed.
        """
        ...


class ServerState(StrEnum):
    """How a server stands with its fleet, from its connection to its end."""

    STARTING = "starting"
    WARMING = "warming"  # it loads and runs once all that the router may ask for
    READY = "ready"
    SUSPECT = "suspect"  # silent too long: no work until it speaks again
    DRAINING = "draining"  # it finishes what it has
    GONE = "gone"


class ZeroFleet:
    """A fleet that answers zeros at once: what remains is the front's own cost."""

    def __init__(self, model: Metadata) -> None:
        self.model = model
        self.ready = True

    def submit(self, request: Request, done: Callable[[Answer], None]) -> Callable[[], None]:
        rows = next(iter(request.inputs.values())).shape[0]
        outputs = {}
        for name in request.outputs:
            spec = self.model.output_of[name]
            shape = tuple(rows if size < 0 else size for size in spec.shape)
            blank = b"" if spec.datatype == "BYTES" else 0
            outputs[name] = np.full(shape, blank, DTYPES[spec.datatype])
        done(Answer(outputs))
        return nothing

    def turn_away(self, trace: Mapping[str, str]) -> Answer | None:
        return None


def trace_of(get: Callable[[str], str | None]) -> dict[str, str]:
    """The caller's trace context out of a header or metadata."""
    parent = get(PARENT)
    if parent is None:
        return {}
    state = get(STATE)
    return {PARENT: parent} if state is None else {PARENT: parent, STATE: state}


def nothing() -> None:
    """Cancel what has already been answered."""


def stranger(model: Metadata, name: str, version: str) -> str:
    """Why `name` and `version` cannot be served, or an empty string."""
    if name != model.name:
        return f"model {name!r} is not served here; ask for {model.name!r}"
    if version and version not in model.versions:
        known = ", ".join(model.versions)
        return f"model {name!r} has no version {version!r}; ask for one of: {known}"
    return ""
