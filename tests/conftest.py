"""What tests of several folders start from."""

import signal
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MARKED = {"learn", "live"}  # folders whose tests all bear their name as a marker
# files of many short tests that take long together
SLOW = {
    *("commands/test_bad_inputs.py", "docs/test_readme.py"),
    *("parity/test_fake.py", "parity/test_lending_fake.py"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests by their folder and file."""
    for item in items:
        file = item.path.relative_to(HERE)
        if file.parts[0] in MARKED:
            item.add_marker(file.parts[0])
        if file.as_posix() in SLOW:
            item.add_marker("slow")


@pytest.fixture
def command(monkeypatch, capsys):
    """The command line in this process: exit code, standard output, standard error."""
    from trimtab.cli import main

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["trimtab", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def ctrl_c():
    """Ctrl-C is heard here and by what is started, also where the tests run in the background.

    What is started with SIGINT ignored ignores it too, and hands that down to what it starts.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
