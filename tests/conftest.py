"""What tests of several folders start from."""

import signal

import pytest


@pytest.fixture
def ctrl_c():
    """Ctrl-C is heard here and by what is started, also where the tests run in the background.

    What is started with SIGINT ignored ignores it too, and hands that down to what it starts.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
