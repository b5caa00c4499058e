"""RDMA ports from a made-up /sys/class/infiniband."""

import math

import pytest

from trimtab.load.rdma import RdmaPorts, port_bytes


def put(root, card, received, sent, *, rate="200 Gb/sec (4X HDR)", state="4: ACTIVE"):
    """A port with counters in words of 4 bytes, as the kernel has them."""
    port = root / card / "ports" / "1"
    (port / "counters").mkdir(parents=True, exist_ok=True)
    (port / "rate").write_text(rate + "\n")
    (port / "state").write_text(state + "\n")
    (port / "counters" / "port_rcv_data").write_text(f"{received}\n")
    (port / "counters" / "port_xmit_data").write_text(f"{sent}\n")


def test_words_of_four_bytes_and_gigabits_become_bytes(tmp_path):
    put(tmp_path, "mlx5_0", 10, 20)
    assert port_bytes(tmp_path) == {"mlx5_0/1": (40, 80, 25e9)}  # 200 Gb/s = 25 GB/s


def test_ports_that_are_down_or_tell_no_rate_are_left_out(tmp_path):
    put(tmp_path, "mlx5_0", 1, 1, state="1: DOWN")
    put(tmp_path, "mlx5_1", 1, 1, rate="unknown")
    put(tmp_path, "mlx5_2", 1, 1)
    (tmp_path / "mlx5_2/ports/1/counters/port_rcv_data").unlink()
    assert port_bytes(tmp_path) == {}
    assert port_bytes(tmp_path / "absent") == {}


def test_shares_are_of_the_speed_of_all_active_ports(tmp_path):
    ports = RdmaPorts(tmp_path)
    put(tmp_path, "mlx5_0", 0, 0)
    put(tmp_path, "mlx5_1", 0, 0)
    assert all(math.isnan(share) for share in ports.shares(0.0))
    # 2 s x 2 ports x 25 GB/s = 100 GB; received 4 x 5e9 = 20 GB, sent 4 x 2.5e9 = 10 GB
    put(tmp_path, "mlx5_0", 5_000_000_000, 2_500_000_000)
    assert ports.shares(2.0) == pytest.approx((0.2, 0.1))


def test_without_ports_nothing_is_measured(tmp_path):
    ports = RdmaPorts(tmp_path)
    ports.shares(0.0)
    assert all(math.isnan(share) for share in ports.shares(1.0))
