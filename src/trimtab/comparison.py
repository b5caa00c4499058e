"""What to compare on what: the options of `trimtab compare`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DEMO = ("fcfs", "sjf", "fcfs+easy", "sjf+easy+best", "wfp3+easy+fastest", "las+easy+fastest")
HOUR_S = 3600.0


def _option(default: Any, help: str, **more: Any) -> Any:
    return field(default=default, metadata={"help": help, **more})


@dataclass(frozen=True)
class Question:
    """The defaults are the demonstration."""

    policies: tuple[str, ...] = _option(
        DEMO, "Names; `trimtab policies` lists them.", argument=True
    )
    trace: str = _option(
        "mixed-gpu", "A trace file, or a generator with settings such as adlro:load=0.7."
    )
    cluster: str | None = _option(
        None, "YAML file, openb node list, or preset such as adlro:volta=32."
    )
    seeds: int = _option(1, "How many seeds, from --first-seed on.")
    first_seed: int = _option(0, "The first of them.")
    start: int = _option(0, "First row of a trace file.")
    jobs: int | None = _option(None, "How many rows; for a generator, how many jobs.")
    semantics: str = _option("easy", "easy: ours, textbook EASY; rlscheduler: as in SC'20.")
    estimate: str = _option("requested", "requested: as users asked; actual: an oracle.")
    order: str | None = _option(  # of arrival: pack instead of replaying time
        None, "Pack pods: JSON with pod_order and node_prefix, or drawn: as FGD's authors do."
    )
    startup_s: float = _option(0.0, "Seconds before a run makes progress.")
    move_s: float | None = _option(
        None, "Seconds that a move takes; --startup-s unless given, and no less without migration."
    )
    live_migration: bool = _option(False, "Moves lose nothing; else each is a stop and a start.")
    mtbf_s: float | None = _option(  # None = nothing fails
        None, "Mean hours between failures of a node.", option="--mtbf-h", times=HOUR_S
    )
    mttr_s: float = _option(HOUR_S, "Mean hours to repair.", option="--mttr-h", times=HOUR_S)
    load: float | None = _option(
        None, "Offered load: nodes are cut away, or a pool's arrivals stretched, until it is met."
    )
    nodes: str | None = _option(
        None, "whole or shared: what jobs of an SWF log take; by the log where not given."
    )
    machine: str | None = _option(
        None, "Of an SWF log, in place of its header's: nodes=151,procs=2004,mem-gb=48."
    )
    gpu_jobs: float = _option(0.0, "Share of the jobs that become GPU work of Gavel's types.")
    lenient: bool = _option(False, "Drop bad rows, however many, and jobs that fit no node.")
    strict: bool = _option(False, "Refuse a trace with a bad row instead of dropping the row.")
    at_harm: str | None = _option(
        None, "Harm to services in percent, such as 0.3,1,3: each policy at the limit that adds it."
    )
    tune_on: str | None = _option(
        None, "With --at-harm: find the limits on this trace, as colocated:split=train."
    )
    log: bool = False  # keep every event, for reports
