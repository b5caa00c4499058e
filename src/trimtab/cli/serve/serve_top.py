"""`trimtab serve top`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import typer
from rich.box import SIMPLE
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trimtab.cli.shown import JsonOption, out, say, write_json
from trimtab.errors import ServeError

EPILOG = """
**Examples**

`trimtab serve top` — the fleet on this machine, until Ctrl-C

`trimtab serve top http://front:8000 --every 5`

`trimtab serve top --once` — one picture, for a pipe or a log

`trimtab serve top --once --json -`
"""
URL = "http://127.0.0.1:8000"
PREFIX = "trimtab_serve_"
PATIENCE_S = 5.0  # for one answer
BAR = 8  # characters
LATE = {"refused", "late", "failed", "unavailable", "invalid", "cancelled"}


class Scrape(NamedTuple):
    """The metrics of one moment: by name, by their labels."""

    at_s: float
    values: dict[str, dict[tuple[tuple[str, str], ...], float]]

    def one(self, name: str, **labels: str) -> float:
        """The sum of the values that have these labels; 0 where there is none."""
        wanted = set(labels.items())
        return sum(
            value for key, value in self.values.get(PREFIX + name, {}).items() if wanted <= set(key)
        )

    def labelled(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """(labels, value) of every sample."""
        for key, value in self.values.get(PREFIX + name, {}).items():
            yield dict(key), value


def top(
    url: Annotated[str, typer.Argument(help="Where the fleet answers HTTP.")] = URL,
    every: Annotated[float, typer.Option(help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one picture and end.")] = False,
    json_file: JsonOption = None,
) -> None:
    """Watch a running fleet: rates, latencies, queue, widths, and a line a server."""
    if not every > 0:
        raise ServeError(f"--every {every}: give seconds above 0")
    address = metrics_address(url)
    scrape = looked(address)
    if json_file:
        write_json(json_file, summary(scrape, None))
    if once or json_file:
        if json_file != "-":
            out.print(picture(summary(scrape, None)))
        return
    watched(address, scrape, every)


def metrics_address(url: str) -> str:
    """The address of the metrics, whatever of it was given."""
    if "//" not in url:
        url = f"http://{url}"
    if not url.startswith(("http://", "https://")):
        raise ServeError(f"{url!r} is no HTTP address; give one such as {URL}")
    url = url.rstrip("/")
    return url if url.endswith("/metrics") else f"{url}/metrics"


def looked(address: str) -> Scrape:
    """The metrics now."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        with urlopen(address, timeout=PATIENCE_S) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
    except (OSError, ValueError) as problem:
        reason = problem.reason if isinstance(problem, URLError) else problem
        raise ServeError(
            f"{address}: no fleet answers ({reason}); start one with `trimtab serve`, or give the "
            "URL of one"
        ) from None
    values: dict[str, Any] = {}
    for family in families:
        for sample in family.samples:
            values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    if not any(name.startswith(PREFIX) for name in values):
        raise ServeError(f"{address}: answers, but is no Trimtab fleet; give the fleet's URL")
    return Scrape(time.monotonic(), values)


def watched(address: str, scrape: Scrape, every_s: float) -> None:
    """Draw until Ctrl-C. A fleet that stops answering stays on the screen as it was last seen."""
    before, note = None, ""
    try:
        with Live(console=out, screen=out.is_terminal, auto_refresh=False) as live:
            while True:
                live.update(picture(summary(scrape, before), note), refresh=True)
                time.sleep(every_s)
                try:
                    before, scrape, note = scrape, looked(address), ""
                except ServeError as lost:
                    note = str(lost)
    except KeyboardInterrupt:
        say("stopped watching; the fleet goes on")


def summary(scrape: Scrape, before: Scrape | None) -> dict[str, Any]:
    """What is shown, as plain numbers. Rates are between two looks, or the fleet's own at one."""
    answered = scrape.one("requests_total", outcome="answered")
    rows = scrape.one("answered_rows_total")
    router = next((labels for labels, _ in scrape.labelled("router_info")), {})
    ended = {labels["outcome"]: int(n) for labels, n in scrape.labelled("requests_total")}
    return {
        "model": router.get("model", ""),
        "router": router.get("router", ""),
        "router_problem": router.get("problem", ""),
        "ready": bool(scrape.one("ready")),
        "draining": bool(scrape.one("draining")),
        "uptime_s": scrape.one("uptime_seconds"),
        "objective_s": scrape.one("objective_seconds"),
        "come_hz": rate(scrape, before, "arrived_total", scrape.one("arrivals_per_second")),
        "done_hz": rate(
            scrape, before, "requests_total", scrape.one("answers_per_second"), "answered"
        ),
        "ended": ended,
        "in_time_share": scrape.one("in_time_total") / answered if answered else None,
        "accuracy": scrape.one("expected_right_rows_total") / rows if rows else None,
        "latency_s": {
            labels["quantile"]: value for labels, value in scrape.labelled("latency_recent_seconds")
        },
        "queued": [int(value) for _, value in scrape.labelled("queue_rows")],
        "queue_max": int(scrape.one("queue_limit_rows")),
        "in_flight": int(scrape.one("in_flight_rows")),
        "width_shares": width_shares(scrape, before),
        "servers": [
            one_server(scrape, labels["server"]) for labels, _ in scrape.labelled("server_info")
        ],
    }


def rate(
    scrape: Scrape, before: Scrape | None, name: str, else_hz: float, outcome: str | None = None
) -> float:
    if before is None or scrape.at_s <= before.at_s:
        return else_hz
    labels = {} if outcome is None else {"outcome": outcome}
    more = scrape.one(name, **labels) - before.one(name, **labels)
    # a front that was started again counts from 0
    return more / (scrape.at_s - before.at_s) if more >= 0 else else_hz


def width_shares(scrape: Scrape, before: Scrape | None) -> list[dict[str, float]]:
    """A segment: the share of images at each width, of those since the last look where there are
    some, else of all.
    """
    counts = {labels["widths"]: value for labels, value in scrape.labelled("width_rows_total")}
    if before is not None:
        old = {labels["widths"]: value for labels, value in before.labelled("width_rows_total")}
        new = {name: value - old.get(name, 0.0) for name, value in counts.items()}
        if sum(new.values()) > 0 and min(new.values()) >= 0:
            counts = new
    counts = {name: value for name, value in counts.items() if value}
    total = sum(counts.values())
    found: list[dict[str, float]] = []
    for name, value in counts.items():
        for segment, width in enumerate(name.split(",")):
            while len(found) <= segment:
                found.append({})
            found[segment][width] = found[segment].get(width, 0.0) + value / total
    return found


def one_server(scrape: Scrape, name: str) -> dict[str, Any]:
    states = [
        row["state"] for row, on in scrape.labelled("server_state") if row["server"] == name and on
    ]
    source = [
        row["source"] for row, _ in scrape.labelled("server_power_watts") if row["server"] == name
    ]
    about = next(row for row, _ in scrape.labelled("server_info") if row["server"] == name)
    numbers = {
        short: scrape.one(f"server_{long}", server=name)
        for short, long in {
            "busy": "busy_workers",
            "workers": "workers",
            "waiting": "waiting_rows",
            "coming": "coming_rows",
            "memory_b": "memory_bytes",
            "loaded": "instances",
            "util": "utilisation_ratio",
            "power_w": "power_watts",
            "energy_j": "energy_joules_total",
            "speed": "speed_ratio",
            "mean_batch": "mean_batch_rows",
            "beat_age_s": "beat_age_seconds",
            "restarts": "restarts_total",
        }.items()
    }
    return {
        "name": name,
        "kind": about.get("kind", ""),
        "state": states[0] if states else "unknown",
        "power_source": source[0] if source else "unknown",
        **numbers,
    }


def picture(fleet: dict[str, Any], note: str = "") -> Group:
    """A summary for the terminal."""
    lines = [head(fleet), *totals(fleet)]
    if fleet["router_problem"]:
        lines.append(Text(f"router: {fleet['router_problem']}", style="yellow"))
    if note:
        lines.append(Text(f"as last seen: {note}", style="red"))
    return Group(*lines, servers_table(fleet["servers"]))


def head(fleet: dict[str, Any]) -> Text:
    state = "draining" if fleet["draining"] else "ready" if fleet["ready"] else "not ready"
    style = "green" if state == "ready" else "yellow"
    return Text.assemble(
        (fleet["model"], "bold"),
        f" by {fleet['router']}  ",
        (state, style),
        f"  up {fleet['uptime_s']:,.0f} s  objective {1e3 * fleet['objective_s']:g} ms",
    )


def totals(fleet: dict[str, Any]) -> list[Text]:
    share, accuracy = fleet["in_time_share"], fleet["accuracy"]
    latencies = "  ".join(
        f"p{float(quantile) * 100:g} {1e3 * value:.3g} ms"
        for quantile, value in fleet["latency_s"].items()
    )
    bad = {name: n for name, n in fleet["ended"].items() if name in LATE and n}
    waiting = " + ".join(str(count) for count in fleet["queued"])
    mix = "   ".join(
        f"{segment}: " + " ".join(f"{width} {part:.0%}" for width, part in sorted(parts.items()))
        for segment, parts in enumerate(fleet["width_shares"], start=1)
    )
    lines = [
        f"come {fleet['come_hz']:,.1f}/s  answered {fleet['done_hz']:,.1f}/s  "
        f"in time {'-' if share is None else format(share, '.1%')}  "
        f"accuracy {'-' if accuracy is None else format(accuracy, '.2%')}",
        f"latency {latencies}",
        f"queue {waiting} of {fleet['queue_max']} rows, {fleet['in_flight']} at servers",
        "lost " + (", ".join(f"{name} {n:,}" for name, n in bad.items()) or "none"),
        f"widths by segment  {mix or '-'}",
    ]
    return [Text(line) for line in lines]


def servers_table(servers: list[dict[str, Any]]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False, collapse_padding=True)  # fits 80 characters
    for name in ("server", "state", "busy", "util", "queue", "batch", "speed", "power", "memory"):
        left = name in ("server", "state", "util")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for row in servers:
        power = f"{row['power_w']:.0f} W {row['power_source']}"
        table.add_row(
            Text(row["name"]),
            Text(row["state"], style="green" if row["state"] == "ready" else "yellow"),
            f"{row['busy']:.0f}/{row['workers']:.0f}",
            f"{filled(row['util'])} {row['util']:4.0%}",
            f"{row['waiting'] + row['coming']:,.0f}",
            f"{row['mean_batch']:.1f}",
            f"{row['speed']:.2f}",
            "-" if row["power_source"] == "unknown" else power,
            f"{row['memory_b'] / 1e6:,.0f} MB",
        )
    return table


def filled(share: float) -> str:
    """A bar of characters."""
    count = round(BAR * min(max(share, 0.0), 1.0))
    return "█" * count + "░" * (BAR - count)
