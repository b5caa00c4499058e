"""What is measured in turn: time is kept, failures are notes, and no process stays behind."""

import math
import subprocess
import sys
from itertools import count
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

pytest.importorskip("torch", reason="measuring needs torch")
import torch

from trimtab.errors import PlanError
from trimtab.llm.calibrate import devices, host, laws, products, scores, streams, sums
from trimtab.llm.calibrate.gpu_profile import MEASURED, believable
from trimtab.llm.calibrate.measure import Kind, calibrated, gpu_of, taken
from trimtab.llm.calibrate.rows import Turn, Unmeasured
from trimtab.llm.spec.specs import gpu as listed_gpu

pytestmark = pytest.mark.slow

RNG = np.random.default_rng
TODAY = "2026-01-31"


@pytest.fixture(scope="module")
def cpu():
    with devices.opened("cpu") as device:
        yield device


def turn(device, seconds=0.5, flops=5e10):
    return Turn(device, seconds, flops, RNG(0))


def run(device, *kinds, seconds=1.0, told=lambda what, went_s: None, clock):
    return taken(device, kinds, seconds, RNG(0), told, clock)


BEFORE: set[int] = set()


@pytest.fixture(autouse=True)
def others():
    """Processes that other tests left, such as the one by which Python tracks shared memory."""
    BEFORE.clear()
    BEFORE.update(one.pid for one in psutil.Process().children(recursive=True))


def children():
    return [
        one
        for one in psutil.Process().children(recursive=True)
        if one.is_running() and one.pid not in BEFORE
    ]


# ---------------------------------------------------------------- the order of things


def ticking(step_s):
    """A clock that moves by `step_s` a look."""
    ticks = count()
    return lambda: next(ticks) * step_s


def test_a_kind_ends_with_its_part_of_the_time(cpu):
    def endless(turn):
        for place in count():
            yield "streams", [float(place), 1.0]

    kinds = (Kind("one", 1.0, endless), Kind("two", 1.0, endless))
    rows, notes = run(cpu, *kinds, seconds=100.0, clock=ticking(1.0))
    # fifty looks at the clock each, a few of them the driver's own
    assert 80 < len(rows["streams"]) <= 100 and notes == []


def test_a_late_kind_still_gets_the_rows_that_a_fit_needs(cpu):
    def slow(turn):
        yield from (("products", [1.0, 1.0, 1.0, 1.0]) for _ in range(50))

    rows, _ = run(cpu, Kind("products", 1.0, slow), seconds=1.0, clock=ticking(10.0))
    assert len(rows["products"]) == laws.LEAST["products"]


def test_what_fails_is_a_note_and_the_rest_goes_on(cpu):
    def no_kernel(turn):
        raise RuntimeError("no kernel for this device\nwith more lines")
        yield

    def none(turn):
        raise Unmeasured("links: one GPU has none")
        yield

    def good(turn):
        yield "heat", [0.0, 0.0012345678]

    kinds = (Kind("first", 1.0, no_kernel), Kind("next", 1.0, none), Kind("last", 1.0, good))
    rows, notes = run(cpu, *kinds, clock=ticking(0.01))
    assert notes == ["first: failed (no kernel for this device)", "links: one GPU has none"]
    assert rows == {"heat": [[0.0, 0.001235]]}


def test_sizes_stay_exact_and_times_have_four_digits(cpu):
    def one(turn):
        yield "products", [16383, 50257, 4095, 0.123456789]

    rows, _ = run(cpu, Kind("products", 1.0, one), clock=ticking(0.01))
    assert rows["products"] == [[16383.0, 50257.0, 4095.0, 0.1235]]


def test_the_bar_hears_every_second_once(cpu):
    heard = []
    kinds = [Kind(name, 1.0, lambda t: iter_rows(3)) for name in ("one", "two")]
    run(cpu, *kinds, seconds=9.0, told=lambda what, s: heard.append((what, s)), clock=ticking(0.1))
    assert {what for what, _ in heard} == {"one", "two"}
    assert 0 < sum(went_s for _, went_s in heard) < 9.0


def iter_rows(rows):
    yield from (("streams", [1.0, 1.0]) for _ in range(rows))


# ---------------------------------------------------------------- shapes


def test_any_first_part_of_the_products_spans_them_all():
    shapes = products.layer_shapes(RNG(0))
    first = shapes[:60]
    assert len(shapes) == len(products.ROWS) * len(products.HIDDEN) * len(products.SLICES) * 4
    assert {shape.m for shape in first} >= {1, 16, 1024, 16384}
    assert min(s.k for s in first) <= 512 and max(s.k for s in first) >= 16384
    assert shapes == products.layer_shapes(RNG(0))


def test_stream_sizes_are_whole_pages_from_1_mib_to_2_gib():
    assert streams.SIZES_B[0] == 2**20 and streams.SIZES_B[-1] == 2**31
    assert sorted(streams.ORDER) == list(range(len(streams.SIZES_B)))
    assert all(size_b % 4096 == 0 for size_b in streams.SIZES_B)


@pytest.mark.parametrize(
    ("most_flop", "want"),
    [(1e15, (8, 16, 2048, 128)), (2e10, (1, 16, 2048, 128)), (3e9, (1, 2, 2048, 128)), (1e6, None)],
)
def test_attention_shrinks_by_its_batch_then_by_its_heads(most_flop, want):
    # 2 x 2048^2 x 128 = 1.07e9 FLOP a head
    assert scores.sized(2048, 128, most_flop) == want


def test_short_sequences_are_measured_on_the_slowest_device_too():
    assert scores.sized(512, 64, 1.0) == (1, 1, 512, 64)


@pytest.mark.parametrize(("gpus", "want"), [(2, [2]), (4, [4, 2]), (6, [6, 2, 4]), (8, [8, 2, 4])])
def test_groups_are_all_gpus_then_the_powers_of_two_below(gpus, want):
    assert sums.group_sizes(gpus) == want


# ---------------------------------------------------------------- on the processor


def test_every_kind_gives_rows_that_a_fit_can_use(cpu):
    kinds = (streams.streams, products.products, products.ragged, products.single)
    kinds += (scores.fused, scores.unfused, products.heat)
    for kind in kinds:
        found = list(kind(turn(cpu)))[:5]
        assert found, kind
        for table, row in found:
            assert len(row) == len(laws.COLUMNS[table])
            times = [v for name, v in zip(laws.COLUMNS[table], row) if name.endswith("run_s")]
            assert all(0 < run_s < math.inf for run_s in times)


def test_a_processor_has_no_meter_and_no_8_bits(cpu):
    for kind in (streams.idle_power, products.eights):
        with pytest.raises(Unmeasured):
            list(kind(turn(cpu)))
    assert list(streams.stream_power(turn(cpu))) == []


def test_an_unfused_attention_is_the_fused_one_but_for_dropout(cpu, monkeypatch):
    monkeypatch.setattr(scores.F, "dropout", lambda x, p, training: x)
    shape = scores.Heads(1, 2, 64, 32)
    given = scores.operands(cpu, shape)
    monkeypatch.setattr(scores, "operands", lambda *_: given)
    want = scores.F.scaled_dot_product_attention(*given, is_causal=True)[0]
    assert torch.allclose(scores.unfused_call(cpu, shape)(), want, atol=0.05)


def test_a_product_is_that_of_a_linear_layer(cpu):
    m, n, k = shape = products.Shape(3, 5, 8)
    made = products.product(cpu, shape)()
    a, b = cpu.inputs[: m * k].view(m, k), cpu.inputs[256 : 256 + n * k].view(n, k)
    assert torch.allclose(made, torch.nn.functional.linear(a, b))


def test_threads_are_as_before_when_the_processor_was_measured():
    before = torch.get_num_threads()
    with devices.opened("cpu"):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


# ---------------------------------------------------------------- processes of our own


def test_launches_are_timed_alone_and_under_each_load(cpu):
    found = [row for _, row in host.launches(turn(cpu, seconds=1.0))]
    assert [load for load, _ in found] == [0.0, 0.5, 0.9, 1.5]
    assert all(0 < launch_s < math.inf for _, launch_s in found)
    assert children() == []


def test_busy_processes_end_when_the_work_is_stopped(cpu):
    def stop(what, went_s):
        if len(children()) > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(cpu, Kind("launches", 1.0, host.launches), told=stop, clock=ticking(0.01))
    assert children() == []


@pytest.mark.parametrize(
    ("quota", "want"), [("100000 100000", 1), ("10000 100000", 1), ("max 100000", None), ("", None)]
)
def test_a_container_s_quota_counts_as_its_cores(tmp_path, quota, want):
    (tmp_path / "cpu.max").write_text(quota)
    assert host.cores(tmp_path / "cpu.max") == (want or host.cores(tmp_path / "none"))


def test_a_busy_process_ends_by_itself():
    words = [sys.executable, "-I", "-S", "-c", host.BUSY, "0.2", "0.5"]
    assert host.apart(words).wait(timeout=120) == 0


def test_ranks_sum_and_end(cpu):
    found = [row for _, row in sums.group("cpu", 2, 1.0)]
    sizes_b = [size_b for size_b, _, _ in found]
    assert sizes_b == sorted(sizes_b) and sizes_b[0] == 4096
    assert all(ranks == 2 and 0 < run_s < math.inf for _, ranks, run_s in found)
    assert children() == []


def test_ranks_end_when_nobody_listens_any_more():
    rows = sums.group("cpu", 2, 5.0)
    next(rows)
    assert len(children()) >= 2
    rows.close()
    assert children() == []


def test_ranks_that_fail_say_why():
    with pytest.raises(Unmeasured, match=r"2 ranks failed .*tpu"):
        list(sums.group("tpu", 2, 1.0))
    assert children() == []


def test_one_gpu_has_no_links():
    with pytest.raises(Unmeasured, match="links: one GPU"):
        list(sums.sums(turn(SimpleNamespace(ranks=1, kind="cuda"))))


# ---------------------------------------------------------------- what GPU it was


def device_of(name, **more):
    about = {"kind": "cuda", "name": name, "ranks": 4, "memory_b": 1.063e11, "dtype": "float16"}
    return SimpleNamespace(**(about | more))


def test_a_known_gpu_keeps_its_datasheet():
    notes = []
    assert gpu_of(device_of("NVIDIA H200"), {}, notes) == listed_gpu("H200")
    assert notes == []


def test_an_unknown_gpu_has_the_peaks_that_were_measured():
    rows = {
        "products": [[1000.0, 1000.0, 1000.0, 1e-5]],
        "single": [[1000.0, 1000.0, 1000.0, 1e-4]],
        "streams": [[1e9, 1e-3]],
        "sums": [[1e9, 4.0, 1e-2]],
        "power": [[0.0, 0.0, 50.0], [1e14, 1.0, 333.0]],
    }
    notes = []
    made = gpu_of(device_of("Foo 9000"), rows, notes)
    assert (made.name, made.arch, made.source) == ("Foo 9000", "other", MEASURED)
    assert made.flops == pytest.approx(2e14) and made.fp32_flops == pytest.approx(2e13)
    assert made.memory_bps == pytest.approx(1e12) and made.memory_b == pytest.approx(1e11)
    # 2 x 1 GB x 3/4 in 10 ms
    assert made.link_bps == pytest.approx(1.5e11) and made.per_node == 4
    assert made.tdp_w == 333.0 and not made.bf16 and made.fp8_flops == 0.0
    assert "Foo 9000 is not in our tables" in notes[0]


def test_a_gpu_of_which_nothing_could_be_measured_is_refused():
    with pytest.raises(PlanError, match="Foo 9000: no product or stream could be measured"):
        gpu_of(device_of("Foo 9000"), {}, ["products: failed"])


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e9, float("nan"), float("inf")])
def test_a_time_that_cannot_be_is_refused(seconds):
    with pytest.raises(PlanError, match=r"--seconds .* is not between 1 and 3600"):
        calibrated("cpu", seconds, today=TODAY, rng=RNG(0))


def test_an_unknown_device_is_refused():
    with pytest.raises(PlanError, match="--device tpu is unknown; take cuda"):
        calibrated("tpu", 5.0, today=TODAY, rng=RNG(0))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_a_gpu_is_told_what_to_do():
    with pytest.raises(PlanError, match="sees no GPU; install torch for your CUDA or ROCm"):
        calibrated("cuda", 5.0, today=TODAY, rng=RNG(0))


def test_without_torch_the_remedy_is_named_and_nothing_else_needs_it():
    code = (
        "import sys, numpy as np; sys.modules['torch'] = None\n"
        "import trimtab.cli.plan.plan_calibrate, trimtab.llm.calibrate.rates\n"
        "from trimtab.llm.calibrate.measure import calibrated\n"
        "calibrated('cpu', 5.0, today='', rng=np.random.default_rng(0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert "measuring needs torch" in last and "pip install 'trimtab[train]'" in last


# ---------------------------------------------------------------- a stand-in for a GPU


class Event:
    """A moment of the host's clock in the place of the stream's."""

    def __init__(self, enable_timing=False):
        self.at_s = 0.0

    def record(self):
        self.at_s = devices.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, later):
        return (later.at_s - self.at_s) * 1e3


class Stand:
    """torch with a GPU whose memory is the host's."""

    def __init__(self, free_b=0.8e9, total_b=1e9, load=0, gpus=1, hip=None):
        about = SimpleNamespace(
            name="NVIDIA H200", multi_processor_count=132, total_memory=int(total_b)
        )
        self.version = SimpleNamespace(hip=hip, cuda="13.0")
        self.cuda = SimpleNamespace(
            Event=Event,
            is_available=lambda: True,
            set_device=lambda at: None,
            get_device_properties=lambda at: about,
            device_count=lambda: gpus,
            is_bf16_supported=lambda including_emulation: True,
            mem_get_info=lambda at: (int(free_b), int(total_b)),
            utilization=lambda at: load,
            power_draw=lambda at: 250 if hip else 250_000,
            synchronize=lambda at: None,
            empty_cache=lambda: None,
        )

    def device(self, kind, index=0):
        return torch.device("cpu")

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.fixture
def stand(monkeypatch):
    def make(**more):
        made = Stand(**more)
        monkeypatch.setattr(devices, "torch", made)
        return made

    return make


def test_the_gpu_s_own_way_of_timing_gives_rows_and_power(stand):
    stand()
    with devices.opened("cuda") as device:
        assert (device.name, device.units, device.dtype) == ("NVIDIA H200", 132, torch.bfloat16)
        assert device.watts() == 250.0 and device.driver()["cuda"] == "13.0"
        shape = products.Shape(64, 64, 64)
        assert 0 < device.timed(products.product(device, shape)) < math.inf
        assert 0 < device.host_s(lambda: None) < math.inf
        batches = list(device.sustained(products.product(device, shape), 0.3))
        assert batches and all(0 < run_s < math.inf for _, run_s in batches)
        idle = list(streams.idle_power(turn(device, seconds=0.4)))
        assert idle == [("power", [0.0, 0.0, 250.0])]


def test_power_under_load_is_told_once_the_meter_has_settled(stand):
    stand()
    with devices.opened("cuda") as device:
        made = [row for kind, row in products.heat(turn(device, seconds=1.6)) if kind == "power"]
        assert len(made) == 1 and made[0][0] > 0 and made[0][1:] == [1.0, 250.0]
        assert list(streams.stream_power(turn(device, seconds=1.6))) == [
            ("power", [0.0, 1.0, 250.0])
        ]


def test_amd_tells_watts_where_nvidia_tells_milliwatts(stand):
    stand(hip="6.4")
    with devices.opened("cuda") as device:
        assert device.watts() == 250.0 and device.driver()["rocm"] == "6.4"


@pytest.mark.parametrize(
    ("more", "why"), [({"total_b": 9e9}, "8.2 GB are held"), ({"load": 60}, "60 % used")]
)
def test_a_busy_gpu_is_refused(stand, more, why):
    stand(**more)
    busy = pytest.raises(PlanError, match=rf"the first GPU is busy \({why}\); stop that work")
    with busy, devices.opened("cuda"):
        pass


def test_links_of_a_machine_with_one_busy_gpu_are_left_out(stand):
    stand(load=60)
    with pytest.raises(Unmeasured, match="links: GPU 1 is busy"):
        list(sums.sums(turn(SimpleNamespace(ranks=2, kind="cuda"))))


# ---------------------------------------------------------------- a real GPU


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_real_gpu_is_measured_and_believed():
    made = calibrated("cuda", 20.0, today=TODAY, rng=RNG(0))
    assert {"gemm_flop", "stream_share", "flash_share", "host", "hot"} <= made.law.keys()
    assert all(believable(name, value) for name, value in made.law.items())
    products_error = next(one for one in made.figures if one["what"] == "products")
    assert products_error["mean_error"] < 0.3
    assert ("link_share" in made.law or "pcie_share" in made.law) == (torch.cuda.device_count() > 1)
