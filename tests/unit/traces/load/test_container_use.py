"""Alibaba's container_usage, and the mean use of its cluster."""

import numpy as np
import pytest

from trimtab.errors import TraceError
from trimtab.traces.load.container_use import read_cluster_usage, read_container_usage
from trimtab.traces.load.samples_file import read_samples


def test_containers_by_id_and_percents_out_of_range_are_unknown(tmp_path):
    path = tmp_path / "container_usage.csv"
    path.write_text(
        "c_1,m_1,0,50,20,,,,0,0,1\nc_1,m_1,300,120,20,,,,0,0,1\n,m_2,300,30,20,,,,0,0,1\n"
    )
    samples = read_container_usage(path)
    assert list(samples.names) == ["c_1", "on m_2"]
    assert samples.time_s.tolist() == [0.0, 300.0, 300.0]
    np.testing.assert_array_equal(samples.cpu, [0.5, np.nan, 0.3])


def test_rows_without_a_time_are_refused(tmp_path):
    path = tmp_path / "container_usage.csv"
    path.write_text("c_1,m_1,,50,20,,,,0,0,1\n")
    with pytest.raises(TraceError, match="no row has a time_stamp"):
        read_container_usage(path)


def test_the_mean_of_the_cluster_is_eight_days_of_one_machine(tmp_path):
    path = tmp_path / "cluster_usage.csv"
    head = "cpu_util_percent,mem_util_percent,net_in,net_out,disk_io_percent\n"
    path.write_text(head + "40,80,30,20,5\n" * (8 * 288))
    samples = read_cluster_usage(path)
    assert samples.time_s[1] == 300.0 and samples.time_s[-1] == 8 * 86400.0 - 300.0
    assert (samples.cpu == 0.4).all() and list(samples.names) == ["cluster"]
    assert (read_samples(path).cpu == samples.cpu).all()  # known by its header
