"""`trimtab serve`: a live fleet on this machine, and servers that join one elsewhere."""

from __future__ import annotations

import logging
import math
import sys
from dataclasses import replace
from typing import Annotated

import typer

from trimtab.cli.options import with_options
from trimtab.cli.serve import serve_profile, serve_top
from trimtab.cli.shown import out
from trimtab.errors import ServeError
from trimtab.serving.settings import ServerSettings, Settings

app = typer.Typer(invoke_without_command=True, no_args_is_help=False)

EPILOG = """
**Examples**

`trimtab serve` — one server, HTTP on 8000, gRPC on 8001

`trimtab serve --shares 1,1,.45 --router slack_fit --objective-ms 50`

`trimtab serve --router router.npz` — a trained router; a changed file is loaded while it serves

`trimtab serve --fleet-port 9000 --host 0.0.0.0` — take servers of other machines

`trimtab serve join HOST:9000 --token T --device cuda` — be such a server, on a GPU

`trimtab serve --otlp http://localhost:4318` — trace one request in a hundred

`curl localhost:8000/v2/health/ready`, `kill -TERM PID` drains, `kill -HUP PID` reloads the router
"""


@app.callback(epilog=EPILOG)
@with_options
def serve(
    context: typer.Context,
    settings: Settings,
    servers: Annotated[int, typer.Option(help="Server processes; 0 = only those that join.")] = 1,
    shares: Annotated[str, typer.Option(help="Speed of each server, such as 1,1,.45.")] = "",
) -> None:
    """Serve the slimmable network: requests are routed to servers at the widths that fit."""
    if context.invoked_subcommand:
        return
    from trimtab.serving.service import operate

    settings = replace(settings, shares=shares_of(shares, servers))
    check(settings)
    log_to_stderr()
    sys.exit(operate(settings, say))


app.command("profile", epilog=serve_profile.EPILOG)(serve_profile.profile)
app.command("top", epilog=serve_top.EPILOG)(serve_top.top)


@app.command(
    epilog="""
**Examples**

`trimtab serve --fleet-port 9000 --host 0.0.0.0` — on the first machine; prints a token

`trimtab serve join HOST:9000 --token TOKEN --workers 2` — on another
"""
)
@with_options
def join(
    address: Annotated[str, typer.Argument(help="HOST:PORT that `trimtab serve` printed.")],
    settings: ServerSettings,
) -> None:
    """Start a server here that joins a fleet; Ctrl-C lets it finish and leave."""
    from trimtab.serving.server.server import join as serve_here

    sys.exit(serve_here(address, settings))


def check(settings: Settings) -> None:
    """Raise for a number that no fleet can have, before anything is compiled or started."""
    s = settings
    for option, value, fine, remedy in (
        ("--shares", s.shares, all(0 < share < math.inf for share in s.shares), "above 0"),
        ("--objective-ms", s.objective_s * 1e3, s.objective_s > 0, "above 0"),
        ("--trace-share", s.trace_share, 0 <= s.trace_share <= 1, "in 0..1"),
        ("--queue-max", s.queue_max, s.queue_max >= 0, "from 0 up"),
        ("--drain-s", s.drain_s, s.drain_s >= 0, "from 0 up"),
        ("--grace-s", s.grace_s, s.grace_s >= 0, "from 0 up"),
    ):
        if not fine:
            shown = ",".join(
                f"{one:g}" for one in (value if isinstance(value, tuple) else (value,))
            )
            raise ServeError(f"{option} {shown}: give numbers {remedy}")
    if s.http_port > 0 and s.http_port == s.grpc_port:
        raise ServeError(f"--grpc-port {s.grpc_port}: HTTP listens there; give another port")


def shares_of(text: str, servers: int) -> tuple[float, ...]:
    """Shares as numbers; `servers` equal ones where none are named."""
    if not text:
        if servers < 0:
            raise ServeError(f"--servers {servers}: give 0 or more")
        return (1.0,) * servers
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ServeError(f"--shares {text!r}: give numbers such as 1,1,.45") from None


def log_to_stderr() -> None:
    """What the fleet has to tell an operator, a line each."""
    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("trimtab.serve")
    log.handlers[:] = [lines]
    log.setLevel(logging.INFO)


def say(text: str) -> None:
    out.print(text, highlight=False, soft_wrap=True, markup=False)
    sys.stdout.flush()
