"""Policies by name: rules, ours, and other packages' by the entry point `trimtab.policies`.

named("sjf+easy+best")             order[+backfill][+place]
named("dqn:run/dqn.onnx")          a policy with a network that `trimtab train` made, or its folder
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from trimtab.core import Policy
from trimtab.errors import PolicyError, TrimtabError, UnknownName
from trimtab.policies import networks
from trimtab.rules.names import ORDERS, parse, unknown

# name -> "module:callable(seed) -> Policy"; one with a `path` too takes NAME:PATH. Rules need no
# entry: any order[+backfill][+place] is one
BY_NAME: dict[str, str] = {
    "adlro": "trimtab.policies.adlro.policy:AdlroPolicy",
    "adlro-rule": "trimtab.policies.adlro.policy:AdlroRule",
    "adlro-drift": "trimtab.policies.adlro.drift:watched",
    "dqn": "trimtab.policies.dqn.policy:DqnPolicy",
    "mct": "trimtab.policies.baselines.completion:CompletionPolicy",
    "fluid": "trimtab.policies.baselines.fluid:FluidPolicy",
    "gavel": "trimtab.policies.baselines.gavel:GavelPolicy",
}
# name -> the learner whose networks it takes
LEARNER = {"adlro": "adlro", "adlro-drift": "adlro", "dqn": "dqn"}


def plugged_in() -> dict[str, str]:
    """Policies of other packages, by name."""
    return {point.name: point.value for point in entry_points(group="trimtab.policies")}


def named(name: str, seed: int = 0) -> Policy:
    """The policy of that name, ready to decide; NAME:PATH gives it a network of your own."""
    made, given = _maker(name)
    try:
        policy: Policy = made(seed=seed, **given)
    except TrimtabError:
        raise
    except Exception as problem:
        raise _unmade(name, problem) from problem
    return policy


def check(name: str) -> None:
    """Raise what `named` would for a wrong name or file, without making the policy."""
    _, given = _maker(name)
    file = file_of(name)
    if file is not None:
        networks.opened(file, LEARNER[name.partition(":")[0]])
    elif "path" in given and not Path(given["path"]).exists():
        raise PolicyError(f"{name}: {given['path']}: no such file")


def file_of(name: str) -> Path | None:
    """The file of the network in NAME:PATH, of policies of ours."""
    base, _, path = name.partition(":")
    return networks.file_at(path, LEARNER[base]) if path and base in LEARNER else None


def _maker(name: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """What makes the policy of that name, and with what beside the seed."""
    base, colon, path = name.partition(":")
    known = {**plugged_in(), **BY_NAME}
    if base not in known:
        if "+" not in base and base not in ORDERS:
            raise UnknownName(unknown("policy", name, base, [*ORDERS, *known]))
        parse(base)
        if colon:
            raise _takes_none(base, name)
        from trimtab.policies.rule import RulePolicy

        return RulePolicy, {"name": base}
    module, _, attribute = known[base].partition(":")
    try:
        made: Callable[..., Any] = getattr(import_module(module), attribute)
        wanted = signature(made).parameters.get("path")
    except Exception as problem:
        raise _unmade(name, problem) from problem
    if colon and not wanted:
        raise _takes_none(base, name)
    if colon and not path:
        raise PolicyError(f"policy {name!r}: no file stands behind the colon; give {base}:PATH")
    if wanted and wanted.default is Parameter.empty and not path:
        raise PolicyError(_missing(base))
    return made, {"path": path} if path else {}


def _missing(base: str) -> str:
    if base not in LEARNER:
        return f"policy {base!r} wants a file; give {base}:PATH"
    learner = LEARNER[base]
    return (
        f"policy {base!r} wants a network, and none ships; train one first: `trimtab train "
        f"{learner} --out run`, then {base}:run/{networks.WRITTEN[learner]}"
    )


def _takes_none(base: str, name: str) -> PolicyError:
    takers = ", ".join(f"{taker}:PATH" for taker in LEARNER)
    return PolicyError(f"policy {base!r} takes no file ({name}); those that do: {takers}")


def _unmade(name: str, problem: Exception) -> PolicyError:
    place = {**plugged_in(), **BY_NAME}.get(name.partition(":")[0], "a rule")
    return PolicyError(
        f"policy {name!r} ({place}) could not be made: {type(problem).__name__}: {problem}"
    )
