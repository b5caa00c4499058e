"""Plots of a serving profile as PNG files: what fills a device, and its cost in energy and waiting.

A device's own count of utilisation is not measured a segment; the share of its highest rate of
multiplications stands for it, and the axis says so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from trimtab.arrays import Array
from trimtab.files import whole
from trimtab.report.colours import PALETTE
from trimtab.report.drawing import STYLE
from trimtab.serving.net.serve_profile import ServeProfile
from trimtab.serving.net.slim_form import Form, segment_macs
from trimtab.serving.nouns import SEGMENTS, WIDTHS

SHARE = "share of the highest rate"
DPI = 150


def write_serve_plots(profile: ServeProfile, form: Form, folder: Path) -> list[Path]:
    """Three figures with a panel a segment and a line a width."""
    folder.mkdir(parents=True, exist_ok=True)
    share, batch = utilisation(profile, form), np.array(profile.buckets, float)
    power_w = profile.idle_w + share * (profile.busy_w - profile.idle_w)
    energy_j = power_w * uniform_s(profile) / batch
    latency_ms = 1e3 * uniform_s(profile)
    batches = np.broadcast_to(batch, share.shape)
    drawn: dict[str, tuple[Array, Array, Callable[[Any], None]]] = {
        "utilisation_by_batch": (batches, share, _batch_axes),
        "energy_by_utilisation": (share, 1e3 * energy_j, _axes("energy of an image, mJ")),
        "latency_by_utilisation": (share, latency_ms, _axes("time of a batch, ms")),
    }
    return [
        _figure(folder / f"{name}.png", across, up, dressed)
        for name, (across, up, dressed) in drawn.items()
    ]


def uniform_s(profile: ServeProfile) -> Array:
    """(segment, width, bucket) seconds, after a segment of the same width."""
    return np.stack([profile.time_s[:, width, width] for width in range(len(WIDTHS))], axis=1)


def utilisation(profile: ServeProfile, form: Form) -> Array:
    """(segment, width, bucket) multiplications a second, over the most of any of them."""
    macs = np.array(
        [
            [segment_macs(form, segment, width, width) for width in range(len(WIDTHS))]
            for segment in range(SEGMENTS)
        ],
        float,
    )
    rate = macs[..., None] * np.array(profile.buckets) / uniform_s(profile)
    return np.asarray(rate / rate.max())


def _figure(file: Path, across: Array, up: Array, dressed: Callable[[Any], None]) -> Path:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.2, 3.0), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, SEGMENTS, sharey=True)
        for segment, panel in enumerate(panels):
            for width, share in enumerate(WIDTHS):
                panel.plot(
                    across[segment, width],
                    up[segment, width],
                    color=PALETTE[width],
                    marker="o",
                    markersize=3,
                    label=f"width {share:g}",
                )
            dressed(panel)
            panel.set_title(f"segment {segment + 1}", fontsize=9.5)
            if segment:
                panel.set_ylabel("")
        panels[0].legend(fontsize=8)
        with whole(file) as place:
            figure.savefig(place, dpi=DPI, transparent=False, format="png")
    return file


def _batch_axes(panel: Any) -> None:
    panel.set_xscale("log", base=2)
    panel.set_xlabel("batch")
    panel.set_ylabel(SHARE)
    panel.set_ylim(0, 1.05)
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _axes(label: str) -> Callable[[Any], None]:
    def dressed(panel: Any) -> None:
        panel.set_xlabel(SHARE)
        panel.set_ylabel(label)
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.set_xlim(0, 1.05)
        panel.xaxis.set_major_formatter(PercentFormatter(1.0))

    return dressed
