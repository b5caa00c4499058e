"""Where the engine puts jobs: gangs, arrays, GPUs and their shares, and kinds of node."""

import numpy as np
from tests.worlds import Logged, Script, played

from trimtab.build import cluster, workload
from trimtab.core import Event, Start, Stop, What
from trimtab.run import run

INF = np.inf


def apply_now(backend, *decisions):
    """Answers to decisions taken at the next instant."""
    backend.wait()
    return [backend.apply(decision) for decision in decisions]


# arrays and gangs


def test_a_gang_starts_whole_or_not_at_all():
    backend = Logged(workload([0], [10], [1], instances=3), cluster([2, 1]))
    answers = apply_now(backend, Start(0, (0, 0)), Start(0, (0, 0, 0)), Start(0, (0, 1, 0)))
    assert [a.reason for a in answers] == [
        "instances: 2 given, 3 to start",
        "cpu: wants 1, free 0",
        "",
    ]
    run(backend, Script([]))
    assert backend.ends() == [10.0] and backend.total("quality") == 3


def test_an_array_starts_in_parts_and_ends_with_its_last():
    job = workload([0], [10], [1], instances=3, gang=0)
    plan = [(0, Start(0, (0, 1))), (4, Start(0, (1,)))]
    done = played(job, cluster([1, 2]), plan)
    assert (done.starts(), done.ends()) == ([0.0], [14.0])
    assert done.total("waiting_s") == 4  # until its last instance has started
    assert done.total("system_s") == 14
    assert done.total("work_s") == 30


def test_an_array_takes_no_more_instances_than_it_has():
    backend = Logged(workload([0], [10], [1], instances=2, gang=0), cluster([4]))
    answers = apply_now(
        backend,
        Start(0, (0, 0, 0)),
        Start(0, (0,)),
        Start(0, (0, 0)),
        Start(0, (0,)),
        Start(0, (0,)),
    )
    assert [a.what for a in answers] == [
        What.REFUSED,
        What.PLACED,
        What.REFUSED,
        What.PLACED,
        What.REFUSED,
    ]
    assert answers[4].reason == "job: not waiting"


def test_a_stopped_array_gives_all_its_instances_back_to_the_queue():
    job = workload([0], [10], [1], instances=3, gang=0, checkpoint_s=0)
    plan = [(0, Start(0, (0, 1))), (4, Stop(0)), (6, Start(0, (0, 1, 1)))]
    done = played(job, cluster([1, 2]), plan)
    assert done.ends() == [16.0]
    assert (done.total("work_s"), done.total("lost_s")) == (30.0, 8.0)  # arrays keep no checkpoints


# GPUs


def two_gpus():
    return cluster([[8, 2]], resources=("cpu", "gpu"), gpu_mem_gb=16)


def shared(shares, mem_gb=0.0, work_s=100.0):
    count = len(shares)
    table = np.stack([np.ones(count), shares], axis=1)
    return workload(
        np.zeros(count),
        work_s,
        table,
        resources=("cpu", "gpu"),
        gpus=1,
        gpu_share=shares,
        gpu_mem_gb=mem_gb,
    )


def devices(backend):
    """Masks of the devices each running job holds, by job."""
    seen = backend.snapshot()
    held = {}
    for run_ in seen.running:
        held[int(seen.runs["job"][run_])] = int(seen.pieces["devices"][seen.runs["piece"][run_]])
    return [held[job] for job in sorted(held)]


def test_a_share_goes_to_the_fullest_device_that_fits_it():
    machine = two_gpus()
    # 0.5 -> device 0; 0.75 -> device 1; 0.25 fits both, device 1 is fuller (0.25 free); 0.5 ->
    # device 0
    backend = Logged(shared([0.5, 0.75, 0.25, 0.5]), machine)
    apply_now(backend, *(Start(job, (0,)) for job in range(4)))
    assert devices(backend) == [1, 2, 2, 1]
    assert backend.snapshot().gpu_free.tolist() == [[0.0, 0.0]]


def test_a_share_is_never_split_over_two_devices():
    machine = two_gpus()
    # 0.6 and 0.6 leave 0.4 + 0.4 = 0.8 free, but no device has the 0.5 that is asked
    backend = Logged(shared([0.6, 0.6, 0.5, 0.4]), machine)
    answers = apply_now(backend, *(Start(job, (0,)) for job in range(4)))
    assert answers[2].reason == "gpu devices: wants 1, 0 fit"
    assert answers[3].what == What.PLACED
    assert devices(backend) == [1, 2, 1]


def test_memory_of_a_device_binds_where_its_share_would_not():
    machine = two_gpus()
    # 12 of 16 GB on device 0: the next 0.25 with 8 GB goes to device 1, the third has no device
    backend = Logged(shared([0.25, 0.25, 0.25], mem_gb=[12.0, 8.0, 10.0]), machine)
    answers = apply_now(backend, *(Start(job, (0,)) for job in range(3)))
    assert devices(backend) == [1, 2]
    assert answers[2].reason == "gpu devices: wants 1, 0 fit"


def test_the_policy_may_name_the_device():
    machine = two_gpus()
    backend = Logged(shared([0.5, 0.5, 0.5]), machine)
    answers = apply_now(
        backend,
        Start(0, (0,), devices=(2,)),
        Start(1, (0,), devices=(3,)),  # two devices for one GPU
        Start(1, (0,), devices=(4,)),  # a third device of two
        Start(1, (0,), devices=(2,)),
        Start(2, (0,), devices=(2,)),  # full by now
    )
    refused = [a.what == What.REFUSED for a in answers]
    assert refused == [False, True, True, False, True]
    assert backend.snapshot().gpu_free.tolist() == [[1.0, 0.0]]


def test_devices_named_for_a_job_without_gpus_are_refused():
    machine = two_gpus()
    backend = Logged(workload([0], [10], [[1, 0]], resources=("cpu", "gpu")), machine)
    (answer,) = apply_now(backend, Start(0, (0,), devices=(1,)))
    assert answer.what == What.REFUSED
    assert backend.snapshot().gpu_free.tolist() == [[1.0, 1.0]]


def test_whole_gpus_take_the_first_free_devices():
    machine = cluster([[8, 4]], resources=("cpu", "gpu"))
    table = [[1, 1], [1, 2], [1, 2]]
    jobs = workload([0, 0, 0], [10, 10, 10], table, resources=("cpu", "gpu"), gpus=[1, 2, 2])
    backend = Logged(jobs, machine)
    answers = apply_now(backend, *(Start(job, (0,)) for job in range(3)))
    assert devices(backend) == [0b1, 0b110]
    assert answers[2].reason == "gpu: wants 2, free 1"


# where a job may run


def test_a_job_runs_only_on_the_node_kinds_of_its_mask():
    machine = cluster([1, 1, 1], kind=[0, 1, 2])
    backend = Logged(workload([0], [10], [1], node_kinds=0b100), machine)
    answers = apply_now(backend, Start(0, (0,)), Start(0, (1,)), Start(0, (2,)))
    assert [a.what for a in answers] == [What.REFUSED, What.REFUSED, What.PLACED]
    assert answers[0].reason.startswith("node: 0 is of a kind")


def test_a_full_node_refuses_with_the_missing_resource():
    machine = cluster([[4, 8]], resources=("cpu", "mem_gb"))
    backend = Logged(
        workload([0, 0], [10, 10], [[1, 6], [1, 4]], resources=("cpu", "mem_gb")), machine
    )
    answers = apply_now(backend, Start(0, (0,)), Start(1, (0,)))
    assert answers[1] == Event(0.0, What.REFUSED, 1, (0,), 0, "mem_gb: wants 4, free 2")
    assert backend.total("refused") == 1
