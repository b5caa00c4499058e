"""Policies by name: rules, ours, and those that other packages add by the entry point
`trimtab.policies`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from trimtab.core import Policy
from trimtab.errors import PolicyError, UnknownName
from trimtab.rules.names import ORDERS, parse, unknown

# name -> "module:callable(seed) -> Policy"; rules need no entry: any order[+backfill][+place] is
# one
BY_NAME: dict[str, str] = {
    "adlro": "trimtab.policies.adlro.policy:AdlroPolicy",
    "adlro-rule": "trimtab.policies.adlro.policy:AdlroRule",
    "adlro-drift": "trimtab.policies.adlro.drift:DriftPolicy",
    "mct": "trimtab.policies.baselines.completion:CompletionPolicy",
    "fluid": "trimtab.policies.baselines.fluid:FluidPolicy",
    "gavel": "trimtab.policies.baselines.gavel:GavelPolicy",
}


def plugged_in() -> dict[str, str]:
    """Policies of other packages, by name."""
    return {point.name: point.value for point in entry_points(group="trimtab.policies")}


def named(name: str, seed: int = 0) -> Policy:
    """The policy of that name, ready to decide."""
    known = {**plugged_in(), **BY_NAME}
    if name in known:
        module, _, attribute = known[name].partition(":")
        try:
            made: Policy = getattr(import_module(module), attribute)(seed=seed)
        except Exception as problem:
            raise PolicyError(
                f"policy {name!r} ({known[name]}) could not be made: "
                f"{type(problem).__name__}: {problem}"
            ) from problem
        return made
    if "+" not in name and name not in ORDERS:
        raise UnknownName(unknown("policy", name, name, [*ORDERS, *known]))
    parse(name)
    from trimtab.policies.rule import RulePolicy

    return RulePolicy(name, seed)
