"""How Sphinx builds these pages. `make docs` treats every warning as an error."""

import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import reference

_project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

project = _project["name"].capitalize()
author = "The Trimtab authors"
version = release = _project["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

autosummary_generate = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 90

html_theme = "furo"
html_title = f"{project} {version}"
html_show_sphinx = False

reference.write()


def _docstring(app, what, name, obj, options, lines) -> None:
    lines[:] = reference.quoted(lines)


def _skipped(app, what, name, obj, skip, options) -> bool | None:
    """Fields of a NamedTuple have no docstring but Python's own."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field") else None


def setup(app) -> None:
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-skip-member", _skipped)
