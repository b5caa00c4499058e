"""The preparation on a Ray cluster of two machines is the one on threads, to the byte."""

import gzip
import shutil
from types import SimpleNamespace

import pytest
from tests.unit.traces.prepare.folders import LEAST_MEMORY, hashes, small_twin, written

from trimtab.errors import TraceError
from trimtab.traces.prepare import Options, prepare, steps

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")


@pytest.fixture(scope="module")
def on_ray():
    """Workers on two nodes of one CPU each, ended whatever happens."""
    from trimtab.traces.prepare.on_ray import OnRay

    machine = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = cluster_utils.Cluster()
    try:
        cluster.add_node(**machine, include_dashboard=False)
        cluster.add_node(**machine)
        yield OnRay(cluster.address)
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twin") / "twin"
    small_twin(folder)
    return folder


@pytest.fixture(scope="module")
def on_threads(twin, tmp_path_factory):
    out = tmp_path_factory.mktemp("threads") / "out"
    prepare(twin, out)
    return hashes(out)


def test_the_cluster_has_two_machines(on_ray):
    assert sorted(node["Resources"].get("CPU") for node in ray.nodes()) == [1, 1]


def test_every_file_is_identical(on_ray, twin, on_threads, tmp_path):
    prepare(twin, tmp_path / "out", workers=on_ray)
    assert hashes(tmp_path / "out") == on_threads


def test_the_same_folder_begun_anew_is_described_anew(on_ray, twin, on_threads, tmp_path):
    other = tmp_path / "other"
    small_twin(other, seed=1, machines=8)
    prepare(other, tmp_path / "out", workers=on_ray)
    shutil.rmtree(tmp_path / "out")
    prepare(twin, tmp_path / "out", workers=on_ray)
    assert hashes(tmp_path / "out") == on_threads


def test_a_run_begun_on_threads_goes_on_there(on_ray, twin, on_threads, tmp_path):
    class Stopped(Exception):
        pass

    def stopping(step, done, total):
        if step.startswith("routing") and done == 3:
            raise Stopped

    with pytest.raises(Stopped):
        prepare(twin, tmp_path / "out", progress=stopping)
    prepare(twin, tmp_path / "out", workers=on_ray, memory_bytes=LEAST_MEMORY)
    assert hashes(tmp_path / "out") == on_threads


def test_a_relative_path_is_found_by_the_workers(on_ray, twin, on_threads, tmp_path, monkeypatch):
    monkeypatch.chdir(twin.parent)
    prepare(twin.name, "beside", workers=on_ray)
    assert hashes(twin.parent / "beside") == on_threads
    shutil.rmtree(twin.parent / "beside")


def test_packed_files_are_read_by_the_driver(on_ray, tmp_path):
    trace = written(tmp_path / "trace", {"machine_usage": None})
    usage = (written(tmp_path / "plain") / "machine_usage.csv").read_bytes()
    (trace / "machine_usage.csv.gz").write_bytes(gzip.compress(usage))
    prepare(trace, tmp_path / "out", workers=on_ray)
    prepare(tmp_path / "plain", tmp_path / "same")
    found, expected = hashes(tmp_path / "out"), hashes(tmp_path / "same")
    assert found["node.parquet"] == expected["node.parquet"]


def test_a_mistake_in_the_trace_is_told_as_it_is(on_ray, tmp_path):
    lines = (written(tmp_path / "trace") / "machine_usage.csv").read_text().splitlines()
    lines[4] = lines[4].rsplit(",", 1)[0]
    (tmp_path / "trace" / "machine_usage.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(TraceError) as error:
        prepare(tmp_path / "trace", tmp_path / "out", workers=on_ray)
    assert type(error.value) is TraceError
    assert str(error.value).startswith(f"{tmp_path / 'trace' / 'machine_usage.csv'}:5: has 8")
    prepare(tmp_path / "trace", tmp_path / "lenient", options=Options(lenient=True), workers=on_ray)


def test_a_folder_that_a_machine_does_not_see_is_named(on_ray, tmp_path, monkeypatch):
    trace = written(tmp_path / "trace")
    named = steps.pieces

    def elsewhere(*given):
        for piece in named(*given):
            yield piece._replace(path=tmp_path / "elsewhere" / piece.path.name)

    monkeypatch.setattr(steps, "pieces", elsewhere)
    with pytest.raises(TraceError, match=r"elsewhere.*is not there on machine .*share"):
        prepare(trace, tmp_path / "out", workers=on_ray)


def test_no_cluster_at_an_address(monkeypatch):
    from trimtab.traces.prepare import on_ray as module

    def unreachable(**_):
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(module.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(module.ray, "init", unreachable)
    with pytest.raises(TraceError, match=r"no Ray cluster at address='10.0.0.1:1'.*ray start"):
        module.OnRay("10.0.0.1:1")


@pytest.mark.parametrize(
    ("memory_gb", "piece_mb", "cpus", "workers"),
    [(2, 85, 2, 2), (2, 85, 64, 4), (64, 128, 64, 64), (0.25, 11, 8, 1), (1, 42, 0, 1)],
)
def test_workers_share_the_memory_of_their_machine(memory_gb, piece_mb, cpus, workers):
    from trimtab.traces.prepare.on_ray import workers_a_machine

    plan = SimpleNamespace(memory_bytes=int(memory_gb * 2**30), piece_bytes=piece_mb << 20)
    assert workers_a_machine(plan, cpus) == workers
