"""`trimtab serve`: a live fleet on this machine, and servers that join one elsewhere."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

import typer

from trimtab.cli.serve import serve_profile, serve_top
from trimtab.cli.shown import out
from trimtab.errors import ServeError

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

Weights = Annotated[str, typer.Option(help="A weight file; default: the network that is shipped.")]
Workers = Annotated[int, typer.Option(help="Batches that a server runs at once.")]
Threads = Annotated[int, typer.Option(help="Threads of one batch.")]
Device = Annotated[str, typer.Option(help="What servers compute on: cpu, cuda or cuda:1.")]
Profile = Annotated[str, typer.Option(help="A profile of `trimtab serve profile`.")]
Noop = Annotated[bool, typer.Option("--noop", help="A network that answers zeros: for benchmarks.")]


@app.callback(epilog=EPILOG)
def serve(
    context: typer.Context,
    weights: Weights = "",
    profile: Profile = "",
    servers: Annotated[int, typer.Option(help="Server processes; 0 = only those that join.")] = 1,
    shares: Annotated[str, typer.Option(help="Speed of each server, such as 1,1,.45.")] = "",
    workers: Workers = 1,
    threads: Threads = 1,
    device: Device = "cpu",
    router: Annotated[str, typer.Option(help="A router by name, or its .npz file.")] = "priced",
    fixed: Annotated[str, typer.Option(help="Widths of rules that do not choose.")] = "",
    objective_ms: Annotated[float, typer.Option(help="What a request should take.")] = 100.0,
    queue_max: Annotated[int, typer.Option(help="Images open at once; 0 = by capacity.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(help="0 = a free one, -1 = none.")] = 8000,
    grpc_port: Annotated[int, typer.Option(help="0 = a free one, -1 = none.")] = 8001,
    fleet_port: Annotated[int, typer.Option(help="For servers that join; -1 = none.")] = -1,
    token: Annotated[str, typer.Option(help="What joining servers must know.")] = "",
    ray: Annotated[bool, typer.Option("--ray", help="Servers as Ray actors.")] = False,
    noop: Noop = False,
    drain_s: Annotated[float, typer.Option(help="Longest that a drain may take.")] = 30.0,
    grace_s: Annotated[float, typer.Option(help="From not ready to no new requests.")] = 1.0,
    metrics: Annotated[bool, typer.Option(help="Answer /metrics.")] = True,
    otlp: Annotated[str, typer.Option(help="Send traces there, such as http://host:4318.")] = "",
    trace_share: Annotated[float, typer.Option(help="Share of requests traced, 0..1.")] = 0.01,
) -> None:
    """Serve the slimmable network: requests are routed to servers at the widths that fit."""
    if context.invoked_subcommand:
        return
    from trimtab.serving.service import operate
    from trimtab.serving.settings import Settings

    log_to_stderr()
    settings = Settings(
        weights=weights,
        profile=profile,
        router=router,
        fixed=fixed,
        shares=shares_of(shares, servers),
        workers=workers,
        threads=threads,
        device=device,
        objective_s=objective_ms / 1e3,
        queue_max=queue_max,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        fleet_port=fleet_port,
        token=token or os.environ.get("TRIMTAB_TOKEN", ""),
        ray=ray,
        noop=noop,
        drain_s=drain_s,
        grace_s=grace_s,
        metrics=metrics,
        otlp=otlp,
        trace_share=trace_share,
    )
    code = operate(settings, say)
    sys.exit(code)


app.command("profile", epilog=serve_profile.EPILOG)(serve_profile.profile)
app.command("top", epilog=serve_top.EPILOG)(serve_top.top)


@app.command()
def join(
    address: Annotated[str, typer.Argument(help="HOST:PORT that `trimtab serve` printed.")],
    token: Annotated[str, typer.Option(help="As it printed; or TRIMTAB_TOKEN.")] = "",
    weights: Weights = "",
    workers: Workers = 1,
    threads: Threads = 1,
    device: Device = "cpu",
    profile: Profile = "",
    share: Annotated[float, typer.Option(help="Emulate a slower machine.")] = 1.0,
    cpu_list: Annotated[str, typer.Option(help="CPUs to stay on, such as 0-3,8.")] = "",
    noop: Noop = False,
) -> None:
    """Start a server here that joins a fleet; Ctrl-C lets it finish and leave."""
    from trimtab.serving.server.server import join as serve_here
    from trimtab.serving.settings import ServerSettings

    settings = ServerSettings(
        token=token,
        weights=weights,
        workers=workers,
        threads=threads,
        device=device,
        profile=profile,
        share=share,
        cpu_list=cpu_list,
        noop=noop,
    )
    sys.exit(serve_here(address, settings))


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
