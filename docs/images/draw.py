"""One plot of a report as a file of its own: python docs/images/draw.py report.html queue queue.svg

`trimtab compare --report` draws; this copies a plot by its name and gives it a white ground, since
a page that shows the file may be dark.
"""

import re
import sys
from pathlib import Path


def plot(page: str, name: str) -> str:
    """The SVG whose ids begin with `name`."""
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    found = next((svg for svg in drawn if f'id="{name}-' in svg), None)
    if found is None:
        raise SystemExit(f"the report has no plot named {name!r}; its ids begin with such a name")
    found = re.sub(r"var\(--\w+,(#\w+)\)", r"\1", found)  # as drawn: by light
    head, rest = found.split(">", 1)
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f'{head}>\n<rect width="100%" height="100%" fill="#ffffff"/>{rest}\n'


if __name__ == "__main__":
    report, name, out = sys.argv[1:]
    Path(out).write_text(plot(Path(report).read_text(encoding="utf-8"), name), encoding="utf-8")
