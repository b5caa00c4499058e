"""Many environments at once keep Gymnasium's contract for vectors, and Stable-Baselines3's."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.vec_env import VecMonitor

from trimtab.envs.batched import VectorEnv
from trimtab.envs.sb3 import VecEnv

NAMES = ("trimtab/Queue-v0", "trimtab/Grid-v0")
SETTINGS = {
    "trace": "adlro:load=2,jobs=200",
    "cluster": "adlro:volta=2,turing=1,radeon=1",
    "jobs": 12,
    "window": 5,
}
STARTS = {"start": 40}


def same(ours, theirs):
    """Whether two infos, or parts of them, hold the same by the same names."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        return all(same(ours[key], theirs[key]) for key in theirs)
    return np.array_equal(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_a_vector_says_what_gymnasiums_own_vector_of_single_environments_says(name):
    ours = gymnasium.make_vec(name, num_envs=3, vectorization_mode="vector_entry_point", **SETTINGS)
    theirs = SyncVectorEnv(
        [lambda: gymnasium.make(name, disable_env_checker=True, **SETTINGS)] * 3,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    assert ours.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    shown, info = ours.reset(seed=3, options=STARTS)
    their_shown, their_info = theirs.reset(seed=3, options=STARTS)
    rng = np.random.default_rng(0)
    for _ in range(200):
        assert same(shown, their_shown) and same(info, their_info)
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in info["action_mask"]])
        shown, reward, ended, cut, info = ours.step(actions)
        their_shown, their_reward, their_ended, their_cut, their_info = theirs.step(actions)
        np.testing.assert_array_equal(reward, their_reward)
        np.testing.assert_array_equal(ended, their_ended)
        assert not cut.any() and not their_cut.any()
        if ended.any():
            break  # the next windows are drawn from other streams
    assert ended.any() and ours.observation_space.contains(shown)
    assert same(info["_final_obs"], their_info["_final_obs"])
    assert same(info["_final_info"], their_info["_final_info"])
    for c in range(3):
        mine, other = info["final_obs"][c], their_info["final_obs"][c]
        assert (mine is None) == (other is None) == (not ended[c])
        assert mine is None or same(mine, other)
    assert same(info["final_info"], their_info["final_info"])


def test_a_seed_fixes_every_episode_of_a_vector():
    def rewards(seed):
        env = VectorEnv(4, **SETTINGS)
        _, info = env.reset(seed=seed)
        paid = []
        for _ in range(100):
            _, reward, _, _, info = env.step(info["action_mask"].argmax(axis=1))
            paid.append(reward)
        return np.array(paid)

    assert (rewards(1) == rewards(1)).all()
    assert (rewards(1) != rewards(2)).any()


def test_gymnasiums_wrappers_for_vectors_count_episodes_as_the_engine_does():
    env = RecordEpisodeStatistics(VectorEnv(2, **SETTINGS))
    _, info = env.reset(seed=0)
    ended = np.zeros(2, bool)
    while not ended.any():
        _, _, ended, _, info = env.step(info["action_mask"].argmax(axis=1))
    c = int(ended.argmax())
    told = env.env.ended[c]
    assert info["episode"]["l"][c] == told["steps"] > 0
    assert info["episode"]["r"][c] == pytest.approx(told["score"])
    assert info["final_info"]["totals"]["finished"][c] == 12


@pytest.mark.parametrize("name", NAMES)
def test_gymnasiums_checker_finds_nothing_in_an_environment_on_a_trace(name):
    check_env(gymnasium.make(name, **SETTINGS).unwrapped, skip_render_check=True)


def test_masks_and_spaces_are_where_sb3_looks_for_them():
    env = VecEnv(3, **SETTINGS)
    env.seed(5)
    shown = env.reset()
    assert is_masking_supported(env)
    np.testing.assert_array_equal(get_action_masks(env), shown["action_mask"])
    assert env.observation_space.contains({key: part[0] for key, part in shown.items()})
    single = gymnasium.make("trimtab/Queue-v0", **SETTINGS)
    assert (env.observation_space, env.action_space) == (
        single.observation_space,
        single.action_space,
    )


def test_an_episode_that_ends_leaves_its_last_observation_and_its_return():
    env = VecMonitor(VecEnv(3, **SETTINGS))
    env.seed(5)
    shown, paid, done = env.reset(), np.zeros(3), np.zeros(3, bool)
    while not done.any():
        shown, reward, done, infos = env.step(shown["action_mask"].argmax(axis=1))
        paid += reward
    c = int(done.argmax())
    assert infos[c]["episode"]["r"] == pytest.approx(paid[c], rel=1e-5)
    assert infos[c]["totals"]["finished"] == 12
    last = infos[c]["terminal_observation"]
    assert not last["observation"].any() and last["action_mask"].tolist() == [0] * 5 + [1]
    assert shown["action_mask"][c, :-1].any()  # of the next episode, which has begun
    going = [info for i, info in enumerate(infos) if not done[i]]
    assert all("terminal_observation" not in info for info in going)


def test_what_sb3_is_shown_stays_as_it_was_when_the_next_step_is_taken():
    env = VecEnv(2, **SETTINGS)
    shown = env.reset()
    before = {key: part.copy() for key, part in shown.items()}
    env.step(shown["action_mask"].argmax(axis=1))
    assert same(shown, before)


def test_a_masked_learner_runs_on_it_and_its_model_in_a_single_environment(tmp_path):
    env = VecEnv(4, **SETTINGS)
    model = MaskablePPO("MultiInputPolicy", env, n_steps=32, batch_size=64, n_epochs=1, seed=0)
    model.learn(256)
    assert len(model.ep_info_buffer) > 0
    model.save(tmp_path / "ppo.zip")
    single = gymnasium.make("trimtab/Queue-v0", **SETTINGS)
    again = MaskablePPO.load(tmp_path / "ppo.zip", env=single)
    seen, info = single.reset(seed=0)
    action, _ = again.predict(seen, action_masks=info["action_mask"].astype(bool))
    assert single.action_space.contains(int(action))
