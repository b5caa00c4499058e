"""`trimtab plan watch`: options, sensors, state, files of a proposal and the user's command."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.cli import outputs
from trimtab.cli.plan import plan_text
from trimtab.cli.plan.watch_text import HOUR_S, Readings
from trimtab.cli.shown import named, say, write_json
from trimtab.errors import PlanError

if TYPE_CHECKING:
    from trimtab.llm.nouns import Model, Question
    from trimtab.llm.plan.options import TrainOptions
    from trimtab.llm.spec.pool import Pool
    from trimtab.llm.watch.conditions import Raw, Sensors
    from trimtab.llm.watch.replan import Market, Offer
    from trimtab.llm.watch.watch_state import State

STATE = Path("trimtab-watch.json")
LIVE = "How to watch"  # heading of --help


def _live(text: str, name: str = "", **more: Any) -> dict[str, Any]:
    named = {"option": name} if name else {}
    return {"help": text, "panel": LIVE, **named, **more}


@dataclass(frozen=True)
class Watching:
    """How to watch: what `trimtab plan watch` can be told beside the question."""

    every_s: float = field(default=60.0, metadata=_live("Seconds between readings.", "--every"))
    horizon_hours: float = field(default=6.0, metadata=_live("That a new plan would run for."))
    margin: float = field(default=1.5, metadata=_live("Least saving / cost of the change."))
    patience: int = field(default=3, metadata=_live("Readings in a row that must agree."))
    dwell_s: float = field(
        default=1800.0,
        metadata=_live("After a change until the next.", "--dwell-minutes", times=60.0),
    )
    restart_s: float = field(
        default=120.0,
        metadata=_live("That a restart takes without data.", "--restart-minutes", times=60.0),
    )
    log: Path | None = field(default=None, metadata=_live("The job's log: step times."))
    state: Path = field(
        default=STATE, metadata=_live("Where what is learned is kept.", writes=outputs.STATE)
    )
    prometheus: str = field(default="", metadata=_live("Address of a server to read."))
    query: tuple[str, ...] = field(
        default=(), metadata=_live("cpu=, link=, memory=, gpu= or taken=PROMQL.")
    )
    job: str = field(default="", metadata=_live("The job's PID, or a file with it."))
    current: Path | None = field(default=None, metadata=_live("The plan that runs, by --json."))
    apply: str = field(default="", metadata=_live("Command that changes the plan; none: dry run."))
    apply_timeout_s: float = 1800.0
    folder: Path | None = field(
        default=None,
        metadata=_live(
            "Folder of a proposal; default: beside the state.", "--out", writes=outputs.FOLDER
        ),
    )
    rounds: int = field(default=0, metadata=_live("Readings; 0 = until Ctrl-C."))

    def plan_folder(self) -> Path:
        """Where proposals are written."""
        return self.folder or self.state.with_name(f"{self.state.stem}-plan")


def watch_plan(
    model: Model,
    shares: Pool,
    options: TrainOptions,
    watching: Watching,
    json_file: str | None = None,
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Watch a running job and propose a better plan when one pays; `options` are the question's."""
    from trimtab.llm.watch.replan import Rules, market
    from trimtab.llm.watch.step_log import StepLog
    from trimtab.llm.watch.watch import Watched, watch

    w, path, folder = watching, watching.state, watching.plan_folder()
    _check(w)
    fresh = w.current is None and not path.exists()
    question, kept = begun(model, shares, options, path, w.current)
    sensors, listed = _sensors(w, clock), market(question)
    rules = Rules(w.horizon_hours * HOUR_S, w.margin, w.patience, w.dwell_s, restart_s=w.restart_s)
    log = StepLog(w.log, kept.read) if w.log else None
    run = partial(_applied, w.apply, w.apply_timeout_s, folder, listed) if w.apply else None
    _save(path, question, kept)
    shown = Readings(json_file, partial(written, folder, listed), folder)
    shown.begin(question, kept, path, _notes(w, fresh))
    try:
        with shown:
            watch(
                Watched(listed, rules, sensors, log, run),
                kept,
                every_s=w.every_s,
                rounds=w.rounds,
                emit=shown.emit,
                save=partial(_saved, path, question),
                clock=clock,
                sleep=sleep,
            )
    except KeyboardInterrupt:
        say(f"stopped watching; the job goes on, and {path} holds what was learned")


def _check(w: Watching) -> None:
    above = {"every": w.every_s, "horizon-hours": w.horizon_hours, "margin": w.margin}
    for name, value in above.items():
        if not 0 < value < math.inf:
            raise PlanError(f"--{name} {value:g} is not above 0; give a number such as 60")
    for name, count in {"dwell": w.dwell_s, "rounds": w.rounds, "patience": w.patience}.items():
        if not 0 <= count < math.inf:
            raise PlanError(f"--{name} {count:g} is below 0; give 0 or more")
    if w.log is not None and w.log.is_dir():
        raise PlanError(f"--log {w.log} is a folder; give the file that the job writes to")


def begun(
    model: Model, shares: Pool, options: TrainOptions, path: Path, current: Path | None
) -> tuple[Question, State]:
    """The question of the plan that runs, and the state: as saved, or new."""
    from trimtab.llm.plan.planner import planned
    from trimtab.llm.plan.question import question_of
    from trimtab.llm.watch.watch_state import State, load, plan_row

    if len(shares) > 1:
        raise PlanError(
            f"a job is watched on one kind of GPU, --gpus has {len(shares)}; give one kind,"
            " such as 64xH100"
        )
    fields = _first_plan(current) if current else None
    if fields is not None:
        # what the user leaves open is as the running plan has it
        for name in ("seq", "global_batch", "precision", "framework"):
            if name in fields and not getattr(options, name):
                options = replace(options, **{name: fields[name]})
    question = question_of(model, shares[0].gpu, shares[0].gpus, options)
    kept = load(path, question)
    if fields is not None:
        row = plan_row(question, fields, str(current))
        kept = State(row) if kept is None else _moved(kept, row)
    kept = kept or State(planned(question, 1).cases[0])
    # a running job cannot change its framework: another one reads no checkpoint of it
    return replace(question, frameworks=(int(kept.current["framework"]),)), kept


def _first_plan(path: Path) -> dict[str, Any]:
    """The first plan of what `trimtab plan --json` wrote."""
    try:
        row = dict(json.loads(path.read_text(encoding="utf-8"))["plans"][0])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as problem:
        raise PlanError(
            f"--current {path}: holds no plan ({problem!r}); give what `trimtab plan --json` writes"
        ) from None
    if "stage_layers" in row:
        raise PlanError(
            f"--current {path}: is a plan over several kinds of GPU, which watching does not"
            " follow; give one of a single kind"
        )
    return row


def _moved(kept: State, row: Any) -> State:
    """The state with the plan that the user says runs."""
    if kept.current != row:
        kept.changed(row, kept.patience)
    return kept


def _sensors(w: Watching, clock: Callable[[], float]) -> Sensors:
    """The sensors that were asked for; a server that answers nothing at first is a mistake."""
    from trimtab.llm.watch.conditions import Host, Sensors, chosen_queries, prometheus_read
    from trimtab.load.prometheus import Server, check_address

    host = Host(w.job)
    if not w.prometheus:
        if w.query:
            raise PlanError("--query asks a Prometheus server; give --prometheus as well")
        return Sensors(host.read, say)
    check_address(w.prometheus)
    server = Server(w.prometheus.rstrip("/"))
    queries = chosen_queries(dict(named("--query", text, "cpu='...'") for text in w.query))
    window_s = max(120.0, w.every_s)
    first = prometheus_read(server, queries, clock(), window_s)
    wanted = sum(bool(text) for text in queries.values())
    if len(first.faults) == wanted:
        raise PlanError(next(iter(first.faults.values())))

    def read(now_s: float) -> Raw:
        seen, own = prometheus_read(server, queries, now_s, window_s), host.read_job(now_s)
        # the job's processes here stand for those on its other machines
        taken = own.taken if math.isnan(seen.taken) else seen.taken
        faults = {**own.faults, **seen.faults}
        return seen._replace(own_cpu=own.own_cpu, taken=taken, faults=faults)

    return Sensors(read, say)


def _notes(w: Watching, fresh: bool) -> list[str]:
    """What is assumed for want of an option."""
    notes = []
    if fresh:
        notes.append("without --current: the best plan is taken for the one that runs")
    if not w.job:
        notes.append("without --job: the job's CPU use counts as others', and their memory as 0")
    if w.log is None:
        notes.append("without --log: no step times are seen, the cost model stays as it is")
    if not w.prometheus:
        notes.append("without --prometheus: this machine stands for all of the job's")
    if not w.apply:
        notes.append("without --apply: plans are proposed and written, nothing is run")
    return notes


def _save(path: Path, question: Question, state: State) -> None:
    from trimtab.llm.watch.watch_state import save

    try:
        save(path, question, state)
    except OSError as problem:
        why = problem.strerror or problem
        raise PlanError(f"--state {path}: cannot be written ({why}); give another") from None


def _saved(path: Path, question: Question, state: State) -> None:
    """Save, and go on watching where that fails."""
    try:
        _save(path, question, state)
    except PlanError as problem:
        say(f"not saved: {problem}")


def _applied(command: str, timeout_s: float, folder: Path, listed: Market, offer: Offer) -> int:
    """Write the plan and its files, run the user's command, and give its exit code."""
    from trimtab.llm.watch.watch_apply import run_command

    try:
        plan, _ = written(folder, listed, offer)
        say(f"running {command}")
        return run_command(command, folder, plan, timeout_s)
    except OSError as problem:
        say(f"{folder}: {problem}")
        return 1


def written(folder: Path, listed: Market, offer: Offer) -> tuple[Path, list[str]]:
    """Put the offered plan and its launcher's files into a folder; the plan's path, and notes."""
    from trimtab.llm.exports import files
    from trimtab.llm.plan.plan_rows import plan_of
    from trimtab.llm.watch.watch import proposal
    from trimtab.llm.watch.watch_state import answer_of

    question, notes = listed.question, []
    plan = plan_of(answer_of(question, offer.plan))
    try:
        launch = files(plan.framework, question.model, plan, question.gpu)
    except PlanError as problem:
        launch = {}
        notes.append(f"no launch script: {problem}")
    folder.mkdir(parents=True, exist_ok=True)
    if launch:
        plan_text.write_files(folder, launch)
    answer: dict[str, Any] = {"model": question.model.name, "mode": "train", "seq": question.seq}
    answer |= {"global_batch": question.global_batch, "plans": [proposal(listed, offer)]}
    path = folder / "plan.json"
    write_json(str(path), {**answer, "launch": launch, "notes": notes})
    return path, notes
