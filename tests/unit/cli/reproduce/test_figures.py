"""A paper's figures are written as pictures beside the runs."""

import numpy as np

from trimtab.cli.reproduce.figures import on_page, write_figures
from trimtab.reproduce.hierarchy import coupling, figures

NAMES = ("waiting", "released", "admitted", "evicted", "services", "lent", "limit")


def made_up():
    rng = np.random.default_rng(0)
    series = {name: rng.random(600) for name in (*NAMES, "cpu", "mem", "wait_s", "cpu_sd")}
    run = {"first_s": 0.0, "step_s": 5.0, "series": series}
    third = figures.Coupled(run, coupling.couplings([run]))
    return {"figure-1": figures.prepared("", run), "figure-3": third}


def test_each_is_a_picture_and_a_drawing(tmp_path):
    made = write_figures(made_up(), tmp_path)
    assert [path.name for path in made] == [
        "figure-1.png", "figure-1.svg", "figure-3.png", "figure-3.svg",
    ]  # fmt: skip
    for path in made[::2]:
        assert path.read_bytes().startswith(b"\x89PNG")
    told = made[3].read_text()
    assert "cores that wait" in told and "room lent to batch jobs (%)" in told
    assert "services \N{RIGHTWARDS ARROW} evicted" in told


def test_a_page_has_them_under_their_names():
    drawn = on_page(made_up())
    assert list(drawn) == ["Figure 1", "Figure 3"]
    assert all(text.startswith("<svg") for text in drawn.values())
