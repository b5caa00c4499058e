"""Environments on a trace of one's own, split in time, and policies beside each other in them."""

import gymnasium
import numpy as np
import pytest

import trimtab.envs  # noqa: F401  registers the ids
from trimtab.envs.batched import BatchedEnv
from trimtab.envs.clusters import Clusters
from trimtab.envs.evaluate import apart, evaluate
from trimtab.errors import TraceError, TrimtabError
from trimtab.policies import named

TRACE = "adlro:load=2,jobs=400"
SMALL = {"trace": TRACE, "jobs": 20, "window": 20}

# 60 jobs, a minute apart, of 1 or 2 of 4 processors for 100 s: more than the machine can do
LOG = "; MaxNodes: 4\n; MaxProcs: 4\n" + "".join(
    f"{job + 1} {20 * job} -1 100 {1 + job % 2} -1 -1 {1 + job % 2} 200 -1 1 1 1 -1 1 -1 -1 -1\n"
    for job in range(60)
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return str(path)


def queue(**settings):
    return gymnasium.make("trimtab/Queue-v0", **{**SMALL, **settings})


def test_a_log_is_an_environment_in_one_call(log):
    env = gymnasium.make("trimtab/Queue-v0", trace=log, jobs=15, window=8)
    clusters = env.unwrapped.clusters
    assert len(clusters.workload) == 60 and clusters.windows == 60 - 15 + 1
    assert evaluate("oldest", env).mean < 0  # somebody waited


def test_a_part_has_the_first_four_fifths_of_the_jobs_or_the_rest(log):
    ends = {}
    for part in ("train", "test"):
        clusters = gymnasium.make(
            "trimtab/Queue-v0", trace=log, jobs=10, window=8, part=part
        ).unwrapped.clusters
        ends[part] = (clusters.first, clusters.first + clusters.windows - 1)
    # 48 of 60 jobs: the last window of ten that ends before row 48 begins at row 38
    assert ends == {"train": (0, 38), "test": (48, 50)}


@pytest.mark.parametrize("part", ["train", "test"])
def test_episodes_begin_within_their_part_alone_and_in_a_batch(log, part):
    settings = {"trace": log, "jobs": 10, "window": 8, "part": part}
    env = gymnasium.make("trimtab/Queue-v0", **settings).unwrapped
    batched = BatchedEnv(64, **settings)
    batched.reset(seed=1)
    begun = set(batched.clusters.episode["start"].tolist())
    for seed in range(30):
        env.reset(seed=seed)
        begun.add(int(env.clusters.episode["start"][0]))
    low, high = (0, 38) if part == "train" else (48, 50)
    assert low <= min(begun) and max(begun) <= high
    assert len(begun) > (10 if part == "train" else 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"part": "tets"}, "part 'tets' is unknown; give train or test"),
        ({"part": "test", "jobs": 81}, r"jobs=81; an episode of test has 1\.\.80 jobs"),
        ({"trace": "nope.swf"}, r"nope\.swf: no such file"),
        ({"trace": None, "workload": Clusters(1, trace=TRACE).workload, "load": 0.9}, "leave out"),
    ],
)
def test_a_wrong_setting_is_one_sentence(settings, words):
    with pytest.raises(TrimtabError, match=words):
        queue(**settings)


def test_a_start_outside_the_part_says_where_it_may_be():
    env = queue(part="test")
    with pytest.raises(TraceError, match=r"start=0; an episode starts at a row in 320\.\.380"):
        env.reset(options={"start": 0})


def test_windows_to_evaluate_on_share_no_job_and_are_spread_over_all():
    # rows 100, 110, .. 190: of ten windows every second one
    assert apart(100, 91, 10, 5).tolist() == [100, 120, 140, 160, 180]
    assert apart(100, 91, 10, 50).tolist() == list(range(100, 191, 10))


@pytest.mark.parametrize(("order", "choice"), [("fcfs", "oldest"), ("sjf", "shortest")])
def test_a_rule_earns_in_the_loop_what_its_choices_earn_in_the_environment(order, choice):
    # one GPU a job: what fits at all fits now, so both start the head of the order, if anything
    env = queue(part="test")
    by_loop, by_env = evaluate(named(f"{order}+best"), env), evaluate(choice, env)
    np.testing.assert_array_equal(by_loop.starts, by_env.starts)
    np.testing.assert_allclose(by_loop.rewards, by_env.rewards, rtol=1e-9)


def test_the_default_scene_tells_policies_apart():
    env = gymnasium.make("trimtab/Queue-v0", part="test", window=32)
    oldest, shortest = (evaluate(name, env) for name in ("oldest", "shortest"))
    assert oldest.choices > 0.4  # two starts or more are possible at so many steps
    gain = shortest.rewards - oldest.rewards
    assert len(gain) >= 15 and (gain > 0).mean() > 0.8
    assert shortest.mean > 0.75 * oldest.mean


def test_the_interval_is_that_of_the_mean_over_windows():
    found = evaluate("shortest", queue(part="test"), windows=3)
    mean, spread = found.rewards.mean(), found.rewards.std(ddof=1)
    assert found.mean == pytest.approx(mean)
    assert found.half == pytest.approx(4.303 * spread / np.sqrt(3), rel=1e-3)  # t of 2 degrees
    assert str(found) == f"{mean:.3f} ± {found.half:.3f} over 3 windows"


def test_a_function_is_shown_what_the_environment_shows():
    env = queue()
    by_function = evaluate(lambda seen, mask: int(seen["action_mask"].argmax()), env, windows=4)
    np.testing.assert_array_equal(by_function.rewards, evaluate("oldest", env, windows=4).rewards)


@pytest.mark.parametrize(
    ("policy", "env", "windows", "words"),
    [
        ("olds", "trimtab/Queue-v0", 3, "'olds' is unknown; give random, oldest, shortest"),
        ("oldest", "CartPole-v1", 3, "CartPoleEnv is no single cluster"),
        ("oldest", "trimtab/Queue-v0", 0, "windows=0; give 1 or more"),
    ],
)
def test_a_wrong_question_is_one_sentence(policy, env, windows, words):
    made = queue() if env.startswith("trimtab") else gymnasium.make(env)
    with pytest.raises(TrimtabError, match=words):
        evaluate(policy, made, windows=windows)
