"""What an extra brings is named where it is missing."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from trimtab import cli

EXTRAS = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
PACKAGE_OF = {  # where the module has another name
    "torchhd": "torch-hd", "PIL": "pillow", "grpc": "grpcio", "google": "protobuf",
    "prometheus_client": "prometheus-client", "opentelemetry": "opentelemetry-sdk",
    "stable_baselines3": "stable-baselines3", "sb3_contrib": "sb3-contrib",
}  # fmt: skip


@pytest.mark.parametrize("module", cli.EXTRA_OF)
def test_the_extra_that_is_named_brings_the_module(module):
    brought = [re.split(r"[^\w.-]", want)[0] for want in EXTRAS[cli.EXTRA_OF[module]]]
    assert PACKAGE_OF.get(module, module) in brought


def test_a_missing_package_is_one_line_that_names_its_extra(monkeypatch, capsys):
    def lacking(**_):
        raise ModuleNotFoundError("No module named 'duckdb'", name="duckdb")

    monkeypatch.setattr(cli, "app", lacking)
    monkeypatch.setattr(sys, "argv", ["trimtab", "trace", "prepare"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.replace("\n", " ").startswith("error: this needs duckdb, which is not installed")
    assert "trimtab[prepare]" in said
