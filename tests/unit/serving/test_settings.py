"""What a server process is told travels as one word, and what makes no sense is named."""

import pytest

from trimtab.errors import ServeError
from trimtab.serving.settings import ServerSettings, name_in, settings_of


def test_settings_come_back_from_their_text():
    settings = ServerSettings(name="a b", token='"', share=0.45, workers=2, noop=True)
    assert settings_of(settings.text()) == settings
    assert settings_of("{}") == ServerSettings()
    assert settings_of('{"share": 1}').share == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("--token T", "no JSON object"),
        ("[1]", "no JSON object"),
        ('{"tokn": "T"}', "'tokn' is unknown; give some of weights, profile"),
        ('{"workers": "2"}', "workers='2': give it as 1 is"),
        ('{"noop": 1}', "noop=1: give it as False is"),
    ],
)
def test_a_mistake_is_named(text, named):
    with pytest.raises(ServeError, match=named):
        settings_of(text)


def test_a_server_is_known_by_its_command_line():
    command = ["python", "-m", "trimtab.serving.server", "unix:x"]
    assert name_in([*command, ServerSettings(name="local-1").text()]) == "local-1"
    assert name_in(command) == name_in([]) == ""
