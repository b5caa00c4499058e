"""How many bad rows a log may have."""

import pytest
from tests.unit.traces.readers.test_swf import HEADER, line

from trimtab.errors import TraceError
from trimtab.traces import read
from trimtab.traces.readers.bad_rows import tolerance
from trimtab.traces.readers.swf import read_swf


def written(tmp_path, good: int, bad: int):
    path = tmp_path / "toy.swf"
    rows = [line(number=n, submit=n) for n in range(1, good + 1)]
    path.write_text(HEADER + "".join(rows + ["oops\n"] * bad))
    return path


@pytest.mark.parametrize(("good", "bad"), [(99, 1), (90, 10), (1, 1)])
def test_up_to_a_tenth_of_bad_rows_costs_those_rows(tmp_path, good, bad):
    work = read(written(tmp_path, good, bad))
    assert len(work) == good
    assert work.meta["dropped"] == {"too few fields": bad}


def test_more_than_a_tenth_is_another_file_unless_any_number_may_go(tmp_path):
    path = written(tmp_path, 89, 11)
    with pytest.raises(TraceError, match=r"toy.swf:\d+: .* 11 of 100 rows are bad, .*--lenient"):
        read_swf(path)
    assert len(read_swf(path, lenient=True)) == 89


def test_a_strict_read_refuses_the_first(tmp_path):
    with pytest.raises(TraceError, match=r"toy.swf:103: .*--lenient"):
        read_swf(written(tmp_path, 99, 1), lenient=False)


def test_the_two_options_contradict_each_other():
    assert [tolerance(True, False), tolerance(False, True), tolerance(False, False)] == [
        True,
        False,
        None,
    ]
    with pytest.raises(TraceError, match="--lenient and --strict"):
        tolerance(True, True)
