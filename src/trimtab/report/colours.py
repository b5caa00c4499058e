"""The colours of every page and plot, by light and by dark.

Plots are drawn in the light ones, so that a figure is whole by itself; on a page each becomes a CSS
variable with that colour to fall back on, and the reader's setting chooses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Okabe and Ito's colours that stand out on white, then Tol's muted: safe for colour-blind eyes.
PALETTE = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"),
    *("#56B4E9", "#332288", "#882255", "#999933", "#555555"),
)
# The same hues as far apart on a dark ground, for colour-blind eyes too; contrast 4.5 or more.
DARK_PALETTE = (
    *("#2082E0", "#D8643D", "#3CBF7C", "#F184B4", "#F0B42A"),
    *("#C4F4FF", "#C7ACF4", "#D846AD", "#E6E69A", "#818181"),
)
PAPER, INK, FAINT, LINE, GRID = "#ffffff", "#24292f", "#59636e", "#d8dee4", "#e4e7eb"
EDGE, DOWN, DRAIN, SOFT, BEST, LINK = (
    *("#aab1ba", "#b8bec6", "#eef0f3", "#f6f8fa", "#e3f3ea", "#0b5cad"),
)
THEME = {  # name: by light, by dark
    "paper": (PAPER, "#12161b"),
    "ink": (INK, "#e6eaef"),
    "faint": (FAINT, "#a3adb8"),
    "line": (LINE, "#39424c"),
    "soft": (SOFT, "#1a2027"),
    "best": (BEST, "#17392b"),
    "link": (LINK, "#6cb6ff"),
    "grid": (GRID, "#2a313a"),
    "edge": (EDGE, "#5a6572"),
    "down": (DOWN, "#5d6772"),
    "drain": (DRAIN, "#1f262e"),
    **{f"c{i}": pair for i, pair in enumerate(zip(PALETTE, DARK_PALETTE))},
}
NAME_OF = {light.lower(): name for name, (light, _) in THEME.items()}


def variables(dark: bool) -> str:
    """The declarations of all colours, as CSS."""
    return "".join(f"--{name}:{pair[dark]};" for name, pair in THEME.items())


def variable(colour: str) -> str:
    """A colour of the theme as CSS that follows the reader's setting; others as they are."""
    name = NAME_OF.get(colour.lower())
    return f"var(--{name},{colour.lower()})" if name else colour


def themed(drawn: str) -> str:
    """A plot with each colour of the theme as a variable."""
    return re.sub(r"#[0-9a-f]{6}\b", lambda found: variable(found[0]), drawn)


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour a name, always the same for the same list."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
