"""`trimtab serve` and `serve join` hand on what was said, once and under one name."""

import pytest
from typer.testing import CliRunner

from trimtab.cli.serve.serve import app
from trimtab.serving import service
from trimtab.serving.server import server
from trimtab.serving.settings import ServerSettings, Settings


@pytest.fixture
def settings(monkeypatch):
    """What the fleet or the server was started with; nothing is."""
    started = []

    def start(*given):
        started.extend(given)
        return 3

    monkeypatch.setattr(service, "operate", start)
    monkeypatch.setattr(server, "join", start)

    def said(*words):
        done = CliRunner().invoke(app, list(words))
        assert done.exit_code == 3, done.output
        return started

    return said


def test_serve_without_options_has_the_settings_defaults(settings):
    assert settings()[0] == Settings()


def test_serve_takes_milliseconds_shares_and_switches(settings):
    words = "--objective-ms 50 --shares 1,1,.45 --no-metrics --noop --router slack_fit"
    assert settings(*words.split())[0] == Settings(
        objective_s=0.05, shares=(1.0, 1.0, 0.45), metrics=False, noop=True, router="slack_fit"
    )


def test_serve_starts_as_many_servers_as_are_named(settings):
    assert settings("--servers", "0")[0].shares == ()


def test_join_takes_an_address_and_a_servers_settings(settings):
    address, about = settings("join", "host:9000", "--token", "T", "--cpu-list", "0-3")
    assert (address, about) == ("host:9000", ServerSettings(token="T", cpu_list="0-3"))
