"""What an operator may say of a fleet, and what a server process is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from trimtab.errors import ServeError

OFF = -1  # as a port
TOKEN = "TRIMTAB_TOKEN"  # the variable of the environment


def said(default: Any, text: str, **more: Any) -> Any:
    """A field that the command line offers; see `cli.options`."""
    return field(default=default, metadata={"help": text, **more})


@dataclass(frozen=True)
class Compute:
    """What servers compute, and with what."""

    weights: str = said("", "A weight file of `trimtab train slim`; default: the shipped network.")
    profile: str = said("", "A profile of `trimtab serve profile`, or a shipped one's name.")
    workers: int = said(1, "Batches that a server runs at once.")
    threads: int = said(1, "Threads of one batch.")
    device: str = said("cpu", "What servers compute on: cpu, cuda or cuda:1.")
    noop: bool = said(False, "A network that answers zeros: for benchmarks.")


@dataclass(frozen=True)
class Settings(Compute):
    """What an operator may say of a fleet and its fronts."""

    shares: tuple[float, ...] = (1.0,)  # speed of each local server; () = none
    router: str = said("priced", "A router by name, or the .npz file of `trimtab train router`.")
    fixed: str = said("", "Widths of rules that do not choose, such as 0.25,0.5,0.75,1.")
    objective_s: float = said(
        0.1, "What a request should take.", option="--objective-ms", times=1e-3
    )
    queue_max: int = said(0, "Images open at once; 0 = by capacity.")
    host: str = said("127.0.0.1", "Address to listen on.")
    http_port: int = said(8000, "0 = a free one, -1 = none.")
    grpc_port: int = said(8001, "0 = a free one, -1 = none.")
    fleet_port: int = said(OFF, "For servers that join; -1 = none.")
    token: str = said("", "What joining servers must know; or TRIMTAB_TOKEN.")
    ray: bool = said(False, "Servers as Ray actors.")
    drain_s: float = said(30.0, "Longest that a drain may take.")
    grace_s: float = said(1.0, "From not ready to no new requests.")
    metrics: bool = said(True, "Answer /metrics.")
    otlp: str = said("", "Send traces there, such as http://host:4318.")
    trace_share: float = said(0.01, "Share of requests traced that bring no trace, 0..1.")


@dataclass(frozen=True)
class ServerSettings(Compute):
    """What a server process may be told beside the fleet's address."""

    name: str = ""  # "" = after the machine and the process
    kind: str = "joined"  # joined, local or ray
    token: str = said("", "As `trimtab serve` printed it; or TRIMTAB_TOKEN.")
    share: float = said(1.0, "Emulate a slower machine.")
    cpu_list: str = said("", "CPUs to stay on, such as 0-3,8.")
    parent: int = 0  # process whose end ends this one; 0 = none

    def text(self) -> str:
        """The settings as JSON: what `settings_of` reads."""
        return json.dumps(asdict(self))


DEFAULTS = asdict(ServerSettings())


def settings_of(text: str) -> ServerSettings:
    """A server's settings out of JSON, such as {"token": "T", "workers": 2}."""
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        example = '{"workers": 2}'
        raise ServeError(f"settings {text[:80]!r} are no JSON object; give such as {example}")
    for name, value in given.items():
        if name not in DEFAULTS:
            raise ServeError(f"setting {name!r} is unknown; give some of {', '.join(DEFAULTS)}")
        kind = type(DEFAULTS[name])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise ServeError(f"setting {name}={value!r}: give it as {DEFAULTS[name]!r} is")
    return ServerSettings(**given)


def name_in(command: Sequence[str]) -> str:
    """The name of the server that a command line starts, or an empty string."""
    with suppress(ServeError, IndexError):
        return settings_of(command[-1]).name
    return ""
