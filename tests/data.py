"""The folder of public logs and reference results: what is not there is skipped.

TRIMTAB_DATA names the folder that holds `data/` and `reference/`; without it, `shared` beside the
repository is taken.
"""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("TRIMTAB_DATA") or Path(__file__).parents[2] / "shared")


def found(*parts: str) -> Path:
    """A file in the folder, or a skipped test."""
    path = FOLDER.joinpath(*parts)
    if not path.is_file():
        pytest.skip(f"{'/'.join(parts)} is not here; set TRIMTAB_DATA to the folder that has it")
    return path
