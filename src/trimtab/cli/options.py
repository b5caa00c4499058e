"""Options of a command, declared once: the fields of a dataclass.

    @dataclass(frozen=True)
    class Watching:
        every_s: float = field(
            default=60.0, metadata={"help": "Seconds between readings.", "option": "--every"}
        )
        log: Path | None = field(default=None, metadata={"help": "The job's log."})

    @app.command()
    @with_options
    def watch(watching: Watching, json_file: JsonOption = None) -> None: ...

makes `trimtab watch --every 60 --log FILE --json FILE`, and `watch` gets one Watching. A command
may take several dataclasses and plain parameters beside them. A dataclass needs no Typer, so it can
stand beside what reads it, in a module that is cheap to import; `words` turns one back into what a
child's command line has. What its fields say in `metadata`:

    help      a sentence; a field without one is no option and keeps its default
    option    its name, where that is not the field's: "--every", or "--out/-o"
    argument  True: given by place, without a name
    panel     heading of --help under which it stands
    metavar   what stands for its value there
    times     field / option, where people and code use other units: 60.0 = minutes for seconds
    writes    a `Kind` of `trimtab.cli.outputs`: the option names what the command writes

The type is the field's: str, int, float, bool, Path, any of them `| None`, or `tuple[X, ...]` for
an option that may be repeated. A field may also be `Annotated[..., typer.Option(...)]`, as is.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the fields of its dataclasses as options of its own."""
    hints = get_type_hints(command, include_extras=True)
    shapes: dict[str, type] = {}  # parameter: its dataclass
    taken: set[str] = set()  # fields that are options
    parameters: list[inspect.Parameter] = []
    for name, plain in inspect.signature(command).parameters.items():
        if dataclasses.is_dataclass(hints[name]):
            shapes[name] = hints[name]
            taken |= {one.name for one, _ in _options(hints[name])}
            parameters += [_parameter(*one) for one in _options(hints[name])]
        else:
            parameters.append(plain.replace(annotation=hints[name], kind=plain.KEYWORD_ONLY))

    @wraps(command)
    def called(**given: Any) -> Any:
        made = {name: built(shape, given) for name, shape in shapes.items()}
        rest = {name: value for name, value in given.items() if name not in taken}
        return command(**rest, **made)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


def built(shape: type, given: Mapping[str, Any]) -> Any:
    """The dataclass with what was given on the command line, by the names of its fields."""
    values = {}
    for one, hint in _options(shape):
        value = given[one.name]
        if _repeated(hint):
            value = tuple(value) if value else _default(one)
        elif value is not None and "times" in one.metadata:
            value *= one.metadata["times"]
        values[one.name] = value
    return shape(**values)


def words(options: Any) -> list[str]:
    """What to write behind a command to have these options: those that are not the default."""
    places: list[str] = []
    out: list[str] = []
    for one, hint in _options(type(options)):
        value = getattr(options, one.name)
        if value == _default(one):
            continue
        for part in value if _repeated(hint) else (value,):
            text = str(part / one.metadata["times"] if "times" in one.metadata else part)
            if one.metadata.get("argument"):
                places.append(text)
            elif isinstance(part, bool):
                out.append(_name(one) if part else f"--no-{_name(one)[2:]}")
            else:
                out += [_name(one), text]
    return [*places, *out]


def _options(shape: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    """The fields that are options, with their types."""
    hints = get_type_hints(shape, include_extras=True)
    pairs = [(one, hints[one.name]) for one in dataclasses.fields(shape)]
    return [
        pair for pair in pairs if "help" in pair[0].metadata or get_origin(pair[1]) is Annotated
    ]


def _parameter(one: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    """One field as Typer reads it."""
    default = _default(one)
    about = one.metadata
    if get_origin(hint) is not Annotated:
        if _repeated(hint):
            hint, default = list[get_args(hint)[0]] | None, None  # type: ignore[misc]
        elif "times" in about and isinstance(default, float):
            default /= about["times"]
        more = {"help": about["help"], "metavar": about.get("metavar")}
        more |= {"rich_help_panel": about.get("panel"), "show_default": _worth_showing(default)}
        names = [] if about.get("argument") else [_name(one)] * _is_named(one, hint)
        kind = typer.Argument if about.get("argument") else typer.Option
        marks = (about["writes"],) if "writes" in about else ()
        hint = Annotated[hint, kind(*names, **more), *marks]
    empty = inspect.Parameter.empty if default is dataclasses.MISSING else default
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=empty, annotation=hint
    )


def _default(one: dataclasses.Field[Any]) -> Any:
    if one.default_factory is not dataclasses.MISSING:
        return one.default_factory()
    return one.default


def _name(one: dataclasses.Field[Any]) -> str:
    return str(one.metadata.get("option", "--" + one.name.replace("_", "-")))


def _is_named(one: dataclasses.Field[Any], hint: Any) -> bool:
    """Whether to name the option; Typer names --x/--no-x itself, for a switch that is on."""
    return "option" in one.metadata or hint is not bool or _default(one) is False


def _repeated(hint: Any) -> bool:
    return get_origin(hint) is tuple and get_args(hint)[1:] == (...,)


def _worth_showing(default: Any) -> bool:
    """Nothing, 0 and "" stand for what is filled in, which the help says."""
    return default not in (None, "", 0, 0.0, dataclasses.MISSING)
