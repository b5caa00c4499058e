"""Learners by name: what trains each, and the settings that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from trimtab.errors import PolicyError, UnknownName, suggestion

# name -> "module:function(out, *, command, .., **settings) -> iterator of how far it is"
BY_NAME: dict[str, str] = {
    "adlro": "trimtab.policies.adlro.training:train_adlro",
    "belgacem": "trimtab.policies.peers.training:train_belgacem",
    "cheng": "trimtab.policies.peers.training:train_cheng",
    "deeprm": "trimtab.policies.peers.training:train_deeprm",
    "dqn": "trimtab.policies.dqn.training:train_dqn",
    "encoder": "trimtab.policies.hierarchy.encoding:train_encoder",
    "forecast": "trimtab.policies.forecast.training:train_forecast",
    "ghasemi": "trimtab.policies.peers.training:train_ghasemi",
    "goals": "trimtab.policies.hierarchy.goal_training:train_goals",
    "hierarchy": "trimtab.policies.hierarchy.training:train_hierarchy",
    "islam-dqn": "trimtab.policies.peers.training:train_islam_dqn",
    "islam-reinforce": "trimtab.policies.peers.training:train_islam_reinforce",
    "manager": "trimtab.policies.hierarchy.managing:train_manager",
    "packer": "trimtab.policies.packer.training:train_packer",
    "rjoub": "trimtab.policies.peers.training:train_rjoub",
    "rlscheduler": "trimtab.policies.peers.training:train_rlscheduler",
    "router": "trimtab.serving.training.router:train_router",
    "slim": "trimtab.serving.training.slim:train_slim",
}
# name -> "module:dataclass" of the settings that the function takes beside its own
SETTINGS: dict[str, str] = {
    "adlro": "trimtab.policies.adlro.learner:Settings",
    "belgacem": "trimtab.policies.peers.training:Settings",
    "cheng": "trimtab.policies.peers.training:Settings",
    "deeprm": "trimtab.policies.peers.training:Settings",
    "dqn": "trimtab.policies.dqn.learner:Settings",
    "encoder": "trimtab.policies.hierarchy.encoding:Settings",
    "forecast": "trimtab.policies.forecast.training:Settings",
    "ghasemi": "trimtab.policies.peers.training:Settings",
    "goals": "trimtab.policies.hierarchy.goal_training:Settings",
    "hierarchy": "trimtab.policies.hierarchy.training:Settings",
    "islam-dqn": "trimtab.policies.peers.training:Settings",
    "islam-reinforce": "trimtab.policies.peers.training:Settings",
    "manager": "trimtab.policies.hierarchy.managers.settings:Settings",
    "packer": "trimtab.policies.packer.training:Settings",
    "rjoub": "trimtab.policies.peers.training:Settings",
    "rlscheduler": "trimtab.policies.peers.training:Settings",
    "router": "trimtab.serving.training.router:RouterSettings",
    "slim": "trimtab.serving.training.slim_learner:Settings",
}
OURS = ("out", "command")  # arguments that are no settings


def trainer(name: str) -> Callable[..., Iterator[Any]]:
    """The function that trains what is called so."""
    if name not in BY_NAME:
        raise UnknownName(
            f"learner {name!r} is unknown; {suggestion(name, BY_NAME)}known: {', '.join(BY_NAME)}"
        )
    found: Callable[..., Iterator[Any]] = _loaded(BY_NAME[name])
    return found


def settings_of(name: str) -> dict[str, Any]:
    """Every setting of a learner, with its default."""
    own = {
        one.name: one.default
        for one in signature(trainer(name)).parameters.values()
        if one.kind == Parameter.KEYWORD_ONLY and one.name not in OURS
    }
    more = fields(_loaded(SETTINGS[name])) if name in SETTINGS else ()
    return own | {one.name: one.default for one in more}


def checked(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The settings given, each of the type of its default."""
    known = settings_of(name)
    for setting, value in given.items():
        if setting not in known:
            raise UnknownName(
                f"setting {setting!r} is unknown; {suggestion(setting, known)}"
                f"{name} knows {', '.join(known)}"
            )
        default = known[setting]
        kind = type(default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            given = given | {setting: float(value)}
        elif default is not None and type(value) is not kind:
            words = {bool: "true or false", int: "a whole number", float: "a number", str: "a name"}
            raise PolicyError(
                f"{setting}={value!r} is not {words.get(kind, kind.__name__)}; "
                f"the default is {setting}={default!r}"
            )
    return given


def _loaded(place: str) -> Any:
    module, _, attribute = place.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as missing:
        raise PolicyError(
            f"training needs {missing.name}, which is not installed; pip install 'trimtab[train]'"
        ) from missing
