"""A text of any machine is read: packed or not, with a byte order mark or without."""

import codecs
import gzip

import pytest

from trimtab.traces import read
from trimtab.traces.readers.packed import as_utf8, read_bytes

LOG = "; MaxNodes: 4\n; MaxProcs: 4\n1 0 0 100 4 -1 -1 4 200 -1 1 1 1 1 1 1 -1 -1\n"


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_log_with_a_byte_order_mark_is_the_log_without(tmp_path, coding, packed):
    data = LOG.encode(coding)
    path = tmp_path / ("log.swf.gz" if packed else "log.swf")
    path.write_bytes(gzip.compress(data) if packed else data)
    assert read_bytes(path) == LOG.encode()
    assert len(read(path)) == 1


def test_bytes_that_only_begin_as_a_text_would_stay_as_they_are():
    noise = codecs.BOM_UTF16_LE + b"\x00\xd8\x00"  # half a character
    assert as_utf8(noise) == noise
