"""Step times from logs as frameworks write them, while they grow, turn over and are cut off."""

import json

import pytest

from trimtab.llm.watch.step_log import Position, StepLog, Work, step_of

WORK = Work(samples=256, tokens=256 * 4096, gpus=16)
LINES = {
    # 1147.6 ms
    "megatron": (
        " [2025-04-13 23:41:12] iteration       10/    1000 | consumed samples:          160 |"
        " elapsed time per iteration (ms): 1147.6 | learning rate: 0.000000E+00 |",
        1.1476,
    ),
    "fork of megatron": (
        "[2024-06-21 10:50:42][INFO][training:1609] -  iteration=       1/  317892 |"
        " consumed_samples=         768 | elapsed_time_per_iteration_ms=108893.2 | learning",
        108.8932,
    ),
    # 1,048,576 tokens / (10,050 x 16 GPUs)
    "torchtitan": (
        "[rank0]:[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  "
        "grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 314.71  mfu: 13.99%",
        1048576 / 160800,
    ),
    # 256 / 25.6
    "deepspeed": (
        "[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10,"
        " RunningAvgSamplesPerSec=25.02, CurrSamplesPerSec=25.6, MemAllocated=4.32GB",
        10.0,
    ),
    "deepspeed of old": (
        "[2022-03-11 02:06:58,985] [INFO] [timer.py:189:stop] 0/40, SamplesPerSec=64.0,"
        " MemAllocated=0.26GB",
        4.0,
    ),
    "deepspeed's pipeline": ("steps: 9 loss: 0.05 iter time (s): 0.186 samples/sec: 53.694", 0.186),
    # 3859.30 + 11267.97 + 829.19 ms: the inner parts of backward are in it
    "deepspeed's parts": (
        "[Rank 0] time (ms) | fwd: 3859.30 | bwd: 11267.97 | bwd_inner: 10508.40 |"
        " bwd_allreduce: 759.40 | step: 829.19",
        15.95646,
    ),
    "deepspeed's older parts": (
        "[Rank 0] rank=0 time (ms) | forward: 648.91 | backward: 2154.28 | backward_inner: 1991.87"
        " | backward_allreduce: 162.37 | step: 1706.23",
        4.50942,
    ),
    "nemo": ("global_step: 12 | reduced_train_loss: 9.1 | train_step_timing in s: 6.12", 6.12),
    "composer": ("[batch=20/4800]: Train throughput/batches_per_sec: 0.25", 4.0),
    "json": ('{"step": 7, "step_s": 1.5, "loss": 2.0}', 1.5),
    "json without a number": ('{"step_s": 2}', 2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_a_line_of_each_framework_tells_its_step_time(name):
    line, step_s = LINES[name]
    assert step_of(line, WORK).step_s == pytest.approx(step_s)
    assert step_of(f"\x1b[32m{line}\x1b[0m\n", WORK).step_s == pytest.approx(step_s)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "loading checkpoint from /data",
        "step: 4 loss: 3.2",
        "[Rank 0] time (ms) | fwd_microstep: 5.54 | bwd_microstep: 22.35 | step_microstep: 0.06",
        "time (ms) | forward-compute: 53.79 | forward-recv: 38.38 | backward-compute: 138.84",
        "elapsed time per iteration (ms): nan |",
        "elapsed time per iteration (ms): 0.0 |",
        "RunningAvgSamplesPerSec=25.02, MemAllocated=1GB",
        '{"step_s": "fast"}',
        '{"step_s": -1}',
        '{"step_s": true}',
        '{"step_s": 1.5',
        "{not json}",
        "[1, 2]",
    ],
)
def test_a_line_that_tells_no_step_time_is_passed_over(line):
    assert step_of(line, WORK) is None


def write(path, *steps, end="\n", mode="a"):
    with path.open(mode) as file:
        file.write("\n".join(json.dumps({"step_s": step_s}) for step_s in steps) + end)


def test_a_log_is_read_as_it_grows(tmp_path):
    path = tmp_path / "train.log"
    log = StepLog(path)
    assert log.new(WORK) == [] and log.position is None
    write(path, 1.0, 2.0)
    assert log.new(WORK) == [1.0, 2.0]
    assert log.new(WORK) == []
    write(path, 3.0)
    assert log.new(WORK) == [3.0]


def test_a_line_waits_for_its_end(tmp_path):
    path = tmp_path / "train.log"
    log = StepLog(path)
    path.write_text("elapsed time per iteration (ms): 12")
    assert log.new(WORK) == []
    with path.open("a") as file:
        file.write("34.5 | loss\n")
    assert log.new(WORK) == [1.2345]


def test_a_log_that_is_put_aside_is_read_to_its_end_and_the_new_one_from_its_start(tmp_path):
    path = tmp_path / "train.log"
    log = StepLog(path)
    write(path, 1.0)
    assert log.new(WORK) == [1.0]
    write(path, 2.0)
    path.rename(tmp_path / "train.log.1")
    assert log.new(WORK) == [2.0]  # the new one is not there yet
    write(path, 3.0)
    assert log.new(WORK) == [3.0]
    log.close()


def test_a_log_that_is_cut_off_is_read_from_its_start(tmp_path):
    path = tmp_path / "train.log"
    log = StepLog(path)
    write(path, 1.0, 2.0)
    log.new(WORK)
    write(path, 3.0, mode="w")
    assert log.new(WORK) == [3.0]


def test_a_link_to_the_newest_log_is_followed(tmp_path):
    first, second, link = tmp_path / "1.log", tmp_path / "2.log", tmp_path / "log"
    write(first, 1.0)
    write(second, 2.0)
    link.symlink_to(first)
    log = StepLog(link)
    assert log.new(WORK) == [1.0]
    link.unlink()
    link.symlink_to(second)
    assert log.new(WORK) == [2.0]


def test_after_a_restart_it_is_read_on_from_where_it_was(tmp_path):
    path = tmp_path / "train.log"
    write(path, 1.0)
    log = StepLog(path)
    log.new(WORK)
    write(path, 2.0, end="")
    log.new(WORK)  # half a line, which is not counted as read
    left = log.position
    log.close()
    write(path, end="\n")
    assert StepLog(path, left).new(WORK) == [2.0]
    other = Position(left.file_id + 1, left.offset_b)
    assert StepLog(path, other).new(WORK) == [1.0, 2.0]


def test_of_a_huge_log_the_end_is_read(tmp_path):
    path = tmp_path / "train.log"
    write(path, 1.0)
    with path.open("a") as file:
        file.write("noise\n" * 1_000_000)
    write(path, 2.0)
    assert StepLog(path).new(WORK) == [2.0]


def test_a_log_of_several_kinds_is_read_by_the_most_exact(tmp_path):
    path = tmp_path / "train.log"
    parts, rate, whole = (LINES[n][0] for n in ("deepspeed's parts", "deepspeed", "megatron"))
    path.write_text("\n".join([parts, rate, whole, parts, rate]) + "\n")
    log = StepLog(path)
    assert log.new(WORK) == [1.1476]
    with path.open("a") as file:
        file.write(parts + "\n" + whole.replace("  10/", "  11/") + "\n")
    assert log.new(WORK) == [1.1476]


def test_a_step_that_every_rank_prints_counts_once(tmp_path):
    path = tmp_path / "train.log"
    line = LINES["torchtitan"][0]
    path.write_text(f"{line}\n" * 8 + line.replace("step:  4", "step:  5") + "\n")
    assert len(StepLog(path).new(WORK)) == 2


def test_what_is_skipped_is_not_read(tmp_path):
    path = tmp_path / "train.log"
    write(path, 1.0)
    log = StepLog(path)
    log.skip()
    write(path, 2.0)
    assert log.new(WORK) == [2.0]


def test_progress_bars_and_broken_letters_do_no_harm(tmp_path):
    path = tmp_path / "train.log"
    path.write_bytes(b'\xff\xfe 10%|#\r{"step_s": 1.0}\r{"step_s": 2.0}\r\n')
    assert StepLog(path).new(WORK) == [1.0, 2.0]
