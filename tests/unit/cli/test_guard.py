"""Every command looks at what it was given before it runs."""

from collections.abc import Iterator
from typing import Any

import pytest

from trimtab.cli import app
from trimtab.cli.guard import LIMITS, outputs_of

# options that name what is written, whatever the command
WRITTEN = {"json_file", "report", "to", "keep", "plots", "folder", "state"}
BY_HAND = {("trace", "generate", "to")}  # a file or a folder, after the generator's name


def commands(
    group: Any = app, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for one in group.registered_commands:
        yield (*above, one.name or one.callback.__name__), one.callback
    for below in group.registered_groups:
        name = below.name if isinstance(below.name, str) else None
        yield from commands(below.typer_instance, (*above, *([name] if name else [])))


@pytest.mark.parametrize(
    ("name", "function"), [pytest.param(*one, id="-".join(one[0])) for one in commands()]
)
def test_every_output_of_every_command_is_known_as_one(name, function):
    import inspect

    marked = outputs_of(function)
    for parameter in inspect.signature(function).parameters:
        if parameter in WRITTEN and (*name, parameter) not in BY_HAND:
            if name == ("plan", "fit") and parameter == "folder":
                continue  # the folder that it reads
            assert parameter in marked, f"trimtab {' '.join(name)}: {parameter} has no Kind"


@pytest.mark.parametrize("name", ["seed", "first_seed", "seeds", "jobs", "http_port"])
def test_numbers_that_many_commands_take_have_a_range(name):
    least, most = LIMITS[name]
    assert least < most


def test_a_log_is_not_written_over_by_its_own_conversion(command, tmp_path):
    log = tmp_path / "a.parquet"
    code, _, _ = command("trace", "generate", "mixed-gpu", "--out", log, "--jobs", 20)
    assert code == 0
    before = log.read_bytes()
    code, _, said = command("trace", "convert", log, log)
    assert code == 2
    assert "would be lost" in said
    assert log.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("compare", "fcfs", "--load", "nan"), "--load nan is not a finite number"),
        (("compare", "fcfs", "--seeds", "1000000000"), "--seeds 1,000,000,000 is more than 10,000"),
        (("demo", "--seeds", "0"), "greater than or equal to 1"),
        (("train", "dqn", "--seed", "-1"), "--seed -1 is below 0"),
        (("serve", "--http-port", "70000"), "--http-port 70,000 is more than 65,535"),
        (("trace", "generate", "alibaba2018-like", "--machines", "1000000000000"), "more than"),
    ],
)
def test_a_number_out_of_all_reason_is_refused_by_name(command, words, why):
    code, _, said = command(*words)
    assert code == 2
    assert why in said
