"""Backends by name: ours, and what other packages add by the entry point `trimtab.backends`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from trimtab.core import Backend, Cluster, Profile, Workload
from trimtab.errors import UnknownName
from trimtab.rules.names import unknown

# name -> "module:callable(workload, cluster, ...) -> Backend"
BY_NAME: dict[str, str] = {
    "sim": "trimtab.sim.backend:SimBackend",
    "fake": "trimtab.live:pretend",
}


def plugged_in() -> dict[str, str]:
    """Backends of other packages, by name."""
    return {point.name: point.value for point in entry_points(group="trimtab.backends")}


def backend_named(name: str) -> Callable[..., Backend]:
    """What makes the backend of that name from a workload and a cluster."""
    known = {**plugged_in(), **BY_NAME}
    if name not in known:
        raise UnknownName(unknown("backend", name, name, known))
    module, _, attribute = known[name].partition(":")
    made: Callable[..., Backend] = getattr(import_module(module), attribute)
    return made


def pretend(
    workload: Workload,
    cluster: Cluster,
    profile: Profile | None = None,
    models: Any = None,
    **lags: Any,
) -> Backend:
    """A simulated cluster that answers like a real one; `lags` are FakeBackend's."""
    from trimtab.live.fake import FakeBackend

    return FakeBackend(backend_named("sim")(workload, cluster, profile, models), **lags)
