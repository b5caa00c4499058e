"""Policies out of Python code of one's own, by path and by module."""

import sys

import pytest

from trimtab.errors import PolicyError, TrimtabError
from trimtab.policies import check, file_of, named
from trimtab.run import run
from trimtab.sim.backend import SimBackend
from trimtab.testing import check_policy, small_cluster, small_workload

OLDEST = """
from dataclasses import dataclass
from trimtab.rules.room import Room

@dataclass
class Oldest:
    seed: int = -1

    def decide(self, snapshot):
        room = Room.of(snapshot)
        picked = ((job, room.pick(job)) for job in snapshot.queue)
        return [room.start(job, nodes) for job, nodes in picked if nodes]

class Plain:
    def decide(self, snapshot):
        return Oldest().decide(snapshot)

def made():
    return Oldest(7)

class Fails(Plain):
    def __init__(self):
        {}["nothing"]

class Late(Plain):
    def decide(self, snapshot):
        return [1 / 0]

class Blank: ...
def decide(snapshot): ...
def wrong(): return 3
number = 4
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OLDEST)
    return path


def test_a_class_in_a_file_keeps_the_protocol_and_gets_the_seed(mine):
    check(f"{mine}:Oldest")
    check_policy(f"{mine}:Oldest")
    assert named(f"{mine}:Oldest", seed=5).seed == 5
    assert file_of(f"{mine}:Oldest") == mine


def test_a_class_or_a_function_that_takes_no_seed_gets_none(mine):
    assert hasattr(named(f"{mine}:Plain", seed=5), "decide")
    assert named(f"{mine}:made", seed=5).seed == 7


def test_a_file_is_loaded_under_a_name_that_hides_no_module(tmp_path):
    path = tmp_path / "json.py"
    path.write_text(OLDEST)
    before = sys.modules["json"]
    policy = named(f"{path}:Oldest")
    assert sys.modules["json"] is before
    assert type(policy).__module__.startswith("_trimtab_policy_")


def test_a_file_that_changed_is_read_again_and_one_that_did_not_is_not(mine):
    first = type(named(f"{mine}:Oldest"))
    assert type(named(f"{mine}:Oldest")) is first
    mine.write_text(OLDEST.replace("seed: int = -1", "seed: int = -2\n    more: int = 3"))
    assert named(f"{mine}:Oldest").more == 3


def test_modules_beside_the_file_can_be_imported(tmp_path):
    (tmp_path / "beside_the_policy.py").write_text(OLDEST)
    path = tmp_path / "shows.py"
    path.write_text("from beside_the_policy import Oldest\nclass Mine(Oldest): ...\n")
    assert hasattr(named(f"{path}:Mine"), "decide")


def test_a_module_that_can_be_imported_is_named_by_its_dots(tmp_path, monkeypatch):
    (tmp_path / "a_package_of_mine").mkdir()
    (tmp_path / "a_package_of_mine" / "rules.py").write_text(OLDEST)
    monkeypatch.syspath_prepend(tmp_path)
    assert named("a_package_of_mine.rules:Oldest", seed=3).seed == 3
    assert file_of("a_package_of_mine.rules:Oldest") is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Fails", r"mine\.py:23: KeyError: 'nothing'"),
        ("Nothing", r"holds no Nothing; give .*mine\.py:Oldest or .*mine\.py:Plain"),
        ("Blank", r"the class has no decide\(snapshot\)"),
        ("decide", r"mine\.py:decide \(line 30\) wants snapshot; it is given a seed at most"),
        ("wrong", r"made int, which has no decide"),
        ("number", r"mine\.py:number is int; give a class"),
        ("", r"which policy of it\?; give .*mine\.py:Oldest"),
    ],
)
def test_a_wrong_name_in_a_file_is_one_sentence(mine, name, words):
    with pytest.raises(PolicyError, match=words) as mistake:
        named(f"{mine}:{name}")
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def x(:\n", r"wrong\.py:1: SyntaxError: invalid syntax"),
        ("a = 1\nimport no_such_module_at_all\n", r"wrong\.py:2: ModuleNotFoundError: No module"),
        ("x = 3\n\ny = x / 0\n", r"wrong\.py:3: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", r"wrong\.py:1: SystemExit: 3"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence_with_file_and_line(tmp_path, source, words):
    (tmp_path / "wrong.py").write_text(source)
    for raised_by in (check, named):
        with pytest.raises(PolicyError, match=words) as mistake:
            raised_by(f"{tmp_path / 'wrong.py'}:Mine")
        assert "\n" not in str(mistake.value)


def test_a_mistake_while_it_decides_names_the_line(mine):
    backend = SimBackend(small_workload(3), small_cluster())
    with pytest.raises(
        PolicyError,
        match=r"raised ZeroDivisionError at second 0: division by zero \(.*mine\.py:27\)",
    ):
        run(backend, named(f"{mine}:Late"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("./nope.py:Mine", r"nope\.py: no such file"),
        ("no_such_module_at_all:Mine", r"is unknown; .*\./mine\.py:MyPolicy"),
        ("math:Mine", r"math: holds no Mine"),
        ("adrlo", r"did you mean 'adlro'"),
    ],
)
def test_what_is_not_there_is_one_sentence(name, words):
    for raised_by in (check, named):
        with pytest.raises(TrimtabError, match=words) as mistake:
            raised_by(name)
        assert "\n" not in str(mistake.value)


def test_a_module_that_fails_names_its_line(tmp_path, monkeypatch):
    (tmp_path / "fails_when_imported.py").write_text("x = 1\nx.nothing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PolicyError, match=r"fails_when_imported\.py:2: AttributeError"):
        named("fails_when_imported:Mine")
