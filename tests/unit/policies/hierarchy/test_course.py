"""A run that stops at every look: what ships serves a cluster far larger than it was trained on."""

import numpy as np

from trimtab.policies.hierarchy.course import Course
from trimtab.policies.hierarchy.manager import read_manager
from trimtab.policies.hierarchy.stage import Stage
from trimtab.policies.hierarchy.steering import Steering
from trimtab.policies.hierarchy.weights import read_orders
from trimtab.sim.world import Models, fitted
from trimtab.traces.scenes.scene import open_scene

MACHINES = 4000


def booked(world):
    """(N, R) what all that runs has of each node, counted anew."""
    made, pieces = np.zeros_like(world.free[0]), world.pieces[0]
    for run in world.runs[0][world.runs[0]["job"] >= 0]:
        at = int(run["piece"])
        while at >= 0:
            made[pieces[at]["node"]] += world.demand[0, run["job"]] * pieces[at]["count"]
            at = int(pieces[at]["next"])
    return made


def test_shipped_weights_place_on_four_thousand_machines_by_the_index_and_overbook_none():
    scene = open_scene(f"colocated:machines={MACHINES},regions=8,span_s=60", seed=2)
    stage = Stage(scene, *fitted(scene.workload, scene.cluster), Models())
    orders, memory = read_orders(), scene.cluster.resources.index("mem_gb")
    steering = Steering(orders, read_manager(), every_s=30.0, clock=lambda: 0.0)
    course = Course(stage, stage.world(orders), steering)
    for _ in range(3):
        course.go()
        assert (course.world.tree_seen >= 0).any()  # the index was asked since the last look
    world = course.world
    left = world.capacity[0, :, memory] - booked(world)[:, memory]
    assert (left >= 0).all() and np.array_equal(left, world.free[0, :, memory])
    assert (world.state[0]["start_s"][course.services :] > 0).sum() > 1000
    assert world.totals[0]["refused"] == 0 and (world.limit[0] == orders.limit).all()
    assert all(look.guard == "" for look in steering.looks)
