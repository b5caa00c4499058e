"""A training job on a cluster with made-up neighbours and a made-up clock, watched for hours."""

import json

import numpy as np

from trimtab.llm.plan.planner import planned
from trimtab.llm.plan.question import question_of
from trimtab.llm.spec.specs import gpu, model
from trimtab.llm.watch.conditions import Raw, Sensors
from trimtab.llm.watch.correction import same
from trimtab.llm.watch.replan import Rules, market, predicted_s
from trimtab.llm.watch.step_log import StepLog
from trimtab.llm.watch.watch import Watched, watch
from trimtab.llm.watch.watch_state import State

QUESTION = question_of(model("llama-3-8b"), gpu("H100"), 16, framework="megatron")
MARKET = market(QUESTION)
BEST = planned(QUESTION, 1).cases[0]
RULES = Rules()
STEPS = 4  # a reading
NOISE = 0.01


def calm(time_s):
    """Nobody else on the cluster."""
    return Raw(cpu=0.0, own_cpu=0.0, link=0.0, taken=0.0)


def as_modelled(row, time_s):
    """True step time / the cost model's."""
    return 1.0


def is_plan(row, plan):
    return bool(same(np.asarray(row).reshape(1), plan)[0])


class Play:
    """The job makes STEPS a reading, of which it writes; `records` are what the watch said."""

    def __init__(self, folder, *, raw=calm, factor=as_modelled, rules=RULES, state=None):
        self.raw, self.factor, self.rules = raw, factor, rules
        self.path = folder / "train.log"
        self.state = state or State(BEST)
        self.now_s = self.start_s = 1e6 if state is None else state.conditions.time_s
        self.records, self.saved, self.warnings, self.changes = [], 0, [], []
        self.rng = np.random.default_rng(7)
        self.log = StepLog(self.path, self.state.read)
        self.written = 0

    def clock(self):
        return self.now_s

    def sleep(self, seconds):
        """Time passes and the job writes the steps it made."""
        self.now_s += seconds
        sensors = Sensors(lambda now_s: self.raw(now_s), self.warnings.append)
        true_s = predicted_s(self.state.current, sensors.conditions(self.now_s))
        with self.path.open("a") as file:
            for _ in range(STEPS):
                self.written += 1
                factor = self.factor(self.state.current, self.now_s)
                step_s = true_s * factor * np.exp(NOISE * self.rng.standard_normal())
                print(json.dumps({"step": self.written, "step_s": step_s}), file=file)

    def apply(self, offer):
        """The user's command: it takes two minutes and works."""
        self.now_s += 120.0
        self.changes.append((self.now_s, offer.plan))
        return 0

    def save(self, state):
        self.saved += 1

    def run(self, rounds, apply=None):
        """Watch for so many minutes."""
        sensors = Sensors(lambda now_s: self.raw(now_s), self.warnings.append)
        watch(
            Watched(MARKET, self.rules, sensors, self.log, apply),
            self.state,
            every_s=60.0,
            emit=lambda record, offer: self.records.append(record),
            save=self.save,
            clock=self.clock,
            sleep=self.sleep,
            rounds=rounds,
        )
        return self

    def actions(self):
        return [record["action"] for record in self.records]
