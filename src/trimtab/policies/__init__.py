"""Policies by name: rules, ours, and other packages' by the entry point `trimtab.policies`.

named("sjf+easy+best")             order[+backfill][+place]
named("dqn:run/dqn.onnx")          a policy with a network that `trimtab train` made, or its folder
named("run/dqn.onnx")              the same: the file says whose network it is
named("./mine.py:MyPolicy")        a class or function in a file of yours
named("package.module:MyPolicy")   the same in a module that can be imported
named("sb3:ppo.zip")               a model of Stable-Baselines3; the name without sb3: will do
named("rollout+easy:budget_ms=5")  one with options: pairs between commas
named("cheng:run+p95@0.9")         a peer with a file of yours, and what it may borrow of services
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from trimtab.core import Policy
from trimtab.errors import PolicyError, TrimtabError, UnknownName
from trimtab.policies import code, networks
from trimtab.rules.names import ESTIMATES, FEEDBACK, ORDERS, RELIEVE, parse, unknown
from trimtab.rules.worth import read_weights

# name -> "module:callable(seed) -> Policy"; one with a `path` too takes NAME:PATH, one with
# `settings` NAME:SETTINGS. Rules need no entry: any order[+backfill][+place] is one
BY_NAME: dict[str, str] = {
    "adlro": "trimtab.policies.adlro.policy:AdlroPolicy",
    "adlro-rule": "trimtab.policies.adlro.policy:AdlroRule",
    "adlro-drift": "trimtab.policies.adlro.drift:watched",
    "dqn": "trimtab.policies.dqn.policy:DqnPolicy",
    "mct": "trimtab.policies.baselines.completion:CompletionPolicy",
    "fluid": "trimtab.policies.baselines.fluid:FluidPolicy",
    "gavel": "trimtab.policies.baselines.gavel:GavelPolicy",
    "hierarchy": "trimtab.policies.hierarchy.policy:HierarchyPolicy",
    "hierarchy-no-encoder": "trimtab.policies.hierarchy.policy:Unseeing",
    "hierarchy-no-manager": "trimtab.policies.hierarchy.policy:Unmanaged",
    "hierarchy-no-compatibility": "trimtab.policies.hierarchy.policy:Unmatched",
    "hierarchy-online": "trimtab.policies.hierarchy.policy:Learning",
    "packer": "trimtab.policies.packer.policy:PackerPolicy",
    "rollout": "trimtab.policies.rollout.policy:RolloutPolicy",
    "rollout+easy": "trimtab.policies.rollout.policy:RolloutEasyPolicy",
    "slurm": "trimtab.policies.slurm.policy:SlurmPolicy",
    "sb3": "trimtab.policies.sb3:SB3Policy",
    "deeprm": "trimtab.policies.peers.policy:deeprm",
    "rjoub": "trimtab.policies.peers.policy:rjoub",
    "islam": "trimtab.policies.peers.policy:islam",
    "islam-dqn": "trimtab.policies.peers.policy:islam_dqn",
    "islam-reinforce": "trimtab.policies.peers.policy:islam_reinforce",
    "cheng": "trimtab.policies.peers.policy:cheng",
    "rlscheduler": "trimtab.policies.peers.policy:rlscheduler",
    "belgacem": "trimtab.policies.peers.policy:belgacem",
    "ghasemi": "trimtab.policies.peers.policy:ghasemi",
}
# the methods that hierarchy-hmarl is compared with, which borrow of services as rules do -> the
# learner of each
PEERS = {
    "deeprm": "deeprm",
    "rjoub": "rjoub",
    "islam": "islam-dqn",
    "islam-dqn": "islam-dqn",
    "islam-reinforce": "islam-reinforce",
    "cheng": "cheng",
    "rlscheduler": "rlscheduler",
    "belgacem": "belgacem",
    "ghasemi": "ghasemi",
}
ABLATIONS = ("hierarchy-no-encoder", "hierarchy-no-manager", "hierarchy-no-compatibility")
HIERARCHIES = ("hierarchy", "hierarchy-online", *ABLATIONS)
# the same of all that say behind a + what they borrow of services
BORROW = {**PEERS, **dict.fromkeys(HIERARCHIES, "hierarchy")}
# name -> the learner whose networks it takes
LEARNER = {"adlro": "adlro", "adlro-drift": "adlro", "dqn": "dqn", "packer": "packer", **BORROW}
BY_PATH = "or a policy of yours, such as ./mine.py:MyPolicy, run/dqn.onnx or sb3:ppo.zip"
FOLDERS, LABEL = re.compile(r"[^,:]*[/\\]"), 24
MODEL = re.compile(r".+\.zip(,.*)?")


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
    base, _, path = _full(_parted(name)[0]).partition(":")
    if base in BORROW:
        named(name)
    elif base == "packer" and path:
        read_weights(networks.file_at(path, base))
    elif base in LEARNER and path:
        networks.opened(path, LEARNER[base])
    elif base == "sb3":
        from trimtab.policies import sb3

        sb3.check(path)
    elif "settings" in given:
        named(name)
    elif "path" in given and not Path(given["path"]).exists():
        raise PolicyError(f"{name}: {given['path']}: no such file")


def file_of(name: str) -> Path | None:
    """The file that a policy by path is: a network of ours, a model, or its code."""
    base, _, path = _full(_parted(name)[0]).partition(":")
    if base in LEARNER:
        return networks.file_at(path, LEARNER[base]) if path else None
    return Path(path.partition(",")[0]) if base == "sb3" else code.file_of(name)


def trained(name: str) -> bool:
    """Whether the policy of that name goes by weights that were learned."""
    return _full(_parted(name)[0]).partition(":")[0] in LEARNER


def labels(names: Sequence[str]) -> dict[str, str]:
    """What to call each in a table: long paths without folders, where that tells them apart."""
    short = {name: FOLDERS.sub("", name) if len(name) > LABEL else name for name in names}
    shared = [label for label, count in Counter(short.values()).items() if count > 1]
    return {name: name if label in shared else label for name, label in short.items()}


def _parted(name: str) -> tuple[str, str]:
    """The name of a policy without what it borrows, and that: `cheng:run` and `p95@0.9`."""
    head, *parts = name.split("+")
    if head.partition(":")[0] not in BORROW:
        return name, ""
    at = 0  # a path may have a + too
    while at < len(parts) and parts[at].partition("@")[0] not in (*ESTIMATES, FEEDBACK, RELIEVE):
        at += 1
    return "+".join([head, *parts[:at]]), "+".join(parts[at:])


def _full(name: str) -> str:
    """A bare path to a network or a model with the name of the policy that takes it before it."""
    base = name.partition(":")[0]
    if base in BY_NAME or base in plugged_in():
        return name
    if MODEL.fullmatch(name):
        return f"sb3:{name}"
    plain = base in ORDERS or "+" in base  # a folder of that name is not meant
    if name.endswith(".onnx") or (name and not plain and Path(name).is_dir()):
        return f"{networks.learner_of(name)}:{name}"
    return name


def _maker(name: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """What makes the policy of that name, and with what beside the seed."""
    name, borrow = _parted(_full(name))
    base, colon, path = name.partition(":")
    known = {**plugged_in(), **BY_NAME}
    if base not in known:
        if code.is_code(name):
            return code.made_by(name), {}
        if "+" not in base and base not in ORDERS:
            raise UnknownName(f"{unknown('policy', name, base, [*ORDERS, *known])}; {BY_PATH}")
        parse(base)
        if colon:
            raise _takes_none(base, name)
        from trimtab.policies.rule import RulePolicy

        return RulePolicy, {"name": base}
    module, _, attribute = known[base].partition(":")
    try:
        made: Callable[..., Any] = getattr(import_module(module), attribute)
        takes = signature(made).parameters
        wanted = takes.get("path") or takes.get("settings")
    except Exception as problem:
        raise _unmade(name, problem) from problem
    if colon and not wanted:
        raise _takes_none(base, name)
    if wanted and colon and not path:
        what = "file" if wanted.name == "path" else "option"
        raise PolicyError(
            f"policy {name!r}: no {what} stands behind the colon; give {base}:{wanted.name.upper()}"
        )
    if wanted and wanted.default is Parameter.empty and not path:
        raise PolicyError(_missing(base))
    given = {wanted.name: path} if wanted and path else {}
    return made, given | ({"borrow": borrow} if borrow else {})


def _missing(base: str) -> str:
    if base == "sb3":
        return "policy 'sb3' wants a model of Stable-Baselines3; give sb3:ppo.zip"
    if base not in LEARNER:
        return f"policy {base!r} wants a file; give {base}:PATH"
    learner = LEARNER[base]
    return (
        f"policy {base!r} wants a network, and none ships; train one first: `trimtab train "
        f"{learner} --out run`, then {base}:run/{networks.WRITTEN[learner]}"
    )


def _takes_none(base: str, name: str) -> PolicyError:
    takers = ", ".join(f"{taker}:PATH" for taker in (*LEARNER, "sb3"))
    return PolicyError(f"policy {base!r} takes no file ({name}); those that do: {takers}")


def _unmade(name: str, problem: Exception) -> PolicyError:
    place = {**plugged_in(), **BY_NAME}.get(name.partition(":")[0], "a rule")
    return PolicyError(
        f"policy {name!r} ({place}) could not be made: {type(problem).__name__}: {problem}"
    )
