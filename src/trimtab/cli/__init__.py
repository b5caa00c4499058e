"""The command line: options are keyword arguments of what they call, a mistake is one line."""

from __future__ import annotations

import re
import sys
import warnings
from importlib.metadata import version as installed
from typing import Annotated, NoReturn

import typer

from trimtab.cli import compare, demo, envs, explain, train
from trimtab.cli.bench import bench
from trimtab.cli.cluster import cluster
from trimtab.cli.guard import guard
from trimtab.cli.plan import plan
from trimtab.cli.reproduce import reproduce
from trimtab.cli.serve import serve
from trimtab.cli.shown import err, escaped, out, say
from trimtab.cli.trace import prepare, trace, validate
from trimtab.errors import TrimtabError
from trimtab.files import refusal

# extra: the top-level modules that it brings
BROUGHT = {
    "train": ("torch", "tensorboard", "torchhd", "river", "PIL"),
    "sb3": ("stable_baselines3", "sb3_contrib"),
    "serve": ("httptools", "orjson", "grpc", "google", "onnx", "prometheus_client", "uvloop"),
    "prepare": ("duckdb",),
    "otel": ("opentelemetry",),
    "ray": ("ray",),
    "kubernetes": ("kubernetes",),
}
ERRNO = re.compile(r"\[Errno -?\d+\] ")  # a number for programs: the words beside it say it
EXTRA_OF = {module: extra for extra, modules in BROUGHT.items() for module in modules}

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Simulate, compare and run resource orchestrators for heterogeneous clusters.",
    epilog="""
**Start with**

`trimtab demo` — learned policies that ship beside the strongest rules, in a minute

`trimtab COMMAND --help` — every option of a command, with examples
""",
)


def show_version(wanted: bool) -> None:
    if wanted:
        out.print(f"trimtab {installed('trimtab')}", highlight=False)
        raise typer.Exit


@app.callback()
def trimtab(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=show_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None: ...


app.add_typer(demo.app)
app.add_typer(compare.app)
app.add_typer(bench.app)
app.add_typer(train.app)
app.add_typer(envs.app)
app.add_typer(reproduce.app)
app.add_typer(explain.app)
app.add_typer(plan.app, name="plan")
trace.app.command("prepare", epilog=prepare.EPILOG)(prepare.trace_prepare)
trace.app.command("validate", epilog=validate.EPILOG)(validate.trace_validate)
app.add_typer(trace.app, name="trace")
app.add_typer(cluster.app, name="cluster")
app.add_typer(serve.app, name="serve")
guard(app)


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    # numba's, of records that another holds: nothing that a user could act on
    warnings.filterwarnings("ignore", message=".*has been considered a subtype of")
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except (TrimtabError, OSError) as mistake:
        if isinstance(mistake, BrokenPipeError):
            sys.stderr.close()  # the reader of our output went away, as `head` does
            sys.exit(141)
        end(refusal(mistake) if isinstance(mistake, OSError) else str(mistake))
    except (KeyboardInterrupt, typer.Abort):
        say("stopped")
        sys.exit(130)
    except MemoryError as problem:
        end(f"there is not enough memory ({problem}); give fewer jobs, seeds or machines")
    except ModuleNotFoundError as missing:
        extra = EXTRA_OF.get((missing.name or "").partition(".")[0])
        if extra is None:
            raise
        end(f"this needs {missing.name}, which is not installed; pip install 'trimtab[{extra}]'")
    except Exception as problem:
        # click's own: a missing argument, a bad option value
        if not hasattr(problem, "format_message"):
            raise
        if not (said := problem.format_message()):
            sys.exit(2)  # the help has been shown
        end(said)


def end(mistake: str) -> NoReturn:
    """Say what is wrong in one line, and leave with 2."""
    said = ERRNO.sub("", mistake)
    err.print(f"[bold red]error:[/] {escaped(said)}", highlight=False, soft_wrap=True)
    sys.exit(2)
