"""Models of Stable-Baselines3 as policies: choices as in the environment, or a sentence."""

import json
import sys
import zipfile
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from sb3_contrib import QRDQN, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO
from tests.worlds import lending_scene

import trimtab.envs  # noqa: F401  registers the ids
from trimtab.errors import TrimtabError
from trimtab.play import play
from trimtab.policies import check, file_of, named
from trimtab.policies.sb3 import SB3Policy
from trimtab.testing import check_policy
from trimtab.traces.scenes.scene import Scene, open_scene

JOBS, WINDOW = 60, 5
MADE = {
    "MaskablePPO": (MaskablePPO, {"n_steps": 64, "batch_size": 32}),
    "PPO": (PPO, {"n_steps": 64, "batch_size": 32}),
    "A2C": (A2C, {}),
    "DQN": (DQN, {"buffer_size": 100}),
    "QRDQN": (QRDQN, {"buffer_size": 100}),
}


def scene():
    return open_scene("mixed-gpu:load=4", "mixed-gpu:a100=1,v100=1,t4=1,p100=1,cpu=1", jobs=JOBS)


def env_of(codec, **more):
    s = scene()
    settings = {"workload": s.workload, "cluster": s.cluster, "profile": s.profile, **more}
    return gymnasium.make(f"trimtab/{codec}-v0", jobs=JOBS, window=WINDOW, **settings)


def saved(folder, kind, codec="Queue", **more):
    """A model as it is before it learns, which chooses as arbitrarily as any."""
    make, settings = MADE[kind]
    model = make("MultiInputPolicy", env_of(codec, **more), seed=1, **settings)
    path = folder / f"{kind}.zip"
    model.save(path)
    return path, model


def starts_in_env(env, model, masked, first=0):
    seen, _ = env.reset(options={"start": first})
    over = False
    while not over:
        more = {"action_masks": seen["action_mask"].astype(bool)} if masked else {}
        action, _ = model.predict(seen, deterministic=True, **more)
        seen, _, ended, stuck, _ = env.step(int(action))
        over = ended or stuck
    world = env.unwrapped.clusters.world
    return world.state[0]["start_s"].copy()


@pytest.mark.parametrize("kind", MADE)
def test_a_model_starts_every_job_in_the_loop_when_it_does_in_its_environment(tmp_path, kind):
    path, model = saved(tmp_path, kind)
    there = starts_in_env(env_of("Queue"), model, kind == "MaskablePPO")
    here = play(named(f"sb3:{path}"), scene()).state["start_s"]
    begin_s = scene().workload.jobs["submit_s"][0]
    if kind == "MaskablePPO":
        np.testing.assert_allclose(there + begin_s, here, rtol=1e-12)
    else:  # without masks it may wait where nothing runs, which only an environment can do
        assert np.isfinite(here).all()


def test_a_model_of_the_grid_plays_on_the_cluster_it_learned_on(tmp_path):
    path, model = saved(tmp_path, "MaskablePPO", "Grid")
    there = starts_in_env(env_of("Grid"), model, True)
    here = play(named(str(path)), scene()).state["start_s"]
    np.testing.assert_allclose(there + scene().workload.jobs["submit_s"][0], here, rtol=1e-12)


def test_a_model_of_a_grid_that_lends_plays_on_it(tmp_path):
    work, machine, profile = lending_scene(np.random.default_rng(2))
    lent = {"workload": work, "cluster": machine, "profile": profile}
    path, model = saved(tmp_path, "MaskablePPO", "Grid", **lent)
    there = starts_in_env(env_of("Grid", **lent), model, True, first=12)  # behind the services
    here = play(named(str(path)), Scene(work, machine, profile, "lending", True))
    np.testing.assert_array_equal(there, here.state["start_s"])
    alike = replace(machine, lending=None)
    with pytest.raises(TrimtabError, match="made for a cluster that lends"):
        play(named(str(path)), Scene(work, alike, profile, "lending", True))


def test_a_place_rule_that_the_environment_had_is_told_behind_the_file(tmp_path):
    path, model = saved(tmp_path, "MaskablePPO", place="fastest")
    there = starts_in_env(env_of("Queue", place="fastest"), model, True)
    here = play(named(f"sb3:{path},place=fastest,codec=queue,window={WINDOW}"), scene())
    begin_s = scene().workload.jobs["submit_s"][0]
    np.testing.assert_allclose(there + begin_s, here.state["start_s"], rtol=1e-12)


def test_a_model_keeps_the_protocol_with_or_without_its_prefix(tmp_path):
    path, _ = saved(tmp_path, "MaskablePPO")
    check_policy(f"sb3:{path}")
    assert isinstance(named(str(path)), SB3Policy)
    assert file_of(f"{path},place=first") == path == file_of(f"sb3:{path}")


def test_a_cluster_of_another_size_is_refused_with_both_sizes(tmp_path):
    path, _ = saved(tmp_path, "MaskablePPO", "Grid")
    # 5 nodes x (6 + 3 resources + 5 jobs) + 5 jobs x 8 = 110 numbers, 5 x 5 + 1 = 26 actions
    with pytest.raises(TrimtabError, match=r"sees 110 numbers and has 26 actions; .* 7 nodes and"):
        named(f"sb3:{path}").suits(7, 3, 6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (",window=9", r"its window is 5, not 9; give window=5"),
        (",codec=grid", r"that is no codec=grid, give codec=queue"),
    ],
)
def test_a_setting_that_is_not_the_models_is_refused(tmp_path, settings, words):
    path, _ = saved(tmp_path, "MaskablePPO")
    with pytest.raises(TrimtabError, match=words):
        named(f"sb3:{path}{settings}").suits(5, 3, 6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (",codec=quoue", r"did you mean 'queue'"),
        (",place=bst", r"did you mean 'best'"),
        (",window=two", r"window=two; give a number from 1"),
        (",wndow=2", r"'wndow=2' is no setting; those of a model are"),
        (",place", r"'place' is no setting"),
    ],
)
def test_a_wrong_setting_is_one_sentence(tmp_path, settings, words):
    path, _ = saved(tmp_path, "MaskablePPO")
    for raised_by in (check, named):
        with pytest.raises(TrimtabError, match=words) as mistake:
            raised_by(f"sb3:{path}{settings}")
        assert "\n" not in str(mistake.value)


def test_a_file_that_is_no_model_says_what_it_lacks(tmp_path):
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("data", json.dumps({"a": 1}))
        archive.writestr("policy.pth", b"")
    (tmp_path / "text.zip").write_text("no zip at all")
    for name, words in (
        ("other.zip", "no model of Stable-Baselines3"),
        ("text.zip", "not a readable .zip"),
        ("none.zip", "no such file"),
    ):
        for raised_by in (check, named):
            with pytest.raises(TrimtabError, match=words) as mistake:
                raised_by(str(tmp_path / name))
            assert "\n" not in str(mistake.value)
    with pytest.raises(TrimtabError, match=r"give sb3:ppo\.zip"):
        named("sb3")


def test_a_model_of_another_environment_and_one_with_a_memory_are_refused(tmp_path):
    PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32).save(tmp_path / "pole.zip")
    with pytest.raises(TrimtabError, match="sees 4 numbers and has 2 actions; the grid codec"):
        named(str(tmp_path / "pole.zip")).suits(5, 3, 6)
    PPO("MlpPolicy", "Pendulum-v1", n_steps=64, batch_size=32).save(tmp_path / "swing.zip")
    with pytest.raises(TrimtabError, match=r"its actions are Box.*; ours are a number of choices"):
        named(str(tmp_path / "swing.zip"))
    RecurrentPPO("MultiInputLstmPolicy", env_of("Queue"), n_steps=64).save(tmp_path / "long.zip")
    with pytest.raises(TrimtabError, match="a recurrent model"):
        named(str(tmp_path / "long.zip"))


@pytest.mark.parametrize("lacking", ["sb3_contrib", "stable_baselines3"])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(tmp_path, monkeypatch, lacking):
    path, _ = saved(tmp_path, "MaskablePPO")
    monkeypatch.setitem(sys.modules, lacking, None)
    monkeypatch.delitem(sys.modules, f"{lacking}.common.save_util", raising=False)
    with pytest.raises(TrimtabError, match=rf"{lacking}, .*pip install 'trimtab\[sb3\]'"):
        check(f"sb3:{path}")
