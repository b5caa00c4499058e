"""The lookahead leaves most plays out, and still decides as if it had played them all."""

import numpy as np
import pytest

from trimtab.compiled import compiled
from trimtab.serving.fleet.state import live_arrays
from trimtab.serving.net.serve_profile import modelled
from trimtab.serving.routing.fleet_sim import DROP
from trimtab.serving.routing.greedy import NONE, Knobs
from trimtab.serving.routing.lookahead import (
    CAPS,
    END,
    HASTE,
    HORIZON,
    ITEMS,
    MARGIN,
    PRICES,
    SACRIFICE,
    fitting,
    foresee,
    look_ahead,
    play,
    price_of,
    steer,
    weigh,
    when_free,
)
from trimtab.serving.routing.routers import rule

PROFILE = modelled()
AWAY_S = 5e-4


def scene(seed: int, waiting: int, servers: int, rate_hz: float, drop_late: bool):
    """A fleet with a queue whose first server is idle, and the others busy for a while."""
    rng = np.random.default_rng(seed)
    f, _ = live_arrays(PROFILE, 1024, Knobs())
    f.conf["servers"], f.conf["drop_late"], f.conf["scale_hz"] = servers, drop_late, 100.0
    f.conf["hop_s"] = AWAY_S
    f.conf["hand_over_s"] = 0.0
    f.server["speed"][:servers] = rng.uniform(0.3, 1.5, servers)
    f.server["workers"] = 1
    f.server["busy"][1:servers] = 1
    f.free_s[:servers] = 2.0 + rng.uniform(0, 0.1, servers)
    arrival_s = np.sort(rng.uniform(1.9, 2.0, waiting))
    f.request["arrival_s"][:waiting] = arrival_s
    f.request["deadline_s"][:waiting] = arrival_s + rng.choice([0.15, 0.3])
    f.after[:waiting] = [*range(1, waiting), NONE]
    f.pending[0, 0]["first"], f.pending[0, 0]["count"] = 0, waiting
    fleet = f.fleet[0]
    fleet["now_s"] = fleet["come_s"] = 2.0
    fleet["come_hz"] = fleet["fast_hz"] = rate_hz
    return f


@compiled
def every_play(f, rules, server):
    """(server, tuple, group) of the best of all plays, none of them cut short."""
    servers, now_s = f.conf[0]["servers"], f.fleet[0]["now_s"]
    knob, came_s, due_s = np.empty(len(rules.knob)), np.empty(ITEMS), np.empty(ITEMS)
    free_s, speed, copy_s = np.empty(servers), np.empty(servers), np.empty(servers)
    rate_hz = steer(f, 0, rules, knob)
    waiting, count, span_s = foresee(f, 0, knob, rate_hz, came_s, due_s)
    power = when_free(f, 0, free_s, speed)
    price = knob[END] * price_of(rules, power / max(rate_hz, 1e-9))
    end_s, margin_s = now_s + knob[HORIZON] * span_s, knob[MARGIN] * span_s
    haste, most = knob[HASTE] / span_s, len(rules.least_s) - 1
    slack_s = (due_s[0] - now_s - AWAY_S - margin_s) * speed[server]
    fit_s, most_right = np.empty((len(rules.tuples), most + 1)), np.empty(most + 1)
    weigh(f, rules, price, fit_s, most_right)
    best, best_row, best_group = -np.inf, NONE, 0
    for cap in CAPS:
        group, cap = min(waiting, cap, most), min(cap, most)
        if rules.least_s[group] > slack_s:
            break
        for level in range(PRICES):
            row = fitting(rules, fit_s, level, group, slack_s)
            copy_s[:] = free_s
            copy_s[server] = now_s + AWAY_S + rules.whole_s[row, group] / speed[server]
            total = group * (f.accuracy[row] - haste * (copy_s[server] - end_s))
            total -= price * max(copy_s[server] - end_s, 0.0) * speed[server]
            total += play(f, rules, fit_s, level, cap, came_s, due_s, group, count, copy_s, speed,
                          end_s, price, margin_s, haste, 0.0, 0.0, -np.inf)[0]  # fmt: skip
            if total > best:
                best, best_row, best_group = total, row, group
        if cap == most:
            break
    if f.conf[0]["drop_late"] and rules.least_s[min(waiting, most)] > slack_s:
        skip = 1
        while skip < waiting:
            for level in range(PRICES - 3, PRICES):
                copy_s[:] = free_s
                total = play(f, rules, fit_s, level, most, came_s, due_s, skip, count, copy_s,
                             speed, end_s, price, margin_s, haste, 0.0, 0.0,
                             -np.inf)[0]  # fmt: skip
                if total > best + knob[SACRIFICE]:
                    return DROP, NONE, 1
            skip *= 2
    return server, best_row, best_group


@compiled
def decided(f, rules, server):
    return look_ahead(f, 0, rules, server)


@pytest.mark.parametrize("batch_max", [4, 16])
@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("drop_late", [True, False])
def test_the_best_of_all_plays_is_found_without_playing_them_all(batch_max, servers, drop_late):
    rules = rule(PROFILE, "priced", batch_max=batch_max)
    seen = set()
    for seed in range(40):
        waiting, rate_hz = (1, 5, 40, 200)[seed % 4], (20.0, 400.0, 3000.0)[seed % 3]
        f = scene(seed, waiting, servers, rate_hz, drop_late)
        wanted = every_play(f, rules, 0)
        if wanted[1] != NONE or wanted[0] == DROP:
            assert decided(f, rules, 0) == wanted
            seen.add(wanted)
    assert len(seen) > 5  # not one answer to everything


def test_without_a_price_or_with_haste_reversed_nothing_is_left_out_wrongly():
    knob = rule(PROFILE, "priced").knob.copy()
    knob[END], knob[HASTE] = -0.5, -0.05
    rules = rule(PROFILE, "priced", knob=knob)
    for seed in range(20):
        f = scene(seed, 40, 2, 400.0, True)
        wanted = every_play(f, rules, 0)
        if wanted[1] != NONE:
            assert decided(f, rules, 0) == wanted
