"""What an operator may say of a fleet, and what a server process is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from trimtab.errors import ServeError

OFF = -1  # as a port


@dataclass(frozen=True)
class Settings:
    """What an operator may say of a fleet and its fronts."""

    weights: str = ""  # "" = the network that is shipped
    profile: str = ""  # a file or a shipped one's name; "" = the shipped one for the device
    router: str = "priced"  # a name, or a .npz file
    fixed: str = ""  # widths of routers that do not choose, such as 0.25,0.5,0.75,1
    shares: tuple[float, ...] = (1.0,)  # speed of each local server; () = none
    workers: int = 1
    threads: int = 1
    device: str = "cpu"  # of every server: cpu, cuda, cuda:1
    objective_s: float = 0.1
    queue_max: int = 0  # 0 = by what the servers can do
    host: str = "127.0.0.1"
    http_port: int = 8000  # 0 = a free one, OFF = none
    grpc_port: int = 8001
    fleet_port: int = OFF  # for servers on other machines
    token: str = ""
    ray: bool = False
    noop: bool = False
    drain_s: float = 30.0
    grace_s: float = 1.0  # from not ready to no new requests
    metrics: bool = True
    otlp: str = ""  # collector of traces; "" = none
    trace_share: float = 0.01  # of requests that bring no trace of their own


@dataclass(frozen=True)
class ServerSettings:
    """What a server process may be told beside the fleet's address."""

    name: str = ""  # "" = after the machine and the process
    kind: str = "joined"  # joined, local or ray
    token: str = ""  # "" = the environment's TRIMTAB_TOKEN
    weights: str = ""  # "" = the network that is shipped
    profile: str = ""  # a file or a shipped one's name; "" = the shipped one for the device
    workers: int = 1  # batches at once
    threads: int = 1  # of one batch
    device: str = "cpu"  # or cuda, cuda:1
    share: float = 1.0  # of this machine's speed, to emulate a slower one
    cpu_list: str = ""  # CPUs to stay on, such as 0-3,8; "" = all
    noop: bool = False  # a network that answers zeros
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
