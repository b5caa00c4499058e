"""The JSON of sacct of every release is the job of its list."""

import json

import pytest
from tests.unit.traces.readers.test_sacct import NEW, OLD, dumped, listed, number, row

from trimtab import site
from trimtab.traces import read

NAMED = {"partition": "gpu", "qos": "normal", "constraints": "nvlink"}
LINE = "sbatch --exclusive job.sh"
UNSET = {"type": "energy", "name": "", "id": 3, "count": -2}  # 24.11 for what it does not know
SHAPES = {
    "21.08": OLD | NAMED | {"reservation": {"id": 0, "name": 0}},
    "22.05": OLD | NAMED | {"reservation": {"id": 0, "name": 0}, "flags": ["CLEAR_SCHEDULING"]},
    "23.02": NEW | NAMED | {"state": {"current": "COMPLETED", "reason": "None"}},
    "23.11": NEW | NAMED | {"submit_line": LINE, "reservation": {"id": 0, "name": ""}},
    "24.05": NEW | NAMED | {"submit_line": LINE, "reservation": {"id": 7, "name": "course"}},
    "24.11": NEW
    | NAMED
    | {"submit_line": LINE, "reservation": {"id": 7, "name": "course", "requested": "course"}}
    | {"tres": {"allocated": [*NEW["tres"]["allocated"], UNSET], "requested": [UNSET]}},
}


@pytest.mark.parametrize("version", SHAPES)
def test_json_of_every_release_is_the_job_of_the_list(tmp_path, version):
    told, same = read(dumped(tmp_path, SHAPES[version])), read(listed(tmp_path, row()))
    for name in ("submit_s", "request_s", "priority", "gpus", "instances"):
        assert told.jobs[name].tolist() == same.jobs[name].tolist(), name
    assert told.demand.tolist() == same.demand.tolist() and told.kinds == same.kinds
    assert told.meta["recorded"]["start_s"].tolist() == [30]
    labels = {name: told.label(name, 0) for name in told.labels}
    assert labels[site.PARTITION] == "gpu" and labels[site.CONSTRAINT] == "nvlink"
    assert labels.get(site.RESERVATION, "") == ("course" if version > "24" else "")
    assert labels.get(site.EXCLUSIVE, "") == ("yes" if version > "23.02" else "")


@pytest.mark.parametrize("tasks", [4, number(4)])
def test_an_array_tells_how_many_of_its_tasks_run_at_once(tmp_path, tasks):
    array = {"job_id": 100, "task_id": number(2), "limits": {"max": {"running": {"tasks": tasks}}}}
    assert read(dumped(tmp_path, NEW | {"array": array})).label(site.ARRAY, 0) == "100%4"


def test_an_array_without_a_limit_names_none(tmp_path):
    array = {"job_id": 100, "task_id": number(2), "limits": {"max": {"running": {"tasks": 0}}}}
    assert site.ARRAY not in read(dumped(tmp_path, NEW | {"array": array})).labels


def test_the_dump_may_be_as_large_as_a_file_with_other_keys(tmp_path):
    path = dumped(tmp_path, SHAPES["24.11"])
    content = json.loads(path.read_text()) | {"warnings": [], "meta": {"slurm": {"version": {}}}}
    path.write_text(json.dumps(content))
    assert len(read(path)) == 1
