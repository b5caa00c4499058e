"""Folders with a trace in them: a small twin, and one written by hand in which every rule fires."""

import hashlib
from pathlib import Path
from typing import Any

from trimtab.traces.twin import write_twin

LEAST_MEMORY = 256 << 20

MACHINE_META = """\
m_1,0,1,1,96,100,USING
m_2,0,2,2,96,100,USING
m_1,100,1,1,96,100,USING
,0,1,1,96,100,USING
m_3,,1,1,96,100,USING
m_2,-5,2,2,96,100,USING
m_5,0,1,1,,100,USING
m_6,0,1,1,0,100,USING
m_2,50,2,2,64,100,USING
"""
MACHINE_META_COUNTS = {
    "no-machine": 1, "no-time": 1, "bad-time": 1, "no-capacity": 1, "bad-capacity": 1,
    "changed": 1, "repeated": 1,
}  # fmt: skip

CONTAINER_META = """\
c_1,m_1,0,app_1,started,4800,4800,25
c_2,m_2,300,app_2,started,960,960,10
c_1,m_1,600,app_1,started,4800,4800,25
,m_1,0,app_1,started,400,400,1
c_3,,0,app_1,started,400,400,1
c_4,m_1,,app_1,started,400,400,1
c_2,m_2,-1,app_2,started,960,960,10
c_6,m_1,0,app_1,started,,,1
c_7,m_1,0,app_1,started,0,400,1
c_8,m_9,0,app_1,started,400,400,1
c_9,m_1,0,app_1,started,9700,9700,1
"""
CONTAINER_META_COUNTS = {
    "no-id": 1, "no-machine": 1, "no-time": 1, "bad-time": 1, "no-request": 1, "bad-request": 1,
    "unknown-machine": 1, "over-capacity": 1, "repeated": 1,
}  # fmt: skip

# net_in -1 and disk 101 of the second row are masked, the row is kept
MACHINE_USAGE = """\
m_1,10,40,60,,,10,20,30
m_1,20,60,80,,,-1,40,101
m_2,10,20,40,,,10,10,10
m_2,310,40,40,,,10,10,10
m_1,10,40,60,,,10,20,30
,10,40,60,,,10,20,30
m_1,,40,60,,,10,20,30
m_1,-3,40,60,,,10,20,30
m_1,30,,60,,,10,20,30
m_1,30,101,60,,,10,20,30
m_1,30,150,60,,,10,20,30
m_9,30,40,60,,,10,20,30
m_1,10000000,40,60,,,10,20,30
"""
MACHINE_USAGE_COUNTS = {
    "no-machine": 1, "no-time": 1, "bad-time": 1, "no-value": 1, "marked-invalid": 1,
    "over-capacity": 1, "unknown-machine": 1, "stray-time": 1, "repeated": 1,
}  # fmt: skip

CONTAINER_USAGE = """\
c_1,m_1,10,10,20,,,,,,
c_1,m_1,20,30,40,,,,,,
c_2,m_2,310,50,50,,,,,,
c_1,m_1,10,10,20,,,,,,
,m_1,10,10,20,,,,,,
c_1,m_1,,10,20,,,,,,
c_1,m_1,-1,10,20,,,,,,
c_1,m_1,30,10,,,,,,,
c_1,m_1,30,-1,20,,,,,,
c_1,m_1,30,120,20,,,,,,
c_99,m_1,30,10,20,,,,,,
c_1,m_1,10000000,10,20,,,,,,
"""
CONTAINER_USAGE_COUNTS = {
    "no-id": 1, "no-time": 1, "bad-time": 1, "no-value": 1, "marked-invalid": 1,
    "over-capacity": 1, "unknown-container": 1, "stray-time": 1, "repeated": 1,
}  # fmt: skip

BATCH_TASK = """\
M1,2,j_1,1,Terminated,60,120,100,1
R2_1,1,j_1,1,Terminated,60,240,50,0.5
M3,1,j_1,1,Terminated,60,150,100,1
J4_2_3,1,j_1,1,Terminated,60,400,200,2
task_x,1,j_2,1,Terminated,30,90,100,1
M1,2,,1,Terminated,60,120,100,1
M1,1,j_3,1,Running,60,0,100,1
M1,1,j_4,1,Waiting,60,0,,
M1,1,j_1,1,Failed,40,50,100,1
M1,1,j_6,1,Cancelled,60,120,100,1
M1,1,j_7,1,Terminated,60,,100,1
M1,1,j_8,1,Terminated,-1,120,100,1
M1,1,j_9,1,Terminated,60,50,100,1
M1,1,j_1,1,Terminated,50,55,,1
M1,1,j_11,1,Terminated,60,120,0,1
M1,0,j_12,1,Terminated,60,120,100,1
M1,1,j_13,1,Terminated,60,120,9700,1
M1,1,j_14,1,Terminated,10000000,10000010,100,1
M1,2,j_1,1,Terminated,60,120,100,1
"""
BATCH_TASK_COUNTS = {
    "no-id": 1, "running": 1, "waiting": 1, "failed": 1, "other-status": 1, "no-time": 1,
    "bad-time": 1, "end-before-start": 1, "no-plan": 1, "bad-plan": 2, "over-capacity": 1,
    "stray-time": 1, "repeated": 1,
}  # fmt: skip

BATCH_INSTANCE = """\
i_1,M1,j_1,1,Terminated,90,120,m_1,1,1,50,60,0.5,0.6
i_2,M1,j_1,1,Terminated,60,120,m_2,1,1,80,90,1,1.1
i_3,R2_1,j_1,1,Terminated,150,240,m_1,1,1,25,30,0.25,0.3
i_4,M3,j_1,1,Terminated,60,150,m_2,1,1,100,110,1,1.1
i_5,J4_2_3,j_1,1,Terminated,270,400,m_1,1,1,100,110,1,1.1
i_6,task_x,j_2,1,Terminated,30,90,m_2,1,1,150,160,1,1.1
,M1,j_1,1,Terminated,90,120,m_1,1,1,50,60,0.5,0.6
i_8,M1,j_1,1,Running,90,0,m_1,1,1,50,60,0.5,0.6
i_9,M1,j_1,1,Ready,90,0,m_1,1,1,,,,
i_10,M1,j_1,1,Failed,90,120,m_1,1,1,50,60,0.5,0.6
i_11,M1,j_1,1,Interrupted,90,120,m_1,1,1,50,60,0.5,0.6
i_12,M1,j_1,1,Terminated,,120,m_1,1,1,50,60,0.5,0.6
i_13,M1,j_1,1,Terminated,-90,120,m_1,1,1,50,60,0.5,0.6
i_14,M1,j_1,1,Terminated,90,80,m_1,1,1,50,60,0.5,0.6
i_15,M1,j_1,1,Terminated,90,120,,1,1,50,60,0.5,0.6
i_16,M1,j_1,1,Terminated,90,120,m_9,1,1,50,60,0.5,0.6
i_17,M1,j_1,1,Terminated,90,120,m_1,1,1,9700,9700,0.5,0.6
i_18,M1,j_1,1,Terminated,90,120,m_1,1,1,-1,60,0.5,0.6
i_19,M1,j_1,1,Terminated,10000000,10000030,m_1,1,1,50,60,0.5,0.6
i_20,M9,j_1,1,Terminated,90,120,m_1,1,1,50,60,0.5,0.6
i_21,M1,j_1,1,Terminated,50,120,m_1,1,1,50,60,0.5,0.6
i_1,M1,j_1,1,Terminated,90,120,m_1,1,1,50,60,0.5,0.6
"""
BATCH_INSTANCE_COUNTS = {
    "no-id": 1, "running": 1, "waiting": 1, "failed": 1, "other-status": 1, "no-time": 1,
    "bad-time": 1, "end-before-start": 1, "no-machine": 1, "unknown-machine": 1,
    "over-capacity": 1, "bad-value": 1, "stray-time": 1, "unknown-task": 1, "before-task": 1,
    "repeated": 1,
}  # fmt: skip

BY_HAND = {
    "machine_meta": MACHINE_META,
    "machine_usage": MACHINE_USAGE,
    "container_meta": CONTAINER_META,
    "container_usage": CONTAINER_USAGE,
    "batch_task": BATCH_TASK,
    "batch_instance": BATCH_INSTANCE,
}
COUNTS = {
    "machine_meta": MACHINE_META_COUNTS,
    "machine_usage": MACHINE_USAGE_COUNTS,
    "container_meta": CONTAINER_META_COUNTS,
    "container_usage": CONTAINER_USAGE_COUNTS,
    "batch_task": BATCH_TASK_COUNTS,
    "batch_instance": BATCH_INSTANCE_COUNTS,
}


def written(folder: Path, tables: dict[str, str | None] | None = None) -> Path:
    """The tables by hand as CSV without a header; `tables` replaces some, None leaves one out."""
    folder.mkdir(parents=True, exist_ok=True)
    for table, text in {**BY_HAND, **(tables or {})}.items():
        if text is not None:
            (folder / f"{table}.csv").write_text(text)
    return folder


def small_twin(folder: Path, **options: Any) -> dict[str, Any]:
    """Two thirds of a second to make, with some of every kind of dirt in the large tables."""
    small = {"machines": 12, "days": 1.2, "instances": 12_000, "dirt": 0.02}
    return write_twin(folder, **{**small, **options})


def hashes(folder: Path) -> dict[str, str]:
    """sha256 of every file, by its name."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in found
    }
