"""The benchmark of floods and killed servers: what it concludes from what clients saw."""

import json
import math

import numpy as np
import pytest

from trimtab import cli
from trimtab.bench import fault_claims
from trimtab.bench.faults import AFTER, FLOODS, Plan, Session, Step, around, flood, rung, stepped
from trimtab.claims import finite
from trimtab.serving.client.load_gen import Driven


def driven(planned_s, sent_s, latency_s, status):
    rows = [np.array(column, float) for column in (planned_s, sent_s, latency_s)]
    return Driven(*rows, np.array(status), np.zeros(len(status), int), {}, 1.0, 1.0)


def test_a_step_counts_answers_in_time_and_takes_the_quiet_clients_lateness_off():
    flooded = driven([0, 0, 0, 0], [0, 0, 0.5, 0], [0.05, 0.2, 0.503, np.nan], [200, 200, 429, -1])
    quiet = driven([0, 0], [0.01, 0.3], [0.02, 0.302], [200, 429])
    found = stepped("x 1", 100.0, 2.0, flooded, quiet, (1.0, 2.0, 3.0))
    assert found.in_time_hz == 1.0
    assert found.refused == 2
    assert found.refused_ms == (pytest.approx(503), pytest.approx(503))
    assert found.quiet_ms[1] == pytest.approx(2)
    assert found.late_ms > 400
    assert found.lost == {"timed out": 1}


def test_windows_begin_at_the_kill_and_recovery_counts_from_the_last_bad_one():
    planned_s = np.arange(0, 5, 0.01)
    latency_s = np.full(len(planned_s), 0.02)
    latency_s[(planned_s >= 2.5) & (planned_s < 2.7)] = 0.3
    status = np.full(len(planned_s), 200)
    status[(planned_s >= 2.0) & (planned_s < 2.1)] = 429
    found = around(driven(planned_s, planned_s, latency_s, status), 2.0, 100.0)
    assert [each.from_s for each in found.windows] == np.arange(-2, 2.5, 0.5).tolist()
    assert found.before_ms == pytest.approx(20)
    at = {each.from_s: each for each in found.windows}
    assert (at[0.0].asked, at[0.0].refused, at[0.0].lost) == (50, 10, 0)
    assert at[0.5].p99_ms == pytest.approx(300)
    assert found.back_s == 1.0


def test_a_lost_request_takes_forever_and_no_calm_window_is_no_recovery():
    planned_s = np.arange(0, 3, 0.01)
    status = np.where(planned_s < 1.0, 200, -2)
    found = around(driven(planned_s, planned_s, np.full(300, 0.02), status), 1.0, 100.0)
    assert found.back_s == math.inf
    assert found.windows[-1].lost == 50
    json.dumps(finite(tuple(found.windows[-1])), allow_nan=False)


def step(name, in_time_hz=100.0, **more):
    blank = Step(
        name, 100.0, in_time_hz, 0, (math.nan,) * 2, 0.0, (math.nan,) * 2, (10.0,) * 3, {}, 0.0
    )
    return blank._replace(**more)


def measured(**more):
    """A session of which everything holds, but for what is given of its last flood."""
    session = Session(Plan(("overload",)))
    calm = [step(rung(share)) for share in session.plan.ladder]
    bad = {"refused": 9, "refused_ms": (1.0, 9.0), "quiet_ms": (0.1, 2.0)}
    floods = [step(flood(times), 97.0, **bad) for times in FLOODS]
    floods[-1] = floods[-1]._replace(**more)
    session.steps = [*calm, *floods, step(AFTER)]
    return session


def holds(session):
    return [claim.holds for claim in fault_claims.claims(session)]


@pytest.mark.parametrize(
    ("more", "broken"),
    [
        ({}, None),
        ({"in_time_hz": 94.0}, 0),
        ({"quiet_ms": (0.1, 6.0)}, 1),
        ({"memory_mb": (10.0, 10.0, 12.0)}, 2),
        ({"lost": {"timed out": 1}}, 3),
    ],
)
def test_each_claim_fails_by_its_own_figure(more, broken):
    assert holds(measured(**more)) == [at != broken for at in range(5)]


def test_a_fleet_that_does_not_recover_is_told_from_one_that_does():
    session = measured()
    session.steps[-1] = step(AFTER, 90.0)
    assert holds(session) == [True, True, True, True, False]


def test_what_was_not_measured_holds_neither_way():
    assert holds(Session(Plan())) == [None] * 7


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["trimtab", "bench", "faults", *words])
    with pytest.raises(SystemExit) as done:
        cli.main()
    said = capsys.readouterr()
    return int(done.value.code or 0), said.out, said.err


def test_the_table_fits_a_terminal_and_names_command_machine_and_claims(monkeypatch, capsys):
    def run_none(self):
        big = {"asked_hz": 9600.0, "refused": 280_000, "memory_mb": (1307.0, 1311.0, 1311.0)}
        big |= {"refused_ms": (1.0, 13.9), "quiet_ms": (0.2, 12.5), "others": 0.9}
        self.steps = measured(**big).steps
        yield "done"

    monkeypatch.setattr(Session, "run", run_none)
    code, out, _ = run(monkeypatch, capsys, "--only", "overload")
    assert code == 0
    for said in ("trimtab bench faults --only overload", " cores; Python", "280,000", "1307 1311"):
        assert said in out
    assert "yes  answers in time stay at 95% of the peak or more" in out
    assert "…" not in out
    assert " NO  a refusal takes 5 ms or less" in out
    assert "other programs kept up to 0.9 cores busy" in out


def test_an_interrupt_shows_what_is_finished(monkeypatch, capsys, tmp_path):
    def stop(self):
        yield "a first guess"
        self.steps.append(step(rung(0.5)))
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "run", stop)
    path = tmp_path / "faults.json"
    code, out, err = run(monkeypatch, capsys, "--json", str(path))
    assert code == 130
    assert "x 0.5" in out and "stopped after 1 rates" in err
    first, *rest = json.loads(path.read_text())
    assert (first["name"], first["value"]) == ("x 0.5", 100.0)
    assert {row["unit"] for row in rest} == {"holds"}
    assert all(row["value"] is None for row in rest if "flood" in row["name"])


@pytest.mark.parametrize("seconds", ["0", "601"])
def test_bad_numbers_are_one_line(monkeypatch, capsys, seconds):
    code, out, err = run(monkeypatch, capsys, "--seconds", seconds)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: --seconds {seconds}")
