"""Backends by name: ours, and those that other packages add by the entry point `trimtab.backends`."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from trimtab.errors import UnknownName
from trimtab.rules.names import unknown

# name -> "module:attribute", something that makes a Backend; looked up only when it is asked for
BY_NAME: dict[str, str] = {
    "sim": "trimtab.sim.backend:SimBackend",
    "fake": "trimtab.live.fake:FakeBackend",
}


def plugged_in() -> dict[str, str]:
    """Backends of other packages, by name."""
    return {point.name: point.value for point in entry_points(group="trimtab.backends")}


def backend_named(name: str) -> Any:
    """The class or function of that name, which makes a Backend from its own arguments."""
    known = {**plugged_in(), **BY_NAME}
    if name not in known:
        raise UnknownName(unknown("backend", name, name, known))
    module, _, attribute = known[name].partition(":")
    return getattr(import_module(module), attribute)
