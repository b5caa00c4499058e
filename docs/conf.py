"""How Sphinx builds these pages. `make docs` treats every warning as an error."""

import tomllib
from pathlib import Path

_project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]

project = _project["name"].capitalize()
author = "The Trimtab authors"
version = release = _project["version"]

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"{project} {version}"
html_show_sphinx = False
