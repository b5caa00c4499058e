"""What tests of several folders clean up after themselves."""

import pytest


@pytest.fixture
def forget():
    """Laws that a test adopts are gone in the next one."""
    from trimtab.llm.calibrate import gpu_profile
    from trimtab.llm.cost import constants

    yield
    constants.ADOPTED.clear()
    for kept in gpu_profile.KEPT:
        kept.cache_clear()
