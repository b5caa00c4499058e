"""The hierarchy: its graph is kept and not rebuilt, its guard acts, whole runs are as steps say."""

from types import SimpleNamespace

import numpy as np
import pytest

from trimtab.errors import PolicyError, UnknownName
from trimtab.play import by_loop, play
from trimtab.policies import named
from trimtab.policies.hierarchy import graph
from trimtab.policies.hierarchy.goals import GOALS, KEEP, NAMES
from trimtab.policies.hierarchy.manager import Manager, read_manager, write_manager
from trimtab.policies.hierarchy.policy import HierarchyPolicy
from trimtab.policies.hierarchy.sight import MACHINE, REGION, Sight
from trimtab.policies.hierarchy.steering import RULE_ESTIMATE, Steering
from trimtab.policies.hierarchy.weights import read_orders, write_orders
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.traces.scenes.scene import open_scene

SMALL = "colocated:machines=24,regions=3,span_s=600"


@pytest.fixture(scope="module")
def scene():
    return open_scene(SMALL, seed=5)


def steady(goal: int, worth: float = -1.0) -> Manager:
    """A manager that always promises as much of one goal, and nothing of the others."""
    hidden = 4
    head = np.zeros((hidden + 1, len(GOALS)))
    head[-1, goal] = worth
    return Manager(
        np.zeros((len(MACHINE) + 1, hidden)), np.zeros((2 * hidden + len(REGION) + 1, hidden)),
        np.zeros((hidden, hidden)), np.zeros((hidden, hidden)), head, 0.1, {},
    )  # fmt: skip


def snapshots(scene, every=7, most=40):
    """Snapshots of a run under a rule."""
    backend = SimBackend(scene.workload, scene.cluster, scene.profile)
    policy, seen = named("smallest-area+greedy+swift+peak@0.9"), []

    class Watched:
        def decide(self, snapshot):
            if len(seen) < most and len(snapshot.running) % every == 0:
                seen.append(replace_arrays(snapshot))
            return policy.decide(snapshot)

    run(backend, Watched())
    return seen


def replace_arrays(snapshot):
    kept = ("runs", "pieces", "running", "jobs", "demand", "nodes")
    return SimpleNamespace(**{name: np.array(getattr(snapshot, name)) for name in kept})


def test_a_graph_that_is_kept_is_the_one_that_would_be_built_anew(scene):
    seen = snapshots(scene)
    assert len(seen) > 10
    kept = graph.empty(4, len(scene.cluster), 4, 3)  # it grows on the way
    for view in seen:
        kept = graph.seen(kept, view)
        fresh = graph.seen(graph.empty(len(view.runs), len(view.nodes), len(view.jobs), 3), view)
        assert kept.sums == pytest.approx(fresh.sums, abs=1e-6)
        assert (kept.coupling == fresh.coupling).all()
        assert (kept.held[: len(fresh.held)] == fresh.held).all()
        assert kept.head[0]["edges"] == fresh.head[0]["edges"]
    again = graph.seen(kept, seen[-1])
    assert again.head[0]["changed"] == 0  # what it knows changes no edge


def test_regions_that_hold_instances_of_one_job_are_coupled():
    held, coupling = np.zeros((2, 3), np.int64), np.zeros((3, 3), np.int64)
    graph.tie(held, coupling, 0, 0, 2)
    graph.tie(held, coupling, 0, 2, 1)
    graph.tie(held, coupling, 1, 2, 1)
    assert coupling.tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    graph.tie(held, coupling, 0, 0, -2)
    assert not coupling.any()


def test_a_run_in_compiled_code_ends_as_one_by_steps(scene):
    policy = HierarchyPolicy()
    policy._looking.manager = steady(NAMES.index("relieve"))
    whole = play(policy, scene)
    other = HierarchyPolicy()
    other._looking.manager = steady(NAMES.index("relieve"))
    stepped = by_loop(other, scene.workload, scene.cluster, scene.profile, None)
    assert np.array_equal(whole.state["end_s"], stepped.state["end_s"], equal_nan=True)
    assert len(policy.looks) > 5 and policy.counters()["guarded"] == 0
    for mine, theirs in zip(policy.looks, other.looks):
        assert mine.now_s == theirs.now_s and (mine.goals == theirs.goals).all()
    assert policy.counters()["goal_relieve"] == 3 * len(policy.looks)


def test_a_goal_moves_limits_and_weights_of_its_region_alone(scene):
    orders = read_orders()
    steering = Steering(orders, None)
    made = steering._orders(np.array([KEEP, NAMES.index("fill"), KEEP]), 3)
    fill = GOALS[NAMES.index("fill")]
    assert [one.share for one in made] == [
        orders.limit, pytest.approx(orders.limit + fill.limit), orders.limit,
    ]  # fmt: skip
    assert (steering.worker[0] == steering.worker[2]).all()
    assert (steering.worker[1] != steering.worker[0]).any()


def slow(policy):
    policy._looking._clock = iter(range(0, 10**6, 5)).__next__


def no_number(policy):
    policy._looking.manager = steady(1, np.nan)


@pytest.mark.parametrize("spoil, why", [(no_number, "nan:"), (slow, "slow:")])
def test_the_best_rule_acts_where_the_manager_must_not(scene, spoil, why):
    policy = HierarchyPolicy()
    policy._looking.manager = steady(1)
    spoil(policy)
    backend = SimBackend(scene.workload, scene.cluster, scene.profile)
    run(backend, policy)
    judged = policy.looks[1:] if spoil is slow else policy.looks  # a first look may compile
    assert all(look.guard.startswith(why) for look in judged)
    assert policy.counters()["guarded"] == len(judged) > 0
    assert backend.snapshot().estimate == RULE_ESTIMATE
    assert "the best rule acted" in policy.footnote()


def test_readings_that_never_come_are_guarded_and_the_hierarchy_comes_back(scene):
    looking = Steering(read_orders(), steady(KEEP))
    backend = SimBackend(scene.workload, scene.cluster, scene.profile)
    backend.wait()
    view = backend.snapshot()
    blind = np.array(view.node_state)
    blind["read"], blind["reads"] = -1.0, 5
    first = looking.decisions(view._replace(node_state=blind))
    assert looking.looks[-1].guard.startswith("stale:")
    assert {one.estimate for one in first} == {RULE_ESTIMATE}
    seeing = blind.copy()
    seeing["read"] = 1.0
    later = view._replace(node_state=seeing, now_s=view.now_s + 100.0)
    assert {one.estimate for one in looking.decisions(later)} == {"encoder"}


def test_what_waits_for_very_long_while_nothing_begins_is_let_in(scene):
    looking = Steering(read_orders(), None)
    backend = SimBackend(scene.workload, scene.cluster, scene.profile)
    while not len(backend.snapshot().queue):
        backend.wait()
    view = backend.snapshot()
    shares = []
    for minute in range(40):
        made = looking.decisions(view._replace(now_s=view.now_s + 60.0 * minute))
        shares += [max(one.share for one in made)] if made else []
    assert shares[0] == read_orders().limit and shares[-1] > shares[0] + 0.2


def test_neighbours_and_the_readout_change_what_a_region_is_told():
    rng = np.random.default_rng(0)
    hidden = 4
    shapes = ((len(MACHINE) + 1, hidden), (2 * hidden + len(REGION) + 1, hidden), (hidden, hidden),
              (hidden, hidden), (hidden + 1, len(GOALS)))  # fmt: skip
    manager = Manager(*[rng.normal(size=shape) for shape in shapes], 0.0, {})
    sight = Sight(
        rng.random((6, len(MACHINE))), rng.random((3, len(REGION))), np.repeat(np.arange(3), 2),
        np.full((3, 3), 0.5) - 0.5 * np.eye(3),
    )  # fmt: skip
    plain = manager.worth(sight)
    machine = sight.machine.copy()
    machine[5] += 1.0  # of region 2
    other = manager.worth(sight._replace(machine=machine))
    assert (other[0, 1:] != plain[0, 1:]).any()
    turn = np.array([2, 0, 1])
    turned = manager.worth(
        Sight(sight.machine, sight.region[turn], np.argsort(turn)[sight.of], sight.link)
    )
    assert turned == pytest.approx(plain[turn])  # regions have no number of their own


def test_files(tmp_path):
    orders = read_orders()
    write_orders(tmp_path / "hierarchy.json", orders, command="mine")
    write_manager(tmp_path / "manager.npz", steady(2))
    policy = named(f"hierarchy:{tmp_path}+encoder@0.77")
    assert policy.orders.limit == 0.77 and policy._looking.manager.head[-1, 2] == -1.0
    assert (policy.orders.worker == np.round(orders.worker, 6)).all()
    assert read_manager(tmp_path).margin == 0.1
    (tmp_path / "hierarchy.json").write_text("{}")
    with pytest.raises(PolicyError, match="no weights of hierarchy"):
        named(f"hierarchy:{tmp_path}")
    with pytest.raises(UnknownName, match="without='x'"):
        orders.without("x")


def test_ablations_lack_what_they_say():
    assert named("hierarchy-no-encoder").orders.estimate == "peak"
    assert named("hierarchy-no-manager")._looking.manager is None
    speeds = named("hierarchy-no-compatibility").orders.worker[0]
    assert speeds[3] == 0.0 and named("hierarchy").orders.worker[0, 3] > 0.0
