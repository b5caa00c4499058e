"""The learned scheduler for mixed GPUs: starts, stops and moves jobs, one pair at a time.

named("adlro")               the shipped network over the guiding rule
named("adlro:run")           the network that `trimtab train adlro --out run` left there
named("adlro-rule")          the guiding rule alone

Full mode of ADLRO (sec. 3.3 and 4): Q of every (job, GPU) pair and of waiting, masked to what is
possible. Differs: docs/policies/adlro.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.arrays import Array
from trimtab.core import Cluster, Decision, Profile, Snapshot, Stop, Wait, Workload
from trimtab.errors import PolicyError
from trimtab.files import whole
from trimtab.policies.adlro.choice import choose_seen, decisions_of
from trimtab.policies.adlro.net import GUIDE, Net, net_of
from trimtab.policies.adlro.pairs import CELL, FEATURES, MOST, WIDTH
from trimtab.policies.networks import file_at, opened, remedy
from trimtab.rules.seen import world_of

if TYPE_CHECKING:
    from trimtab.sim.whole import Whole
    from trimtab.sim.world import Models

SHIPPED = Path(__file__).with_name("adlro.onnx")
OPSET = 17  # of ONNX: any runtime of the last years knows it


class AdlroPolicy:
    """Takes the pair that saves most by its network; the guiding rule's unless that saves more by
    a margin. Jobs of several instances are started, but never stopped or moved.
    """

    def __init__(self, path: str | Path = SHIPPED, seed: int = 0) -> None:
        self.name = "adlro"
        self.net = read_net(path)
        self._rows, self._cells = np.zeros((MOST, WIDTH), np.float32), np.zeros(MOST, CELL)

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """One decision, and a wish to be asked again at once: the next one sees what it changed."""
        action = choose_seen(world_of(snapshot, 1), self.net, self._rows, self._cells)
        if action < 0:
            return []
        decisions = decisions_of(snapshot, self._cells[action])
        if isinstance(decisions[0], Stop):
            return decisions  # the loop looks again after a stop
        return [*decisions, Wait(snapshot.now_s)]

    def whole(
        self,
        workload: Workload,
        cluster: Cluster,
        profile: Profile,
        models: Models,
        *,
        log: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Whole | None:
        """A whole trace in compiled code, which keeps no log; see `play`."""
        if log:
            return None
        from trimtab.policies.adlro.branches import whole  # a live loop needs no simulator

        done = whole(workload, cluster, profile, models, self.net)
        if progress:
            progress(len(workload))
        return done


class AdlroRule(AdlroPolicy):
    """The rule alone: shortest completion first, stops for shorter jobs, moves to faster nodes."""

    def __init__(self, seed: int = 0) -> None:
        self.name = "adlro-rule"
        self.net = GUIDE
        self._rows, self._cells = np.zeros((MOST, WIDTH), np.float32), np.zeros(MOST, CELL)


def read_net(path: str | Path) -> Net:
    """The network of an ONNX file that `write_net` made: its weights are outputs of the graph."""
    path = file_at(path, "adlro")
    session, told = opened(path, "adlro")
    if told.get("features") != ",".join(FEATURES):
        raise PolicyError(f"{path}: made for other features than this version's; {remedy('adlro')}")
    names = [output.name for output in session.get_outputs()][1:]
    parts = session.run(names, {"rows": np.zeros((1, WIDTH), np.float32)})
    layers = list(zip(parts[::2], parts[1::2]))
    return net_of(layers, float(told["margin"]), float(told["reach"]))


def write_net(
    path: str | Path, layers: list[tuple[Array, Array]], margin: float, reach: float, **told: Any
) -> None:
    """Write layers (matrix (inputs, outputs), biases) with ReLU between them as ONNX.

    Input `rows` (n, 32), output `worth` (n, 1): what each pair saves against waiting, over the mean
    time that the jobs in the system have left. The weights are outputs too, so that compiled code
    can have them.
    """
    from onnx import TensorProto, checker, helper, numpy_helper, save_model

    nodes, kept, shown = [], [], []
    last = "rows"
    for i, (matrix, biases) in enumerate(layers):
        for name, part in ((f"w{i}", matrix), (f"b{i}", biases)):
            kept.append(numpy_helper.from_array(part.astype(np.float32), f"{name}_"))
            nodes.append(helper.make_node("Identity", [f"{name}_"], [name]))
            shown.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, part.shape))
        top = i == len(layers) - 1
        made = "worth" if top else f"sum{i}"
        nodes.append(helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [made]))
        if not top:
            nodes.append(helper.make_node("Relu", [made], [f"layer{i}"]))
            last = f"layer{i}"
    rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", WIDTH])
    worth = helper.make_tensor_value_info("worth", TensorProto.FLOAT, ["n", 1])
    graph = helper.make_graph(nodes, "adlro", [rows], [worth, *shown], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    about = {"features": ",".join(FEATURES), "margin": repr(float(margin)), "reach": repr(reach)}
    about |= told
    helper.set_model_props(model, {name: str(value) for name, value in about.items()})
    checker.check_model(model)
    with whole(path) as place:
        save_model(model, str(place))
