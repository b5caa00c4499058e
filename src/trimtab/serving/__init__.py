"""Requests on servers: a fleet that bends the width of a network to the load.

Start with `nouns`. A name below loads its module when it is first used: servers, which are
processes of their own, import this folder too and need none of them.
"""

from importlib import import_module
from typing import Any

_MODULE_OF = {
    "Answer": "nouns",
    "Fleet": "nouns",
    "Metadata": "nouns",
    "Request": "nouns",
    "ServerState": "nouns",
    "Why": "nouns",
    "ServeProfile": "net.serve_profile",
    "FleetView": "view",
    "Service": "service",
    "Settings": "service",
    "operate": "service",
}
__all__ = [
    "Answer",
    "Fleet",
    "FleetView",
    "Metadata",
    "Request",
    "ServeProfile",
    "ServerState",
    "Service",
    "Settings",
    "Why",
    "operate",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
