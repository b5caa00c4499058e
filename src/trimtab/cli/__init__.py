"""The command line. Options are the keyword arguments of what they call; mistakes print one
line.
"""

from __future__ import annotations

import sys

import typer

from trimtab.cli import compare, train
from trimtab.cli.bench import bench
from trimtab.cli.plan import plan
from trimtab.cli.reproduce import reproduce
from trimtab.cli.serve import serve
from trimtab.cli.shown import err, escaped, say
from trimtab.cli.trace import prepare, trace
from trimtab.errors import TrimtabError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Simulate, compare and run resource orchestrators for heterogeneous clusters.",
)
app.add_typer(compare.app)
app.add_typer(bench.app)
app.add_typer(train.app)
app.add_typer(reproduce.app)
app.add_typer(plan.app)
trace.app.command("prepare", epilog=prepare.EPILOG)(prepare.trace_prepare)
app.add_typer(trace.app, name="trace")
app.add_typer(serve.app, name="serve")


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except TrimtabError as mistake:
        err.print(f"[bold red]error:[/] {escaped(str(mistake))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        say("stopped")
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away, as `head` does
        sys.exit(141)
    except OSError as problem:
        err.print(f"[bold red]error:[/] {escaped(str(problem))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except Exception as problem:
        if hasattr(
            problem, "format_message"
        ):  # click's own: a missing argument, a bad option value
            err.print(
                f"[bold red]error:[/] {escaped(problem.format_message())}",
                highlight=False,
                soft_wrap=True,
            )
            sys.exit(2)
        raise
