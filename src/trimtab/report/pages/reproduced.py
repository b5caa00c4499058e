"""One self-contained HTML page that sets a paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import matplotlib
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from trimtab.files import write_whole
from trimtab.report.colours import colours
from trimtab.report.drawing import MOST_SERIES, STYLE, beside_in, blank, short, svg
from trimtab.report.markup import facts as listed
from trimtab.report.markup import figure, plain_table, shell, version

Curve = Sequence[tuple[float, float]]  # (load, mean completion time in s)
Section = tuple[str, str, Sequence[str], Sequence[Sequence[str]]]  # title, note, head, lines
DASHES = ("-", "--")  # where there are more policies than colours
STYLE_OF_CLAIMS = ".told td,.told th{text-align:left;white-space:normal;vertical-align:top}"


def write_reproduced(
    path: Path,
    *,
    title: str,
    facts: Mapping[str, str],
    curves: Mapping[str, Mapping[str, Curve]],
    sections: Sequence[Section],
    claims: Sequence[tuple[str, str, str]],
    frontiers: Mapping[str, Mapping[str, Curve]] | None = None,
    figures: Mapping[str, str] | None = None,
) -> None:
    """Write the page, whole or not at all. `curves` are by arm and policy, `frontiers` by scene;
    `figures` are the paper's own by title, as SVG.
    """
    parts = [
        f"<header><div><h1>{escape(title)}</h1>"
        f"{listed({key: escape(value) for key, value in facts.items()})}</div></header><main>",
    ]
    if claims:
        told = plain_table(("claim", "", "evidence"), claims)
        parts.append(f'<h2>Claims</h2><div class="told">{told}</div>')
    if curves:
        caption = "Means over the seeds, log scale. Intervals, paired by seed, are in the tables."
        parts += [
            "<h2>Completion time by load</h2>",
            figure(completion(curves), "Mean completion time by load", caption),
        ]
    if frontiers:
        caption = "A point a limit, means over the seeds: further left and lower is better."
        parts += [
            "<h2>Cost by harm</h2>",
            figure(by_harm(frontiers), "Cost by added harm", caption),
        ]
    for name, drawn in (figures or {}).items():
        parts += [f"<h2>{escape(name)}</h2>", figure(drawn, name, "")]
    parts.append("<h2>Tables</h2>")
    before = ""
    for name, note, head, lines in sections:
        told = f'<p class="faint">{escape(note)}</p>' if note and note != before else ""
        parts.append(f"<h3>{escape(name)}</h3>{told}{plain_table(head, lines)}")
        before = note
    parts.append(f"<footer>Made by trimtab {escape(version('trimtab'))}.</footer></main>")
    write_whole(path, shell(title, "\n".join(parts), STYLE_OF_CLAIMS))


def completion(curves: Mapping[str, Mapping[str, Curve]], name: str = "completion") -> str:
    """Mean completion time by load: a panel an arm, a line a policy, on one scale."""
    policies = list(dict.fromkeys(policy for lines in curves.values() for policy in lines))
    paint = colours(policies)
    with matplotlib.rc_context(STYLE):
        drawn, axes = blank(
            4.2, 1, len(curves), left_in=0.9, right_in=beside_in(policies), head_in=0.3, sharey=True
        )
        for ax, (arm, lines) in zip(axes[0], curves.items()):
            loads = sorted({point[0] for curve in lines.values() for point in curve})
            for policy, curve in lines.items():
                dash = DASHES[policies.index(policy) // MOST_SERIES % len(DASHES)]
                # even steps: 0.9 and 0.95 are as different to a queue as 0.5 and 0.7
                ax.plot([loads.index(load) for load, _ in curve], [jct_s for _, jct_s in curve],
                        dash, color=paint[policy], marker="o", markersize=3.5,
                        label=short(policy))  # fmt: skip
            ax.set_yscale("log")
            ax.set_title(f"{arm} estimates", fontsize=9.5)
            ax.set_xlabel("offered load")
            ax.set_xticks(range(len(loads)), [f"{load:g}" for load in loads])
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
            ax.yaxis.set_minor_locator(NullLocator())
        axes[0, 0].set_ylabel("mean completion time (s, log scale)")
        lines = {line.get_label(): line for ax in axes[0] for line in ax.get_lines()}
        axes[0, -1].legend(lines.values(), lines, loc="center left", bbox_to_anchor=(1.02, 0.5),
                           handlelength=2.4)  # fmt: skip
        return svg(drawn, name)


def by_harm(frontiers: Mapping[str, Mapping[str, Curve]], name: str = "by-harm") -> str:
    """Cost by added harm in %: a panel a scene, a line a policy through the limits tried."""
    policies = list(dict.fromkeys(policy for lines in frontiers.values() for policy in lines))
    paint = colours(policies)
    least = 0.05  # per cent: below it, the limit harms nobody
    with matplotlib.rc_context(STYLE):
        drawn, axes = blank(
            2.9 * len(frontiers),
            len(frontiers),
            1,
            left_in=0.9,
            right_in=beside_in(policies),
            head_in=0.3,
        )
        for ax, (scene, lines) in zip(axes[:, 0], frontiers.items()):
            for policy, curve in lines.items():
                dash = DASHES[policies.index(policy) // MOST_SERIES % len(DASHES)]
                ax.plot([max(harm, least) for harm, _ in curve], [cost for _, cost in curve],
                        dash, color=paint[policy], marker="o", markersize=3,
                        label=short(policy))  # fmt: skip
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_title(short(scene, 60), fontsize=9.5)
            ax.set_ylabel("cost (log scale)")
            ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.3g}"))
            ax.yaxis.set_minor_locator(NullLocator())
        axes[-1, 0].set_xlabel("added harm to services (%, log scale)")
        lines = {line.get_label(): line for ax in axes[:, 0] for line in ax.get_lines()}
        axes[0, 0].legend(lines.values(), lines, loc="upper left", bbox_to_anchor=(1.02, 1.0),
                          handlelength=2.4)  # fmt: skip
        return svg(drawn, name)
