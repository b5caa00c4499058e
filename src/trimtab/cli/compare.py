"""`trimtab compare` and `trimtab policies`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from trimtab.cli.options import with_options
from trimtab.cli.shown import (
    JsonOption,
    ReportOption,
    bar,
    command_line,
    dropped_rows,
    out,
    say,
    write_json,
)
from trimtab.comparison import HOUR_S, Question
from trimtab.errors import TraceError, TrimtabError, UnknownName

app = typer.Typer()

OURS = {  # what the policies by name do; other packages' are listed with their place
    "mct": "minimum completion time: each job, oldest first, where it is expected to end first",
    "fluid": "routes job kinds over node kinds by a linear programme; preempts and steals",
    "slurm": "what Slurm does: multifactor priority with fair share, its main scheduler and its "
    "backfill, as the cluster's slurm section says",
    "gavel": "shares of time on node kinds by a linear programme over jobs, in rounds; preempts",
    "adlro": "learned: chooses pairs of job and node, stops and moves jobs (ADLRO); adlro:PATH "
    "takes a network that `trimtab train adlro` made",
    "adlro-rule": "the rule that guides adlro, without its network",
    "adlro-drift": "adlro that notices changed speeds and new kinds of job, and corrects them; "
    "adlro-drift:PATH takes the same networks",
    "dqn": "learned: a deep Q-network over nodes (ADLRO); none ships, dqn:PATH takes one that "
    "`trimtab train dqn` made",
    "hierarchy": "learned: batch jobs beside services by a load encoder, a manager of regions and "
    "workers; hierarchy+encoder@0.9 sets its limit, hierarchy:PATH takes what `trimtab train "
    "hierarchy` made",
    "hierarchy-online": "the same, whose calibration and limits learn on, a step a day",
    "hierarchy-no-encoder": "the same without load encoding; this and the next are its ablations",
    "hierarchy-no-manager": "the same without its manager",
    "hierarchy-no-compatibility": "the same without compatibility in its score",
    "packer": "learned: where on shared GPUs a pod goes; packer:PATH takes weights that `trimtab "
    "train packer` made",
    "rollout": "plays a few orders of the queue out, by run times guessed from each user's last "
    "jobs, and follows the best; rollout:budget_ms=5,objective=wait sets options",
    "rollout+easy": "the same with EASY backfilling",
    "deeprm": "learned: DeepRM (2016) starts one of ten waiting jobs or moves on; this and those "
    "below take an estimate, as in deeprm+p95@0.9, and deeprm:PATH+p95@0.9 what `trimtab train "
    "deeprm` made",
    "rjoub": "learned: Rjoub et al. (2021), a Q-network with a memory of the tasks just before",
    "islam": "learned: Islam et al. (2021) place executors one by one; the better of two agents",
    "islam-dqn": "its deep Q-network",
    "islam-reinforce": "its policy gradient",
    "cheng": "learned: Cheng et al. (2022), a Q-network by price, waiting and type of job",
    "rlscheduler": "learned: RLScheduler (SC'20) scores every waiting job alike",
    "belgacem": "learned: Belgacem et al. (2022), tables, an agent a region",
    "ghasemi": "learned: Ghasemi and Toroghi (2020), a table over levels of load",
    "sb3": "a model of Stable-Baselines3 that learned in our environments: sb3:ppo.zip",
}


@app.command(
    epilog="""
**Examples**

`trimtab compare` — six rules on a mixed GPU cluster

`trimtab compare fcfs+easy sjf+easy --trace log.swf.gz --seeds 1 --json -`

`trimtab compare sjf sjf+easy --trace lublin_256.swf --start 1981 --jobs 1024 --semantics
rlscheduler`

`trimtab compare fgd bestfit --trace pods.csv --cluster nodes.csv --order order.json`

`trimtab compare packer fgd --trace pods.csv --cluster nodes.csv --order drawn --first-seed 42
--seeds 10` — ten orders, as FGD's authors drew theirs

`trimtab compare packer fgd bestfit --trace openb` — drawn pods on openb's nodes, without a file

`trimtab compare sjf+easy+fastest las+best --seeds 10 --report report.html`

`trimtab compare fcfs sjf+best --trace PREPARED --load 0.9 --metrics uti,awt_s,ldi,tsr`

`trimtab compare sjf+fastest fcfs --trace PREPARED --cluster openb --gpu-jobs 0.2`

`trimtab compare fcfs sjf+fastest --seeds 5 --hyperscore fcfs`

`trimtab compare fluid mct --trace adlro:load=0.7,estimate=noisy,sizes=philly,jobs=1000`

`trimtab compare dqn:run/dqn.onnx adlro:mine adlro --trace adlro` — what `trimtab train` made: a
file, or its folder

`trimtab compare ./mine.py:MyPolicy package.module:Other run/dqn.onnx sb3:ppo.zip fcfs+easy` —
policies of yours by path

`trimtab compare fluid mct --trace adlro --cluster adlro:volta=32,turing=16,radeon=16`

`trimtab compare smallest-area+greedy+calm+p95 smallest-area+greedy+swift+peak --trace colocated
--at-harm 1,3 --seeds 3` — batch jobs beside services, at equal harm to these
"""
)
@with_options
def compare(
    question: Question,
    metrics: Annotated[
        str | None, typer.Option(help="Columns of the table, such as uti,awt_s,ldi,tsr.")
    ] = None,
    hyperscore: Annotated[
        str | None,
        typer.Option(help="Score each policy against this one: columns V and HyperScore."),
    ] = None,
    json_file: JsonOption = None,
    report: ReportOption = None,
) -> None:
    """Compare policies on a trace: a table, JSON for machines, an HTML report with plots."""
    from trimtab.compare import answers, as_json, metrics_of
    from trimtab.metrics import RECORDED

    check_times(question)
    if question.tune_on is not None and question.at_harm is None:
        raise TrimtabError("--tune-on: to add how much harm? Give --at-harm 0.3,1,3 with it")
    if question.at_harm is not None:
        from trimtab.cli.at_harm import compare_at_harm

        if metrics is not None or hyperscore is not None:
            raise TrimtabError("--at-harm has its own columns; leave --metrics, --hyperscore out")
        compare_at_harm(question, json_file, report)
        return
    keys = table_keys(metrics, hyperscore)
    question = with_reference(replace(question, log=report is not None), hyperscore)
    seeds, trace, cluster = question.seeds, question.trace, question.cluster
    results: list[Any] = []
    interrupted = False
    try:
        with bar("comparing", len(question.policies) * seeds) as step:

            def show(name: str, ended: int, jobs: int) -> None:
                step(f"{name} {ended / jobs:.0%}", 0)

            for result in answers(question, show):
                results.append(result)
                step(result.policy, int(result.policy != RECORDED))
    except KeyboardInterrupt:
        interrupted = True
    name = Path(trace).name if Path(trace).exists() else trace
    measured = metrics_of if hyperscore is None else scored(results, hyperscore)
    if json_file and (results or json_file == "-"):
        write_json(json_file, [as_json(result, name, measured) for result in results])
    if results:
        told = dropped_rows(results[0].workload.meta)
        if told:
            say(f"{name}{told}")
        for note in results[0].workload.meta.get("notes", ()) if json_file == "-" else ():
            say(f"{name}: {note}")
        if results[0].profile is not None and results[0].profile.guessed:
            say(
                f"{cluster}: no speed is given for {', '.join(results[0].profile.guessed)}; every "
                "job is taken to run at 1 there; add rates to the file's profile"
            )
    if results and json_file != "-":
        show_results(results, keys, measured)
    for line in against_the_record(results):
        say(f"{name}: {line}")
    if results and report is not None and results[0].semantics != "packing":
        from trimtab.report.compare.html import write_report

        write_report(
            report,
            results,
            title=f"{len(set(question.policies))} policies on {name}",
            command=command_line(),
            measured=measured,
        )
        say(f"report: {report}")
    if interrupted:
        say(
            f"stopped after {len(results)} of {len(question.policies) * seeds} runs; "
            "what is finished is above"
        )
        raise typer.Exit(130)


def against_the_record(results: Sequence[Any]) -> list[str]:
    """Whether the policies are far from what the log recorded, and what in it may be the reason."""
    from trimtab.metrics import RECORDED
    from trimtab.recorded import doubts, far_off

    recorded = next((result for result in results if result.policy == RECORDED), None)
    if recorded is None:
        return []
    ran = next((result for result in results if result.policy != RECORDED), recorded)
    some, all_of = len(recorded.workload), len(ran.workload)
    part = f"as recorded: of {some:,} of {all_of:,} jobs, the others have no start in the log"
    told = [part] if some < all_of else []
    far = far_off(
        recorded, [r for r in results if r.policy != RECORDED and r.seed == results[0].seed]
    )
    if far:
        told += [far, *(f"likely: {doubt}" for doubt in doubts(recorded))]
    return told


def table_keys(metrics: str | None, hyperscore: str | None = None) -> list[str] | None:
    """The metrics that the table shall show, checked before anything long begins."""
    from trimtab.report.compare.table import COLUMNS, ON_REQUEST, SCORES

    keys = [key.strip() for key in (metrics or "").split(",") if key.strip()]
    known = [*COLUMNS, *ON_REQUEST]
    for key in keys:
        if key not in known:
            raise TrimtabError(f"--metrics {key}: no such metric; known: {', '.join(known)}")
        if key in SCORES and hyperscore is None:
            raise TrimtabError(f"--metrics {key}: against what? Add --hyperscore REFERENCE")
    if keys and hyperscore is not None:
        keys += [key for key in SCORES if key not in keys]
    return keys or None


def check_times(question: Question) -> None:
    for option, value, low in (
        ("--startup-s", question.startup_s, 0.0),
        ("--move-s", question.move_s or 0.0, 0.0),
        ("--mttr-h", question.mttr_s / HOUR_S, 0.0),
        ("--mtbf-h", HOUR_S if question.mtbf_s is None else question.mtbf_s / HOUR_S, 0.01),
    ):
        if not value >= low:
            raise TrimtabError(f"{option} {value} is below {low:g}; give a larger number")


def with_reference(question: Question, reference: str | None) -> Question:
    """The question with the HyperScore's reference before its policies, where not among them."""
    from trimtab.compare import check_names, only_packs, packs

    policies, order = question.policies, question.order
    if reference is None:
        return question
    packers = [name for name in (*policies, reference) if only_packs(name)]
    if packers or packs(question):
        given = f"--order {order}" if order is not None else f"--trace {question.trace}"
        one = f"policy {packers[0]}" if packers else given
        raise TrimtabError(
            f"--hyperscore {reference}: {one} packs pods that never leave, which have no "
            "completion time or throughput to score; leave it or --hyperscore out"
        )
    if reference in policies:
        return question
    try:
        check_names(Question(policies=(reference,), semantics=question.semantics))
    except UnknownName as error:
        raise UnknownName(f"--hyperscore {reference}: {error}") from None
    say(f"--hyperscore {reference}: not among the policies, so it is run too")
    return replace(question, policies=(reference, *policies))


def scored(results: Sequence[Any], reference: str) -> Callable[[Any], Mapping[str, float]]:
    """What measures a result, with its V and HyperScore; says what V is made of."""
    from trimtab.compare import metrics_of
    from trimtab.metrics import RECORDED, mean_v, scores

    found: dict[str, dict[int, dict[str, float]]] = {}
    for result in [result for result in results if result.policy != RECORDED]:
        found.setdefault(result.policy, {})[result.seed] = metrics_of(result)
    if reference not in found:  # stopped before its first run was over
        return metrics_of
    try:
        standing = scores(found, reference)
    except TraceError as error:  # what has run is worth showing without a score
        say(f"no HyperScore: {error}")
        return metrics_of
    say(standing.sentence())
    for policy, by_seed in standing.v.items():
        v, low, high = mean_v(list(by_seed.values())) if by_seed else (0.0, None, None)
        if low is not None and policy != reference:
            say(f"  {policy}: V {v:.3f}, 95 % interval {low:.3f} to {high:.3f}")
    return lambda r: (
        found[r.policy][r.seed] | standing.of(r.policy, r.seed)
        if r.policy in found
        else metrics_of(r)
    )


def show_results(
    results: list[Any],
    keys: list[str] | None = None,
    measured: Callable[[Any], Mapping[str, float]] | None = None,
) -> None:
    """The table of a comparison on the terminal."""
    from trimtab.compare import metrics_of
    from trimtab.report.compare.table import as_rich, summary

    if results[0].semantics == "packing":
        table = Table(title="GPU packing")
        for column in ("policy", "seed", "GPU allocation", "fragmented", "placed", "dropped"):
            table.add_column(column, justify="left" if column == "policy" else "right")
        for result in results:
            m = metrics_of(result)
            table.add_row(
                result.policy,
                str(result.seed),
                f"{m['gpu_allocation']:.2%}",
                f"{m['gpu_fragmented']:.2%}",
                f"{m['placed']:.0f}",
                f"{m['dropped']:.0f}",
            )
        out.print(table)
        return
    work, cluster = results[0].workload, results[0].cluster
    seeds = sorted({result.seed for result in results})
    out.print(as_rich(summary(results, measured or metrics_of), keys=keys))
    lines = [
        f"{work.source}: {len(work):,} jobs on {machine_size(cluster)}; "
        f"seeds {seeds[0]}..{seeds[-1]}; {command_line()}",
        *work.meta.get("notes", ()),
        *(f"{result.policy}: {result.footnote}" for result in results if result.footnote),
    ]
    for line in lines:
        out.print(line, highlight=False, soft_wrap=True, markup=False, style="dim")


def machine_size(cluster: Any) -> str:
    """How large a cluster is: a pool by its units."""
    if cluster.kinds == ("pool",):
        unit = {"cpu": "processors"}.get(cluster.resources[0], f"{cluster.resources[0]}s")
        return f"one pool of {cluster.capacity[0, 0]:,.0f} {unit}"
    return f"{len(cluster):,} nodes ({', '.join(dict.fromkeys(cluster.kinds))})"


@app.command(epilog="**Examples**\n\n`trimtab policies`\n\n`trimtab policies --json -`")
def policies(json_file: JsonOption = None) -> None:
    """List what there is: orders, backfills, places, packers, and policies of other packages."""
    from trimtab.compare import PACKERS
    from trimtab.policies import BY_NAME, plugged_in
    from trimtab.rules.names import ABOUT, BACKFILLS, ESTIMATES, FEEDBACK, ORDERS, PLACES, RELIEVE

    groups = {
        "order": {name: ABOUT[name] for name in ORDERS},
        "backfill": {name: ABOUT[name] for name in BACKFILLS},
        "place": {name: ABOUT[name] for name in PLACES},
        "estimate": {name: ABOUT[name] for name in (*ESTIMATES, FEEDBACK, RELIEVE)},
        "packing": {
            name: "fills an openb cluster in a given order; see compare --order" for name in PACKERS
        },
        "policy": {name: OURS.get(name, place) for name, place in BY_NAME.items()} | plugged_in(),
    }
    if json_file:
        write_json(json_file, groups)
        return
    table = Table(title="order[+backfill][+place][+estimate[@limit]], such as sjf+easy+fastest")
    for column in ("part", "name", "what it does"):
        table.add_column(column)
    for part, names in groups.items():
        for name, about in names.items():
            table.add_row(part, name, about)
    out.print(table)
