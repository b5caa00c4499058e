"""What actions of the parallelism world cost, and which of them exist."""

import numpy as np
import pytest

from trimtab.errors import PlanError
from trimtab.llm.world.world_tables import ACTIONS, FREE_LINK, SURE, TAKEN_MEMORY, reshard_s, tables

AT = {name: ACTIONS.index(name) for name in ACTIONS}


def test_one_gpu_is_one_action_and_hybrid_needs_four():
    legal = tables().legal.any(axis=0)
    missing = {ACTIONS[a] for a in np.flatnonzero(~legal)}
    assert missing == {(1, "model"), (1, "hybrid"), (2, "hybrid")}


def test_each_action_is_a_plan_of_its_kind_on_its_gpus():
    t = tables()
    for action, (gpus, kind) in enumerate(ACTIONS):
        for row in t.plan[:, :, t.legal[:, action], action].ravel():
            assert row["tp"] * row["pp"] * row["dp"] == row["gpus"] == gpus
            split, copies = row["tp"] * row["pp"] > 1, row["dp"] > 1
            assert kind == ("hybrid" if split and copies else "model" if split else "data")


def test_an_action_keeps_its_layout_in_every_condition():
    t = tables()
    for action in np.flatnonzero(t.legal.any(axis=0)):
        rows = t.plan[:, :, t.legal[:, action], action].ravel()
        for field in ("tp", "pp", "dp", "zero"):
            assert len(np.unique(rows[field])) == 1


def test_a_busy_host_and_a_congested_network_never_make_a_plan_faster():
    t = tables()
    legal = np.broadcast_to(t.legal, t.step_s.shape)
    by_cpu, by_link = np.diff(t.step_s, axis=0), np.diff(t.step_s, axis=1)
    assert by_cpu[legal[1:]].min() >= -1e-12 and by_cpu[legal[1:]].max() > 0
    assert by_link[legal[:, 1:]].min() >= -1e-12 and by_link[legal[:, 1:]].max() > 0


def test_congestion_slows_only_what_leaves_the_node():
    t = tables()
    inside = t.gpus <= t.plan["per_node"].flat[0]
    by_link = t.step_s[:, -1] - t.step_s[:, 0]
    assert np.allclose(by_link[:, :, inside & t.legal.all(axis=0)], 0.0)
    assert (by_link[:, 0, AT[16, "data"]] > 0).all()


def test_a_plan_is_sure_to_fit_what_is_free_now_and_may_fail_when_neighbours_come():
    t = tables()
    memory = np.arange(len(TAKEN_MEMORY))
    now = t.fails[:, :, memory, memory]  # (C, B, M, A)
    legal = np.broadcast_to(t.legal, now.shape)
    assert now[legal].max() <= 1.0 - SURE
    later = t.fails[:, :, 0, -1]  # (C, B, A)
    assert later[..., t.legal[0]].max() > 0.5
    assert later[..., t.legal[0]].min() < 0.01


def test_changing_costs_the_restart_and_the_checkpoint_over_the_links():
    t = tables()
    calm, busy = reshard_s(t, 1.0, 100.0), reshard_s(t, FREE_LINK[-1], 100.0)
    assert (np.diag(calm[:-1]) == 0).all()
    one, two = AT[1, "data"], AT[2, "data"]
    moved_s = t.state_b / t.node_link_bps
    assert calm[one, two] == pytest.approx(100.0 + moved_s / 1 + moved_s / 2)
    assert calm[-1, one] == pytest.approx(100.0 + moved_s)
    assert busy[one, two] > calm[one, two]


def test_a_model_that_fits_nowhere_is_refused():
    with pytest.raises(PlanError, match="fits on no 16 or fewer A100-SXM-40GB; take a smaller"):
        tables("llama-3.1-405b", "A100-SXM-40GB")
