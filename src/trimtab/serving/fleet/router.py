"""The router of a live fleet by name or from a file, tried before it counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.errors import ServeError, TrimtabError
from trimtab.serving.fleet.pins import Pins, book_at, pump_at
from trimtab.serving.fleet.route import forget, lose_ids, lose_server, lose_stuck, sweep
from trimtab.serving.fleet.state import live_arrays
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.routing.greedy import Knobs
from trimtab.serving.routing.learned_router import SHIPPED, load, read
from trimtab.serving.routing.routers import BY_NAME, Rule, rule
from trimtab.serving.server.wire import BEAT, HEAD, Report, answer_frame, read_answer

FALLBACK = "shortest_queue"  # at the slimmest width: cannot fail, keeps up longest
FIXED = ("round_robin", "shortest_queue", "two_choices")  # rules that never choose a tuple


class Router(NamedTuple):
    """A rule, what it is called, and why it is not the one asked for."""

    rule: Rule
    name: str
    problem: str = ""


def router_of(
    wanted: str, profile: ServeProfile, *, fixed: int = 255, batch_max: int = 16
) -> Router:
    """A router by name, shipped ones too, or from a .npz file. A file that cannot be used gives
    the fallback and the problem; an unknown name, or a file of another kind, is a mistake.
    """
    path = SHIPPED.get(wanted, wanted)
    if not str(path).endswith(".npz"):
        if Path(wanted).is_file():
            read(wanted)  # says what the file is instead
        return Router(rule(profile, wanted, fixed=fixed, batch_max=batch_max), wanted)
    try:
        name = wanted if wanted in SHIPPED else Path(wanted).name
        return Router(tried(load(path, profile), profile), name)
    except TrimtabError as wrong:
        problem = str(wrong)
    except Exception as wrong:  # a foreign file may break anything; serving must not
        problem = f"{wanted}: not a router ({type(wrong).__name__}: {wrong})"
    spare = rule(profile, FALLBACK, fixed=0, batch_max=batch_max)
    return Router(spare, f"{FALLBACK} (fallback)", problem)


def tried(untried: Any, profile: ServeProfile) -> Rule:
    """A rule that has decided once: a broken one is found, all is compiled, before it counts."""
    f, x = live_arrays(profile, 4, Knobs())
    f.conf["servers"] = 1
    f.server_new["speed"][0] = 1.0
    x.member["uid"][0] = 1
    x.new_due_s[0], x.new_hard_s[0] = 1.0, np.inf
    pins = Pins(f, x)
    pins.use(untried)
    pump_at(*pins.at, pins.rule_at, 1, 0, 0.0)
    if not 0 <= int(untried.tuples[0]) < 256:
        raise ServeError(f"tuple {untried.tuples[0]} is unknown; train the router again")
    blank = memoryview(answer_frame(BEAT, Report(), []))[HEAD.size :]
    book_at(*pins.at, 0, np.frombuffer(blank, np.uint8), False, 0, 0.0)
    lose_ids(f, x, read_answer(blank).ids)
    lose_server(f, x, 1)
    lose_stuck(f, x, 0.0)
    sweep(f, x, 0.0)
    forget(f, x, 0)
    return untried


def slimmest_of(router: Router) -> int:
    """The tuple that a router falls back to when it is pressed."""
    if int(router.rule.router[0]) in [BY_NAME[name] for name in FIXED]:
        return int(router.rule.fixed[0])
    return int(router.rule.tuples[0])
