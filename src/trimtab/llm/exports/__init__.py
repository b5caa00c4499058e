"""Plans as the files and commands of real launchers, one file here a launcher.

Each gives `files(model, plan, gpu)`: name -> text, with the command in launch.sh. Lines that begin
with # say what differs from the plan and what is left to the user's own script.
"""

from __future__ import annotations

from importlib import import_module

from trimtab.errors import UnknownName
from trimtab.llm.exports.lines import SHEBANG
from trimtab.llm.nouns import Gpu, Model, Plan

BY_NAME = {
    "megatron": "trimtab.llm.exports.megatron",
    "deepspeed": "trimtab.llm.exports.deepspeed",
    "fsdp": "trimtab.llm.exports.fsdp",
    "torchtitan": "trimtab.llm.exports.torchtitan",
    "vllm": "trimtab.llm.exports.vllm",
    "sglang": "trimtab.llm.exports.sglang",
}
TO_SERVE = ("vllm", "sglang")
# The launcher of the frameworks that have no file of their own here.
STANDS_FOR = {"nemo": "megatron", "composer": "fsdp"}


def files(launcher: str, model: Model, plan: Plan, gpu: Gpu | None = None) -> dict[str, str]:
    """What `launcher` needs to run the plan: file name -> text."""
    name = STANDS_FOR.get(launcher, launcher)
    if name not in BY_NAME:
        raise UnknownName(f"launcher {launcher!r} is unknown; take one of {', '.join(BY_NAME)}")
    made: dict[str, str] = import_module(BY_NAME[name]).files(model, plan, gpu)
    return made


def script(launcher: str, model: Model, plan: Plan, gpu: Gpu | None = None) -> str:
    """The same as one shell script, which writes the files and then launches."""
    made = files(launcher, model, plan, gpu)
    parts = [
        f"cat > {name} <<'END_OF_FILE'\n{text}END_OF_FILE\n"
        for name, text in made.items()
        if name != "launch.sh"
    ]
    return SHEBANG + "\n".join([*parts, made["launch.sh"].removeprefix(SHEBANG)])
