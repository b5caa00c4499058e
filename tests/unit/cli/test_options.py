"""Options that a command takes from the fields of dataclasses."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from trimtab.cli.options import with_options, words


@dataclass(frozen=True)
class Watching:
    target: str = field(default="", metadata={"help": "What to watch.", "argument": True})
    every_s: float = field(
        default=60.0, metadata={"help": "Between readings.", "option": "--every", "panel": "Time"}
    )
    rest_s: float = field(
        default=1800.0, metadata={"help": "Rest.", "option": "--rest-minutes", "times": 60.0}
    )
    log: Path | None = field(default=None, metadata={"help": "The job's log."})
    query: tuple[str, ...] = field(default=(), metadata={"help": "NAME=TEXT, repeated."})
    loud: bool = field(default=False, metadata={"help": "Say more."})
    checked: bool = field(default=True, metadata={"help": "Check first."})
    level: Annotated[int, typer.Option("--level", help="As Typer says it.")] = 3
    inner_s: float = 5.0


@dataclass(frozen=True)
class Size:
    gpus: int = field(metadata={"help": "How many."})


def ran(*given):
    """What a command with both gets for these words."""
    got = []
    app = typer.Typer()

    @app.command()
    @with_options
    def watch(watching: Watching, size: Size, plain: Annotated[str, typer.Option()] = "x") -> None:
        """Watch something."""
        got.extend([watching, size, plain])

    done = CliRunner().invoke(app, list(given), env={"COLUMNS": "100", "NO_COLOR": "1"})
    return done, got


def test_what_is_left_out_has_the_defaults_of_the_fields():
    done, got = ran("--gpus", "4")
    assert done.exit_code == 0
    assert got == [Watching(), Size(4), "x"]


def test_every_kind_of_field_is_an_option():
    given = [
        "job", "--gpus", "4", "--every", "5", "--rest-minutes", "2", "--log", "a.log", "--query",
        "a=b", "--query", "c=d", "--loud", "--no-checked", "--level", "7", "--plain", "y",
    ]  # fmt: skip
    done, got = ran(*given)
    assert done.exit_code == 0, done.output
    want = Watching("job", 5.0, 120.0, Path("a.log"), ("a=b", "c=d"), True, False, 7)
    assert got == [want, Size(4), "y"]


def test_a_field_without_a_default_must_be_given():
    done, _ = ran()
    assert done.exit_code == 2 and "--gpus" in done.output


def test_a_field_without_help_is_no_option():
    done, _ = ran("--gpus", "4", "--inner-s", "1")
    assert done.exit_code == 2


def test_help_shows_sentences_panels_and_defaults_in_the_units_of_the_option():
    shown = ran("--help")[0].output
    assert "Watch something." in shown and "Time" in shown and "Between readings." in shown
    assert "[default: 30.0]" in shown and "[default: 1800.0]" not in shown


@pytest.mark.parametrize(
    "options",
    [
        Watching(),
        Watching("job", 5.0, 120.0, Path("a.log"), ("a=b", "c=d"), True, False),
    ],
)
def test_words_give_the_same_options_back(options):
    done, got = ran(*words(options), "--gpus", "4")
    assert done.exit_code == 0, done.output
    assert got[0] == options


def test_two_fields_of_one_name_are_a_mistake_of_the_command():
    with pytest.raises(ValueError, match="duplicate"):

        @with_options
        def twice(size: Size, gpus: int) -> None: ...
