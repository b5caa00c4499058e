"""What tests of several folders clean up after themselves."""

import pytest


@pytest.fixture
def forget():
    """Laws that a test adopts are gone in the next one."""
    from trimtab.llm import constants, gpu_profile

    yield
    constants.ADOPTED.clear()
    for kept in gpu_profile.KEPT:
        kept.cache_clear()
