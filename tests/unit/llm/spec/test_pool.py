"""GPU pools are read as they are written, and mistakes are said with an example."""

import pytest

from trimtab.errors import PlanError, UnknownName
from trimtab.llm.spec.pool import pool, size, words


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("64xH100", "64xH100-SXM5"),
        ("64 X h100", "64xH100-SXM5"),
        ("8*RTX 4090", "8xRTX 4090"),
        ("4090", "1xRTX 4090"),
        ("MI250X", "1xMI250X-GCD"),
        ("8xH100+16xA100-40", "8xH100-SXM5+16xA100-SXM-40GB"),
        ("8xH100 + 4xV100 + 8xh100-sxm", "16xH100-SXM5+4xV100-SXM2-32GB"),
    ],
)
def test_a_pool_is_read(text, written):
    assert words(pool(text)) == written
    assert words(pool(written)) == written


def test_a_pool_counts_its_gpus():
    made = pool("8xH100+16xA100-40")
    assert size(made) == 24
    assert [(share.gpus, share.gpu.memory_b) for share in made] == [(8, 80e9), (16, 40e9)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0xH100", "gpus='0xH100' are zero GPUs; ask for at least one"),
        ("8xH100+0xA100", "are zero GPUs"),
        ("-3xH100", "'-3' is not a count of GPUs; write it like 64xH100"),
        ("2.5xH100", "'2.5' is not a count of GPUs"),
        ("", "gpus='' is empty; write it like"),
        ("8", "gpus='8' names no kind of GPU"),
        ("8xH100+", "has nothing beside a +"),
        ("2000000xH100", "are 2000000 GPUs; take at most 1000000"),
    ],
)
def test_a_bad_pool_is_refused(text, said):
    with pytest.raises(PlanError) as raised:
        pool(text)
    assert said in str(raised.value)


def test_an_unknown_kind_is_answered_with_near_ones():
    with pytest.raises(UnknownName, match=r"GPU 'H10O' is unknown; nearest: H100"):
        pool("8xH10O")
