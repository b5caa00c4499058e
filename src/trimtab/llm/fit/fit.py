"""Fit kernel, link and serving constants to measured tables and write them to constants.json.

Every error is given twice: as fitted, and on rows that the fit did not see (other models, other
group sizes, other tensor parallel degrees), which is what a new table should expect.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trimtab.llm.cost.constants import ARCHS, PATH, law_of, replace_section
from trimtab.llm.fit.figures import Figure
from trimtab.llm.fit.fit_kernels import fit_kernels
from trimtab.llm.fit.fit_links import fit_links
from trimtab.llm.fit.fit_serving import fit_serving


def fit(folder: str | Path, path: Path = PATH) -> list[Figure]:
    """Fit all three sections, write each to `path`, and return how well they fit."""
    kernels, figures = fit_kernels(Path(folder))
    links, found = fit_links(Path(folder))
    figures += found
    # serving is built from the other two, as they are now
    laws = np.stack([law_of(arch, {"kernels": kernels, "links": links}).values for arch in ARCHS])
    serving, found = fit_serving(Path(folder), laws)
    figures += found
    for name, section in (("kernels", kernels), ("links", links), ("serving", serving)):
        replace_section(name, section, path)
    return figures
