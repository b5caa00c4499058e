"""The six tables of the trace: columns in order, as in the schema that comes with it.

Source: alibaba/clusterdata, cluster-trace-v2018. The published files have no header line.
"""

import re
from typing import NamedTuple

DOWNLOAD = (
    "github.com/alibaba/clusterdata, folder cluster-trace-v2018 (six .tar.gz files, 48 GB; "
    "fetchData.sh there downloads them)"
)
TEXT, NUMBER = "text", "number"
A_NUMBER = re.compile(r"-?[\d.]*(e[+-]?\d+)?", re.IGNORECASE)  # or nothing
MOST_S = 366 * 86_400  # the trace has 8 days: a later second is not a time of it


class Table(NamedTuple):
    columns: dict[str, str]  # name: TEXT or NUMBER, in the order of the file
    sha256: str  # of the published .tar.gz
    times: tuple[str, ...] = ("time_stamp",)
    looks: tuple[tuple[str, str], ...] = ()  # (column, pattern) that tell the table from others


def _columns(text: str, *, of_text: str) -> dict[str, str]:
    return {name: TEXT if name in of_text.split() else NUMBER for name in text.split()}


USAGE = "cpu_util_percent mem_util_percent"
TRAFFIC = "net_in net_out disk_io_percent"
TABLES = {
    "machine_meta": Table(
        _columns(
            "machine_id time_stamp failure_domain_1 failure_domain_2 cpu_num mem_size status",
            of_text="machine_id failure_domain_1 failure_domain_2 status",
        ),
        "b5b1b786b22cd413a3674b8f2ebfb2f02fac991c95df537f363ef2797c8f6d55",
        looks=(("machine_id", r"m_\w+"), ("cpu_num", r"[\d.]+")),
    ),
    "machine_usage": Table(
        _columns(f"machine_id time_stamp {USAGE} mem_gps mkpi {TRAFFIC}", of_text="machine_id"),
        "3e6ee87fd204bb85b9e234c5c75a5096580fdabc8f085b224033080090753a7a",
        looks=(("machine_id", r"m_\w+"), ("time_stamp", r"[\d.]+")),
    ),
    "container_meta": Table(
        _columns(
            "container_id machine_id time_stamp app_du status cpu_request cpu_limit mem_size",
            of_text="container_id machine_id app_du status",
        ),
        "febd75e693d1f208a8941395e7faa7e466e50d21c256eff12a815b7e2fa2053f",
        looks=(("machine_id", r"m_\w+"), ("time_stamp", r"[\d.]+"), ("status", r"[A-Za-z_]+")),
    ),
    "container_usage": Table(
        _columns(
            f"container_id machine_id time_stamp {USAGE} cpi mem_gps mpki {TRAFFIC}",
            of_text="container_id machine_id",
        ),
        "b4bd3b1b82f5407c1b0dd47fe736ff5152c4b016a9c30cb26f988e2d1c5e5031",
        looks=(("machine_id", r"m_\w+"), ("time_stamp", r"[\d.]+")),
    ),
    "batch_task": Table(
        _columns(
            "task_name instance_num job_name task_type status start_time end_time plan_cpu "
            "plan_mem",
            of_text="task_name job_name task_type status",
        ),
        "7c4b32361bd1ec2083647a8f52a6854a03bc125ca5c202652316c499fbf978c6",
        times=("start_time", "end_time"),
        looks=(("job_name", r"j_\w+"), ("status", r"[A-Za-z]+")),
    ),
    "batch_instance": Table(
        _columns(
            "instance_name task_name job_name task_type status start_time end_time machine_id "
            "seq_no total_seq_no cpu_avg cpu_max mem_avg mem_max",
            of_text="instance_name task_name job_name task_type status machine_id",
        ),
        "e73e5a9326669aa079ba20048ddd759383cabe1fe3e58620aa75bd034e2450c6",
        times=("start_time", "end_time"),
        looks=(("job_name", r"j_\w+"), ("status", r"[A-Za-z]+")),
    ),
}


def looks_like(fields: list[str]) -> list[str]:
    """The tables that a line could come from: by its number of columns and what they hold."""
    fitting = []
    for name, table in TABLES.items():
        if len(fields) != len(table.columns):
            continue
        cells = dict(zip(table.columns, (field.strip().strip('"') for field in fields)))
        numbers = [cells[column] for column, kind in table.columns.items() if kind == NUMBER]
        if all(A_NUMBER.fullmatch(cell) for cell in numbers) and all(
            not cells[column] or re.fullmatch(pattern, cells[column])
            for column, pattern in table.looks
        ):
            fitting.append(name)
    return fitting
