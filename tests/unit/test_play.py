"""One way to run a policy: compiled where it offers that, else through the loop, all the same."""

import numpy as np
import pytest

from trimtab.core import Start
from trimtab.errors import PolicyError
from trimtab.play import by_loop, check_suits, play
from trimtab.policies import named
from trimtab.sim.world import Models
from trimtab.traces.scenes.scene import open_scene

MODELS = Models(startup_s=30.0, move_s=30.0)
SCENE = open_scene("adlro:load=0.9,jobs=30", seed=3)


class Oldest:
    """Starts the oldest job on the first node that is free."""

    def decide(self, snapshot):
        gpus = snapshot.free[:, list(SCENE.cluster.resources).index("gpu")]
        free, jobs = np.flatnonzero(gpus >= 1), snapshot.queue
        return [Start(int(job), (int(node),)) for job, node in zip(jobs[:1], free[:1])]


@pytest.mark.parametrize("name", ["sjf+fastest", "adlro", "adlro-rule"])
def test_compiled_and_through_the_loop_are_the_same_to_the_last_bit(name):
    whole = play(named(name), SCENE, MODELS)
    looped = by_loop(named(name), SCENE.workload, SCENE.cluster, SCENE.profile, MODELS)
    np.testing.assert_array_equal(whole.state["end_s"], looped.state["end_s"])
    np.testing.assert_array_equal(whole.totals, looped.totals)


@pytest.mark.parametrize("name", ["sjf+fastest", "adlro"])
def test_a_log_is_kept_where_it_is_asked_for(name):
    assert play(named(name), SCENE, MODELS).log is None
    assert len(play(named(name), SCENE, MODELS, log=True).log) >= 3 * len(SCENE.workload)


def test_a_policy_of_ones_own_plays_and_is_called_by_its_name_or_by_the_label():
    assert play(Oldest(), SCENE).policy == "Oldest"
    assert play(named("fcfs"), SCENE).policy == "fcfs"
    assert play(named("fcfs"), SCENE, label="mine").policy == "mine"


@pytest.mark.parametrize("policy", [named("sjf"), named("adlro"), Oldest()])
def test_progress_ends_with_all_jobs(policy):
    told = []
    play(policy, SCENE, MODELS, progress=told.append)
    assert told[-1] == len(SCENE.workload)


def test_a_policy_that_does_not_suit_a_scene_says_so_before_it_runs():
    class Small(Oldest):
        def suits(self, nodes, resources, kinds):
            raise PolicyError(f"for 4 nodes, and there are {nodes}; {resources} and {kinds}")

    with pytest.raises(PolicyError, match="there are 16; 3 and 3"):
        check_suits(Small(), SCENE)
    check_suits(Oldest(), SCENE)
