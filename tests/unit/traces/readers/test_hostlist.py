"""Lists of hosts as Slurm writes them: what they hold, and that folding loses nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import TraceError
from trimtab.traces.readers.hostlist import expanded, folded, natural

WORDS = st.text("abz-.", min_size=1, max_size=4)
HOSTS = st.lists(
    st.builds(
        lambda word, number, width, end: f"{word}{number:0{width}d}{end}",
        WORDS,
        st.integers(0, 120),
        st.integers(1, 4),
        st.sampled_from(["", "-ib", "x"]),
    )
    | WORDS
    | st.from_regex(r"r[0-9]{1,2}n[0-9]{1,3}", fullmatch=True),
    max_size=30,
)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node[01-03,07],gpu[1-2]", "node01 node02 node03 node07 gpu1 gpu2"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"),
        ("n[1-2]-ib,login", "n1-ib n2-ib login"),
        ("single", "single"),
        ("", ""),
    ],
)
def test_a_list_holds_every_host_it_names_in_order(text, hosts):
    assert expanded(text) == hosts.split()


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ("node01 node02 node03 node07 gpu1", "node[01-03,07],gpu1"),
        ("n9 n10", "n[9-10]"),
        ("n09 n10", "n[09-10]"),
        ("n2 n1", "n[2,1]"),
        ("a b", "a,b"),
        ("r1n1 r1n2 r2n1", "r1n[1-2],r2n1"),
    ],
)
def test_hosts_fold_into_runs_of_numbers(hosts, text):
    assert folded(hosts.split()) == text


@given(HOSTS)
def test_what_is_folded_expands_to_the_same_hosts_in_the_same_order(hosts):
    assert expanded(folded(hosts)) == hosts


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=50, unique=True))
def test_a_run_of_numbers_is_never_longer_than_the_names(numbers):
    hosts = [f"n{number:04d}" for number in sorted(numbers)]
    assert len(folded(hosts)) <= len(",".join(hosts)) + 2


def test_hosts_sort_by_their_numbers():
    assert sorted(["n10", "n9", "m1", "n09"], key=natural) == ["m1", "n09", "n9", "n10"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n[1-3", "bracket too many"),
        ("n1]", "bracket too many"),
        ("a,,b", "comma or a bracket too many"),
        ("n[3-1]", "range 3-1, which runs backwards"),
        ("n[a-b]", "'a-b' in brackets"),
        ("n[]", "'' in brackets"),
        ("n[1-9999999]", "more than 1,000,000 hosts"),
        ("n[1-2000]x[1-2000]", "more than 1,000,000 hosts"),
        ("n[1-99999999999999999999]", "more than 1,000,000 hosts"),
    ],
)
def test_a_list_that_cannot_be_read_says_where_and_what_to_write(text, problem):
    with pytest.raises(TraceError) as caught:
        expanded(text, "f.txt:3: Nodes")
    assert str(caught.value).startswith(f"f.txt:3: Nodes={text} ")
    assert problem in str(caught.value) and "node[01-04,07]" in str(caught.value)
