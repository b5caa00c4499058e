"""The DQN: what it sees, its networks, its replay, its file, and what its rewards add up to."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.worlds import lending_scene

from trimtab.build import cluster
from trimtab.core import Status
from trimtab.envs.clusters import episode_of
from trimtab.errors import PolicyError, TraceError, UnknownName
from trimtab.policies.dqn.field import (
    BatchedField,
    Windows,
    demonstrations,
    ground,
    reward_of,
    shuffled,
)
from trimtab.policies.dqn.learner import Learner, Settings
from trimtab.policies.dqn.net import QNet, export
from trimtab.policies.dqn.policy import DqnPolicy, Layout
from trimtab.policies.dqn.replay import Replay, SumTree
from trimtab.policies.dqn.training import permuted
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.sim.whole import simulate
from trimtab.sim.world import Models
from trimtab.testing import check_policy
from trimtab.traces.scenes.presets import preset
from trimtab.traces.scenes.synthetic import generate

MODELS = Models(startup_s=30.0, move_s=30.0)


def scene(jobs=60, windows=2, **preset_of):
    machine, profile = preset("adlro", **preset_of)
    work = generate("adlro", seed=5, jobs=jobs * windows)
    return ground(work, machine, profile, MODELS, jobs)


def net_for(on, seed=0, **settings):
    return Learner(Settings(seed=seed, **settings), on.layout(Settings(**settings))).net


def experience(layout, count=3, seed=0):
    rng = np.random.default_rng(seed)
    seen = rng.random((count, layout.size), dtype=np.float32)
    mask = (rng.random((count, layout.actions)) < 0.3).astype(np.int8)
    mask[:, -1] = 1
    return seen, mask


LAYOUTS = [Layout(m, t, 5, 3, 1 if m == "paper" else 4, 3) for m in ("full", "paper")
           for t in ("cnn", "set")]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: f"{one.mode}-{one.trunk}")
@pytest.mark.parametrize("dueling", [False, True])
def test_what_is_illegal_is_worth_minus_infinity_and_the_rest_is_finite(layout, dueling):
    seen, mask = experience(layout)
    q = QNet(layout, dueling=dueling).of(seen, mask).detach().numpy()
    assert q.shape == (3, layout.window * 5 + 1)
    assert (np.isfinite(q) == (mask == 1)).all()


def test_dueling_takes_the_mean_over_legal_actions_only():
    layout = LAYOUTS[0]
    net = QNet(layout, dueling=True)
    seen, mask = experience(layout)
    q = net.of(seen, mask).detach()
    grid, rows = (torch.as_tensor(part) for part in layout.split(seen))
    value = net.trunk(grid, rows)[1].detach()[:, 0]
    mean = np.where(mask > 0, q.numpy(), 0.0).sum(1) / mask.sum(1)
    assert mean == pytest.approx(value.numpy(), abs=1e-5)


def test_the_paper_sees_utilisation_queue_length_priority_and_kind_of_the_oldest_job():
    on = scene()
    settings = Settings(mode="paper", clusters=4, replay=1000)
    field = BatchedField(on, settings, seed=0)
    for _ in range(40):
        seen, mask = field.look()
        assert seen.shape == (4, 16 + 2 + 3) and mask.shape == (4, 17)
        field.step(mask.argmax(1))
    seen, _ = field.look()
    world = field.world
    head = world.queue[:, 0]
    jobs = world.jobs[np.arange(4), head]
    waiting = world.head["waiting"]
    assert seen[:, :16] == pytest.approx(np.clip(world.node_state["load"], 0, 1))
    assert seen[:, :16].any()
    assert seen[:, 16] == pytest.approx(waiting / (waiting + 16))
    p = jobs["priority"]
    assert seen[:, 17] == pytest.approx((1 + p / (1 + p)) / 2)
    assert (seen[:, 18:].argmax(1) == jobs["kind"]).all()
    assert (seen[:, 18:].sum(1) == 1).all()


def play(on, choose, reward="dense", idle_weight=0.5, seed=0):
    """The rewards of one episode of one cluster, summed, and each of them."""
    settings = Settings(clusters=1, replay=1000, reward=reward, idle_weight=idle_weight)
    field = BatchedField(on, settings, seed)
    field.env.reset(seed=seed, options={"start": 0})
    paid, going = [], True
    while going:
        _, mask = field.look()
        reward, carry = field.step(np.array([choose(field, mask[0])]))
        paid.append(float(reward[0]))
        going = carry[0] > 0
    return sum(paid) * on.scale_s, np.array(paid)


def oldest(field, mask):
    return int(mask.argmax())


def random_choice(seed):
    rng = np.random.default_rng(seed)
    return lambda field, mask: int(rng.choice(np.flatnonzero(mask)))


@pytest.mark.parametrize("choose", [oldest, random_choice(1)])
def test_rewards_at_completion_and_dense_ones_add_up_to_the_same(choose):
    on = scene(jobs=40, windows=1)
    dense, each = play(on, choose)
    choose = random_choice(1) if choose is not oldest else oldest
    late, at_ends = play(on, choose, reward="completion")
    assert late == pytest.approx(dense)
    assert not np.allclose(each, at_ends)


RULES = ("fcfs", "fcfs+fastest", "fcfs+affinity", "sjf+fastest", "ljf", "sjf", "fcfs+random")


def by_completion(part, state, nodes, idle_weight, *, always=False):
    """The paper's rewards of jobs of one GPU each, summed, by starts and ends alone: completion
    times and the seconds of idle GPUs, those while a job waits or `always`.
    """
    times = [part.jobs["submit_s"], state["start_s"], state["end_s"]]
    instants = np.unique(np.concatenate(times))
    submit_s, start_s, end_s = (column[:, None] for column in times)
    waiting = ((submit_s <= instants) & (instants < start_s)).sum(0)
    idle = nodes - ((start_s <= instants) & (instants < end_s)).sum(0)
    counted = np.where((waiting > 0) | always, idle, 0)[:-1]
    return -float((end_s - submit_s).sum() + idle_weight * (counted * np.diff(instants)).sum())


def summed_rewards(on, **how):
    """(dense, at completion) of every rule."""
    part = episode_of(on.workload, 0, on.jobs)
    for rule in RULES:
        whole = simulate(part, on.cluster, rule, profile=on.profile, models=MODELS)
        dense = sum(w * float(whole.totals[name]) for name, w in reward_of(0.5).items())
        yield dense, by_completion(part, whole.state, len(on.cluster), 0.5, **how)


def test_both_rewards_rank_policies_alike():
    on = scene(jobs=80, windows=1)
    dense, late = map(list, zip(*summed_rewards(on)))
    for seed in range(3):
        dense.append(play(on, random_choice(seed))[0])
        late.append(play(on, random_choice(seed), reward="completion")[0])
    assert np.argsort(dense).tolist() == np.argsort(late).tolist()
    assert late == pytest.approx(dense)
    assert len(set(dense)) == len(dense)


def test_idle_gpus_counted_without_a_queue_would_rank_policies_otherwise():
    dense, late = zip(*summed_rewards(scene(jobs=80, windows=1), always=True))
    fcfs, fastest = RULES.index("fcfs"), RULES.index("fcfs+fastest")
    # who uses fast GPUs is done earlier and leaves more of them idle
    assert dense[fastest] > dense[fcfs]
    assert late[fastest] < late[fcfs]


def test_a_discount_by_time_is_one_within_an_instant():
    on = scene()
    settings = Settings(clusters=8, replay=1000, gamma=0.9)
    timed, stepped = (
        BatchedField(on, Settings(**{**vars(settings), "discount": how}), 0)
        for how in ("time", "step")
    )
    ones = 0
    for turn in range(100):
        before_s = timed.world.head["now_s"].copy()
        mask = timed.look()[1]
        wait = (turn % 4 < 2) & (mask[:, -1] == 1)  # so that jobs queue and start together
        action = np.where(wait, mask.shape[1] - 1, mask.argmax(1))
        _, carry = timed.step(action)
        _, fixed = stepped.step(action)
        passed_s = timed.world.head["now_s"] - before_s
        on_going = carry > 0
        assert (fixed[on_going] == 0.9).all() and (fixed[~on_going] == 0).all()
        want = 0.9 ** (np.maximum(passed_s, 0) / on.gap_s)
        assert carry[on_going] == pytest.approx(want[on_going])
        ones += int((carry == 1).sum())
    assert ones > 0


def filled(rows, steps, joined, clusters=2, alpha=0.0):
    """A replay where step t of cluster c shows t + c / 2, was paid t + 1 and took action t."""
    replay = Replay(rows, clusters, 1, 3, alpha=alpha)
    c = np.arange(clusters)
    for t in range(steps):
        replay.show((t + c / 2)[:, None], np.ones((clusters, 3)))
        replay.pay(np.full(clusters, t), np.full(clusters, t + 1.0), np.full(clusters, 0.5), joined)
    replay.show((steps + c / 2)[:, None], np.ones((clusters, 3)))
    return replay


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_steps_are_joined_with_their_followers_also_past_the_end_of_the_ring(alpha):
    replay = filled(rows=8, steps=20, joined=3, alpha=alpha)
    batch = replay.draw(500, 3, np.random.default_rng(0))
    t = batch.action
    assert set(t.tolist()) == {13, 14, 15, 16, 17}  # row 20 is the newest seen, 17 + 3 is it
    assert replay.ready(3) == 5 * 2
    # (t + 1) + (t + 2) / 2 + (t + 3) / 4
    assert batch.reward == pytest.approx((t + 1) + (t + 2) / 2 + (t + 3) / 4)
    assert (batch.carry == 0.125).all()
    assert (batch.later[:, 0] - batch.seen[:, 0] == 3).all()
    assert (np.floor(batch.seen[:, 0]) == t).all()


def test_no_reward_of_the_next_episode_is_joined():
    replay = Replay(8, 1, 1, 2)
    for t in range(6):
        replay.show(np.array([[t]]), np.ones((1, 2)))
        replay.pay(np.array([t]), np.array([1.0]), np.array([0.0 if t == 3 else 1.0]), 4)
    replay.show(np.array([[6]]), np.ones((1, 2)))
    batch = replay.draw(200, 4, np.random.default_rng(0))
    want = {0: (4, 0), 1: (3, 0), 2: (2, 0)}  # steps to the end at 3; nothing after it
    for action, reward, carry in zip(batch.action, batch.reward, batch.carry):
        assert (reward, carry) == want[int(action)]


def test_a_tree_draws_in_proportion_to_the_weights():
    tree = SumTree(5)
    tree.put(np.array([0, 2, 4]), np.array([1.0, 0.0, 3.0]))
    place, chance = tree.draw(400, np.random.default_rng(0))
    assert np.bincount(place, minlength=5).tolist() == [100, 0, 0, 0, 300]
    assert set(chance.tolist()) == {0.25, 0.75}


def test_surprise_raises_the_odds_and_weights_make_up_for_it():
    replay = filled(rows=8, steps=6, joined=1, clusters=1, alpha=1.0)
    batch = replay.draw(6, 1, np.random.default_rng(0))
    replay.surprised(np.arange(6), np.array([9.0, 1, 1, 1, 1, 1]))
    batch = replay.draw(1400, 1, np.random.default_rng(0))
    often = (batch.action == 0).mean()
    assert often == pytest.approx(9 / 14, abs=0.01)
    # weights are 1 / chance, over the largest
    assert batch.weight[batch.action == 0] == pytest.approx(1 / 9, rel=0.01)
    assert batch.weight[batch.action == 1] == pytest.approx(1.0)


def tiny(double, **settings):
    """A learner whose networks give fixed values: net 1, 2, 3 and target 5, 9, 7."""
    layout = Layout("paper", "cnn", 2, 1, 1, 1)
    learner = Learner(Settings(double=double, dueling=False, **settings), layout)
    for net, values in ((learner.net, [1.0, 2.0, 3.0]), (learner.target, [5.0, 9.0, 7.0])):
        for parameter in net.parameters():
            torch.nn.init.zeros_(parameter)
        net.trunk.advantage.bias.data = torch.tensor(values)
    return learner


@pytest.mark.parametrize(
    ("double", "mask", "want"),
    [
        (False, [1, 1, 1], 1 + 0.5 * 9),  # the target's best
        (True, [1, 1, 1], 1 + 0.5 * 7),  # the target's value of the net's best
        (False, [1, 0, 1], 1 + 0.5 * 7),  # the best of the legal ones
        (True, [1, 1, 0], 1 + 0.5 * 9),
    ],
)
def test_the_target_is_the_reward_and_the_best_legal_value_after_it(double, mask, want):
    learner = tiny(double, n_step=1, clusters=1)
    replay = Replay(4, 1, learner.layout.size, 3)
    seen = np.zeros((1, learner.layout.size))
    replay.show(seen, np.ones((1, 3)))
    replay.pay(np.array([0]), np.array([1.0]), np.array([0.5]), 1)
    replay.show(seen, np.array([mask]))
    batch = replay.draw(2, 1, np.random.default_rng(0))
    assert learner._wanted(batch, torch.zeros(1)).tolist() == [want, want]
    ended = batch._replace(carry=np.zeros(2, np.float32), later_mask=np.zeros((2, 3), np.int8))
    assert learner._wanted(ended, torch.zeros(1)).tolist() == [1.0, 1.0]


def test_the_margin_loss_is_nothing_once_the_rules_action_leads_by_the_margin():
    learner = tiny(True, margin=0.5)
    q = torch.tensor([[1.0, 2.0, -torch.inf], [1.0, 1.8, -torch.inf], [2.0, 1.0, -torch.inf]])
    action = torch.tensor([[1], [1], [1]])
    each = [float(learner._margin_loss(q[i : i + 1], action[i : i + 1])) for i in range(3)]
    assert each == pytest.approx([0.0, 0.0, 1.5])  # leads by 1, by 0.8, lags by 1
    assert float(learner._margin_loss(q[:1], torch.tensor([[0]]))) == pytest.approx(1.5)


def test_random_actions_are_legal_and_all_are_tried():
    layout = LAYOUTS[0]
    learner = Learner(Settings(), layout)
    seen, mask = experience(layout, count=1)
    tried = {int(learner.act(seen, mask, epsilon=1.0)[0]) for _ in range(500)}
    assert tried == set(np.flatnonzero(mask[0]).tolist())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trunk": "cmm"}, "known: cnn, set"),
        ({"gamma": 1.5}, "gamma=1.5"),
        ({"n_step": 0}, "n_step=0"),
        ({"replay": 64}, "replay=64"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises((PolicyError, UnknownName), match=words):
        Settings(**settings).check()


def test_demonstrations_are_what_the_rule_does_and_their_rewards_add_up():
    on = scene(jobs=40, windows=1)
    settings = Settings(demonstrations=40, n_step=1, gamma=1.0, window=40)
    kept = demonstrations(on, settings, "sjf+fastest")  # a start a job: one whole episode or more
    part = episode_of(on.workload, 0, on.jobs)
    whole = simulate(part, on.cluster, "sjf+fastest", profile=on.profile, models=MODELS)
    want = sum(w * float(whole.totals[name]) for name, w in reward_of(0.5).items())
    batch = kept.draw(4000, 1, np.random.default_rng(0))
    each = {int(place): float(reward) for place, reward in zip(batch.place, batch.reward)}
    assert len(each) == kept.paid == 40
    assert sum(each.values()) * on.scale_s == pytest.approx(want, rel=1e-4)
    assert (batch.carry == 0).sum() == (batch.place == 39).sum()


def test_a_rule_that_stops_jobs_cannot_be_imitated():
    with pytest.raises(PolicyError, match="srtf"):
        demonstrations(scene(jobs=40), Settings(demonstrations=200), "srtf+fastest")


@pytest.mark.parametrize("mode", ["full", "paper"])
def test_the_policy_of_the_file_does_on_a_backend_what_the_network_did_in_training(mode, tmp_path):
    on = scene(jobs=60, windows=1)
    settings = {"mode": mode, "trunk": "cnn", "window": 6}
    learner = Learner(Settings(**settings), on.layout(Settings(**settings)))
    jct_s = Windows(on).by_learner(learner)
    export(learner.net, tmp_path / "dqn.onnx", "a command")
    policy = DqnPolicy(tmp_path / "dqn.onnx")
    assert policy.told["command"] == "a command"
    part = episode_of(on.workload, 0, on.jobs)
    backend = SimBackend(part, on.cluster, on.profile, MODELS)
    run(backend, policy)
    end_s = backend.snapshot().state["end_s"]
    assert (end_s - part.jobs["submit_s"]).mean() == pytest.approx(jct_s[0], rel=1e-6)


def exported(tmp_path, **settings):
    on = scene(jobs=20)
    path = tmp_path / "dqn.onnx"
    export(net_for(on, **settings), path)
    return path


def test_a_cnn_refuses_a_cluster_of_another_size_and_a_set_trunk_takes_it(tmp_path):
    other = scene(jobs=20, volta=3, turing=2, radeon=2)
    backend = SimBackend(other.workload, other.cluster, other.profile)
    with pytest.raises(PolicyError, match=r"for 16 nodes, and this cluster has 7.*trunk=set"):
        run(backend, DqnPolicy(exported(tmp_path, trunk="cnn")))
    backend = SimBackend(other.workload, other.cluster, other.profile)
    run(backend, DqnPolicy(exported(tmp_path, trunk="set")))
    assert (backend.snapshot().state["status"] == Status.FINISHED).all()


def test_other_resources_or_kinds_of_job_are_refused(tmp_path):
    work = generate("queue", seed=0, jobs=5)
    with pytest.raises(PolicyError, match="for 3 resources, and this cluster has 1"):
        run(SimBackend(work, cluster([1.0] * 16)), DqnPolicy(exported(tmp_path)))
    path = exported(tmp_path, mode="paper")
    with pytest.raises(PolicyError, match="for 3 kinds of job, and there are 1"):
        run(SimBackend(work, cluster([1.0] * 16)), DqnPolicy(path))


def test_a_file_that_is_no_network_of_ours_is_named(tmp_path):
    with pytest.raises(PolicyError, match=r"none\.onnx: no such file; train one"):
        DqnPolicy(tmp_path / "none.onnx")
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"something else")
    with pytest.raises(PolicyError, match=r"bad\.onnx: not a readable ONNX network"):
        DqnPolicy(bad)


def test_the_policy_keeps_the_protocol(tmp_path):
    net = QNet(Layout("full", "set", 4, 3, 8, 2))
    export(net, tmp_path / "dqn.onnx")
    check_policy(DqnPolicy(tmp_path / "dqn.onnx"))


def test_running_a_trained_network_imports_no_torch(tmp_path):
    path = exported(tmp_path)
    code = (
        "import sys\nfrom trimtab.policies.dqn.policy import DqnPolicy\n"
        f"DqnPolicy({str(path)!r})\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_a_set_trunk_is_as_good_in_any_order_of_the_gpus_and_a_cnn_is_not():
    on = scene(jobs=60)
    for trunk, same in (("set", True), ("cnn", False)):
        settings = Settings(trunk=trunk)
        learner = Learner(settings, on.layout(settings))
        here_s = Windows(on).by_learner(learner).mean()
        there_s = permuted(learner, on, orders=2)
        assert (there_s == pytest.approx(here_s, rel=0.05)) is same


def test_shuffling_keeps_every_node():
    machine, _ = preset("adlro")
    other = shuffled(machine, np.random.default_rng(0))
    assert sorted(other.names.tolist()) == sorted(machine.names.tolist())
    assert other.names.tolist() != machine.names.tolist()
    kinds = dict(zip(machine.names.tolist(), machine.nodes["kind"].tolist()))
    assert [kinds[name] for name in other.names.tolist()] == other.nodes["kind"].tolist()


def test_a_cluster_that_lends_is_no_ground_to_train_on():
    with pytest.raises(TraceError, match="train on a trace without services"):
        ground(*lending_scene(np.random.default_rng(0)), Models(), 20)
