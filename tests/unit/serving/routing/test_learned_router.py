"""Learned routers: their file, and that compiled code runs the very network that was trained."""

import json

import numpy as np
import pytest

from trimtab.errors import ServeError
from trimtab.serving.net.serve_profile import modelled
from trimtab.serving.routing import arrivals, fleet_sim, heads, lookahead, routers
from trimtab.serving.routing.fleet_state import begin, fleets
from trimtab.serving.routing.greedy import Knobs
from trimtab.serving.routing.learned_router import AHEAD, PAPER, load, read, save, servers_of
from trimtab.serving.routing.router_net import fresh_net

PROFILE = modelled(hand_over_s=0.0)
KEPT = Knobs(idle_unload_s=np.inf)
SPEEDS = (1.0, 1.0, 0.45)


def steering(scale=0.0, seed=0):
    one, two, three = fresh_net(lookahead.SIGHTS, 4, lookahead.STEERED, seed)
    return one, two, three + scale


def three_heads(servers=3, seed=0, spread=0.0):
    net = fresh_net(heads.inputs_of(servers), 6, heads.outputs_of(servers), seed)
    return (*net[:2], net[2] + np.random.default_rng(seed).normal(0, spread, net[2].shape))


def ran(rules, seed=0, objective_s=0.25, **options):
    made = fleets(PROFILE, 2, 200, speeds=SPEEDS, knobs=KEPT, **options)
    rng = np.random.default_rng(seed)
    arrival_s = np.array([arrivals.bursty(200, 80.0, rng) for _ in range(2)])
    begin(made, arrival_s, objective_s, seed)
    routers.run(made, rules)
    return made


def test_a_network_that_has_learned_nothing_is_the_rule_itself():
    plain = routers.rule(PROFILE, "priced")
    steered = routers.with_net(plain, routers.PRICED, steering())
    assert ran(plain).request.tobytes() == ran(steered).request.tobytes()


def test_a_network_that_expects_more_chooses_slimmer():
    plain = routers.rule(PROFILE, "priced")
    one, two, three = steering()
    three[0, -1] = 3.0  # the bias of the gain of the rate
    more = routers.with_net(plain, routers.PRICED, (one, two, three))
    widths = [PROFILE.accuracy[ran(rules).request["widths"]].mean() for rules in (plain, more)]
    assert widths[1] < widths[0]


@pytest.mark.parametrize(("kind", "net"), [(AHEAD, steering(0.3)), (PAPER, three_heads(3, 1, 1.0))])
def test_a_file_gives_back_the_same_router(tmp_path, kind, net):
    net = tuple(weight.astype(np.float32).astype(float) for weight in net)
    save(tmp_path / "router.npz", kind, net, {"command": "trimtab train router"})
    router = routers.PRICED if kind == AHEAD else routers.HEADS
    before = ran(routers.with_net(routers.rule(PROFILE, "priced"), router, net))
    after = ran(load(tmp_path / "router.npz", PROFILE))
    assert before.request.tobytes() == after.request.tobytes()
    assert read(tmp_path / "router.npz").facts == {"command": "trimtab train router"}
    assert [path.name for path in tmp_path.iterdir()] == ["router.npz"]


def test_the_likeliest_action_is_that_of_the_network():
    net = three_heads(3, 2, 2.0)
    rules = routers.with_net(routers.rule(PROFILE, "priced"), routers.HEADS, net)
    made = fleets(PROFILE, 1, 1, speeds=SPEEDS, knobs=KEPT)
    begin(made, np.array([1.0]), 0.25)
    seen, _ = fleet_sim.first(made)
    x = seen[0]
    for weight in net:
        x = weight @ np.append(x, 1.0)
        x = np.tanh(x) if weight is not net[2] else x
    begin(made, np.array([1.0]), 0.25)
    noted = heads.trail(made)
    heads.collect_all(made, rules, noted)
    assert noted.seen[0, 0] == pytest.approx(seen[0])
    expected = [x[:3].argmax(), x[3:7].argmax(), x[7:].argmax()]
    assert noted.action[0, 0].tolist() == expected


def test_drawn_actions_follow_the_softmax_and_the_share_at_random():
    one, two, three = three_heads()
    three[0, -1] = np.log(4.0)  # servers 4 : 1 : 1, widths even
    rules = routers.with_net(routers.rule(PROFILE, "priced"), routers.HEADS, (one, two, three))
    for explore, share in ((0.0, 4 / 6), (0.5, 0.5 * 4 / 6 + 0.5 / 3)):
        made = fleets(PROFILE, 4, 300, speeds=SPEEDS, knobs=KEPT, drop_late=False)
        begin(made, np.linspace(0, 60, 300), np.inf, 3)
        noted = heads.trail(made)
        heads.collect_all(made, rules._replace(draws=np.array([1.0, explore])), noted)
        kept = np.arange(noted.action.shape[1]) < noted.length[:, None]
        action = noted.action[kept]
        assert (action[:, 0] == 0).mean() == pytest.approx(share, abs=0.03)
        assert np.bincount(action[:, 1]) / len(action) == pytest.approx([0.25] * 4, abs=0.03)


def test_parts_of_the_reward_sum_to_what_the_fleet_measured():
    rules = routers.with_net(routers.rule(PROFILE, "priced"), routers.HEADS, three_heads())
    made = fleets(PROFILE, 1, 150, speeds=SPEEDS, knobs=KEPT, drop_late=False)
    begin(made, arrivals.poisson(150, 60.0, np.random.default_rng(0)), np.inf, 1)
    noted = heads.trail(made)
    heads.collect_all(made, rules._replace(draws=np.array([1.0, 0.1])), noted)
    size, part = noted.size[0], noted.part[0]
    latency_s = made.request["done_s"] - made.request["arrival_s"]
    assert (size * part[:, heads.LATENCY]).sum() == pytest.approx(latency_s.sum())
    energy_j = made.request["energy_j"].sum()
    assert (size * part[:, heads.ENERGY]).sum() == pytest.approx(energy_j)
    assert size.sum() == 4 * 150


def test_what_is_expected_of_a_prefix_is_the_mean_of_its_ends():
    prior = heads.trail(fleets(PROFILE, 1, 1)).prior
    assert prior[3] == pytest.approx(PROFILE.accuracy)
    assert prior[0, 2] == pytest.approx(PROFILE.accuracy[128:192].mean())


def test_a_network_for_other_fleets_is_not_asked():
    rules = routers.with_net(routers.rule(PROFILE, "priced"), routers.HEADS, three_heads(5))
    made = ran(rules, drop_late=False, objective_s=np.inf)
    assert set(made.request["widths"]) == {255} and made.fleet["answered"].sum() == 400
    assert servers_of(three_heads(5)) == 5


def foreign(path, kind):
    if kind == "missing":
        return
    if kind == "text":
        path.write_text("no router")
    elif kind == "cut":
        save(path, AHEAD, steering(), {})
        path.write_bytes(path.read_bytes()[:200])
    elif kind == "other":
        np.savez(path, facts=np.array(json.dumps({"format": "other"})), net0=np.zeros((1, 1)))
    elif kind == "shape":
        facts = json.dumps({"format": "trimtab router 1", "kind": AHEAD})
        np.savez(path, facts=np.array(facts), **{f"net{i}": np.zeros((2, 2)) for i in range(3)})


@pytest.mark.parametrize("kind", ["missing", "text", "cut", "other", "shape"])
def test_a_file_that_is_no_router_is_named(tmp_path, kind):
    foreign(tmp_path / "r.npz", kind)
    with pytest.raises(ServeError, match=r"r\.npz: .*(train|trimtab)"):
        load(tmp_path / "r.npz", PROFILE)


@pytest.mark.parametrize(
    ("kind", "net", "named"),
    [
        ("best", steering(), "kind 'best'"),
        (AHEAD, three_heads(), "shapes"),
        (PAPER, steering(), "shapes"),
        (PAPER, three_heads(0), "shapes"),
        (AHEAD, steering(np.nan), "finite"),
    ],
)
def test_what_could_not_run_is_not_written(tmp_path, kind, net, named):
    with pytest.raises(ServeError, match=named):
        save(tmp_path / "r.npz", kind, net, {})
    assert not list(tmp_path.iterdir())
