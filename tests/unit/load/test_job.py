"""A job's own processes, their CPU, and whose the GPUs' memory is."""

import math
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests.unit.load.nvml import Nvml

from trimtab.errors import TrimtabError
from trimtab.load import job as job_file
from trimtab.load.job import Job, others_memory_b

WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"


class Gpus(Nvml):
    """GPUs of made-up processes: one list of (pid, bytes) a GPU."""

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.gpus[handle]]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([[(1, 50e9), (9, 4e9)], [(1, 50e9), (9, 7e9), (8, 1e9)]], 8e9),  # the worst: 7 + 1
        ([[(1, 50e9)]], 0.0),
        ([[(1, 50e9)], [(9, 70e9)]], 0.0),  # the job is not on the second GPU
        ([[(9, 70e9)]], math.nan),  # none is the job's: PIDs of a container, say
        ([[(1, 50e9), (9, None)]], math.nan),  # a process that does not tell
        ([None, [(1, 50e9), (9, 2e9)]], 2e9),
        ([], math.nan),
    ],
)
def test_memory_of_others_is_that_of_the_worst_gpu_that_the_job_is_on(monkeypatch, gpus, expected):
    made = Gpus(*gpus)
    monkeypatch.setattr(job_file, "pynvml", made)
    assert others_memory_b({1, 2}) == pytest.approx(expected, nan_ok=True)
    assert made.begun == made.shut


def test_a_job_is_a_process_and_all_that_it_started():
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        found = Job(str(os.getpid())).processes()
        assert {os.getpid(), child.pid} <= found.keys()
        child.stdin.close()


def test_the_share_of_the_host_is_what_the_processes_spent(monkeypatch):
    job = Job("77")
    spent = {77: 10.0, 78: 5.0}

    def processes():
        return {
            pid: SimpleNamespace(cpu_times=lambda s=s: SimpleNamespace(user=s, system=0.0))
            for pid, s in spent.items()
        }

    monkeypatch.setattr(job, "processes", processes)
    monkeypatch.setattr(job_file.psutil, "cpu_count", lambda: 4)
    assert math.isnan(job.cpu_share(100.0))
    spent |= {77: 14.0, 79: 2.0}
    spent.pop(78)
    # 77 spent 4 s, 79 began and spent 2 s; 6 s of 10 s x 4 processors
    assert job.cpu_share(110.0) == pytest.approx(0.15)
    spent.clear()
    assert math.isnan(job.cpu_share(120.0))


def test_a_file_names_the_pid_and_is_read_anew(tmp_path):
    path = tmp_path / "job.pid"
    path.write_text(f"{os.getpid()}\n")
    job = Job(str(path))
    assert os.getpid() in job.processes()
    path.write_text("not yet\n")
    assert job.processes() == {}


def test_a_job_that_ended_has_no_processes():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert Job(str(child.pid)).processes() == {}
    assert math.isnan(Job(str(child.pid)).cpu_share(0.0))


def test_what_is_neither_a_pid_nor_a_file_is_refused(tmp_path):
    with pytest.raises(TrimtabError, match="neither a PID nor a file"):
        Job(str(tmp_path / "absent"))
