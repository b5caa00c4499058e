"""Writes the dumps of one small site as Slurm's releases from 20.11 to 24.11 print them.

They differ in the order and names of fields, in fields that come and go, and in the shapes of JSON.
"""

import json
from pathlib import Path
from typing import Any

VERSIONS = ("20.11", "21.08", "22.05", "23.02", "23.11", "24.05", "24.11")
WITH_JSON = VERSIONS[1:]

# name: CPUs without the reserved ones, memory MB, reserved MB, gres, features, partitions, state
NODES: dict[str, tuple[int, int, int, str, str, str, str]] = {
    "gpu01": (62, 515000, 1000, "gpu:a100:8(S:0-1)", "a100,nvlink", "gpu,all", "IDLE"),
    "gpu02": (62, 515000, 1000, "gpu:a100:8(S:0-1)", "a100,nvlink", "gpu,all", "ALLOCATED"),
    "cpu1": (32, 128000, 0, "", "", "cpu,all", "MIXED"),
    "cpu2": (32, 128000, 0, "", "", "cpu,all", "DOWN*"),
    "cpu3": (32, 127500, 0, "", "", "cpu,all", "IDLE+DRAIN"),
}
PARTITIONS: dict[str, dict[str, str]] = {
    "cpu": {"nodes": "cpu[1-3]", "default": "YES", "max": "1-00:00:00", "tier": "1"},
    "gpu": {"nodes": "gpu[01-02]", "default": "NO", "max": "2-00:00:00", "tier": "5"},
    "all": {"nodes": "cpu[1-3],gpu[01-02]", "default": "NO", "max": "UNLIMITED", "tier": "1"},
}
CONFIG = """\
Configuration data as of 2025-03-01T08:00:00
AccountingStorageBackupHost = (null)
PriorityDecayHalfLife   = 7-00:00:00
PriorityType            = priority/multifactor
PriorityWeightAge       = 1000
PriorityWeightFairShare = 10000
SchedulerParameters     = bf_interval=30,bf_window=4320
SchedulerType           = sched/backfill
SlurmctldPort           = 6817

Slurmctld(primary) at head is UP
"""
RESERVATION = """\
ReservationName=course StartTime=2025-03-10T08:00:00 EndTime=2025-03-10T20:00:00 Duration=12:00:00
   Nodes=gpu01 NodeCnt=1 CoreCnt=32 Features=(null) PartitionName=(null) Flags=SPEC_NODES
   TRES=cpu=64
   Users=ana,bo {groups}Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)
"""


def old(version: str, than: str) -> bool:
    return VERSIONS.index(version) < VERSIONS.index(than)


def nodes_text(version: str, *, oneliner: bool = False) -> str:
    blocks = []
    for name, (cpus, mem, spec, gres, features, partitions, state) in NODES.items():
        total, cores = (64, 1) if spec else (cpus, 0)
        efctv = "" if old(version, "22.05") else f"CPUEfctv={cpus} "
        lines = [
            f"NodeName={name} Arch=x86_64 CoresPerSocket={total // 4} ",
            f"CPUAlloc=0 {efctv}CPUTot={total} CPULoad=0.01",
            f"AvailableFeatures={features or '(null)'}",
            f"ActiveFeatures={features or '(null)'}",
            f"Gres={gres or '(null)'}",
            f"NodeAddr={name} NodeHostName={name} Version={version}.8",
            "OS=Linux 5.14.0-362.8.1.el9_3.x86_64 #1 SMP PREEMPT_DYNAMIC Tue Nov 7 ",
            f"RealMemory={mem} AllocMem=0 FreeMem=9000 Sockets=2 Boards=1",
        ]
        if spec:
            lines += [f"CoreSpecCount={cores} CPUSpecList=62-63 MemSpecLimit={spec}"]
        lines += [
            f"State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
            f"Partitions={partitions} ",
            "BootTime=2025-02-01T08:00:00 SlurmdStartTime=2025-02-01T08:01:00",
            f"CfgTRES=cpu={cpus},mem={mem}M,billing={cpus}",
            "AllocTRES=",
        ]
        if old(version, "24.05"):
            lines += ["CapWatts=n/a", "CurrentWatts=0 AveWatts=0"]
        if state == "DOWN*":
            lines += ["Reason=Not responding: a=b [slurm@2025-02-28T10:00:00]"]
        blocks.append((" " if oneliner else "\n   ").join(line.strip() for line in lines) + "\n")
    return ("" if oneliner else "\n").join(blocks)


def partitions_text(version: str, *, oneliner: bool = False) -> str:
    blocks = []
    for name, part in PARTITIONS.items():
        root = "DisableRootJobs=NO ExclusiveUser=NO"
        if not old(version, "24.05"):
            root += " ExclusiveTopo=NO"
        socket = "" if old(version, "23.02") else " MaxCPUsPerSocket=UNLIMITED"
        lines = [
            f"PartitionName={name}",
            "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
            f"AllocNodes=ALL Default={part['default']} QoS=N/A",
            f"DefaultTime=01:00:00 {root} GraceTime=0 Hidden=NO",
            f"MaxNodes=UNLIMITED MaxTime={part['max']} MinNodes=0 LLN=NO"
            f" MaxCPUsPerNode=UNLIMITED{socket}",
            *(["NodeSets=ALL"] if name == "all" and not old(version, "23.11") else []),
            f"Nodes={part['nodes']}",
            f"PriorityJobFactor=1 PriorityTier={part['tier']} RootOnly=NO ReqResv=NO"
            " OverSubscribe=NO",
            "OverTimeLimit=NONE PreemptMode=OFF",
            "State=UP TotalCPUs=160 TotalNodes=5 SelectTypeParameters=NONE",
            "JobDefaults=(null)",
            "DefMemPerCPU=500 MaxMemPerNode=UNLIMITED",
            *([] if old(version, "22.05") else ["TRES=cpu=160,mem=1G,node=5,billing=160"]),
        ]
        blocks.append((" " if oneliner else "\n   ").join(lines) + "\n")
    return ("" if oneliner else "\n").join(blocks)


def reservation_text(version: str) -> str:
    return RESERVATION.format(groups="" if old(version, "22.05") else "Groups=(null) ")


def qos_text(version: str) -> str:
    run_mins = "" if old(version, "23.11") else "|MaxTRESRunMinsPA|MaxTRESRunMinsPU"
    names = (
        "Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageThres|UsageFactor"
        "|GrpTRES|GrpTRESMins|GrpTRESRunMins|GrpJobs|GrpSubmit|GrpWall|MaxTRES|MaxTRESPerNode"
        "|MaxTRESMins|MaxWall|MaxTRESPU|MaxJobsPU|MaxSubmitPU|MaxTRESPA|MaxJobsPA|MaxSubmitPA"
        f"{run_mins}|MinTRES"
    )
    rows = [
        {"Name": "normal", "Priority": "0", "UsageFactor": "1.000000"},
        {"Name": "urgent", "Priority": "100", "UsageFactor": "1.000000", "Preempt": "normal"}
        | {"MaxWall": "04:00:00", "MaxTRESPU": "gres/gpu=4,mem=512G", "MaxJobsPU": "8"},
    ]
    common = {"GraceTime": "00:00:00", "PreemptMode": "cluster"}
    lines = [names]
    lines += ["|".join((common | row).get(name, "") for name in names.split("|")) for row in rows]
    return "\n".join(lines) + "\n"


def assoc_text(version: str) -> str:
    names = (
        "Cluster|Account|User|Partition|Share|Priority|GrpJobs|GrpTRES|GrpSubmit|GrpWall"
        "|GrpTRESMins|MaxJobs|MaxTRES|MaxTRESPerNode|MaxSubmit|MaxWall|MaxTRESMins|QOS|Def QOS"
        "|GrpTRESRunMins"
    )
    rows = [("root", "", "1", ""), (" root", "root", "1", ""), (" science", "", "3", "cpu=500")]
    rows += [
        ("  physics", "", "2", ""),
        ("  physics", "ana", "1", ""),
        ("  physics", "bo", "4", ""),
    ]
    rows += [(" art", "", "1", "")]
    lines = [names]
    for account, user, share, limit in rows:
        row = {"Cluster": "tt", "Account": account, "User": user, "Share": share, "GrpTRES": limit}
        row["Priority"] = "" if old(version, "21.08") else "0"
        lines.append("|".join(row.get(name, "") for name in names.split("|")))
    return "\n".join(lines) + "\n"


def sinfo_text(*, bars: bool) -> str:
    """Of sinfo -N with chosen fields: a line a node and partition."""
    names = ("NODELIST", "CPUS", "MEMORY", "GRES", "AVAIL_FEATURES", "PARTITION", "STATE")
    join = "|" if bars else " "
    lines = [join.join(names)]
    for name, (cpus, mem, _, gres, features, partitions, state) in NODES.items():
        for partition in partitions.split(","):
            star = "*" if PARTITIONS[partition]["default"] == "YES" else ""
            state = {"DOWN*": "down*", "IDLE+DRAIN": "drained"}.get(state, state.lower())
            row = (name, str(cpus), str(mem), gres or "(null)", features or "(null)")
            lines.append(join.join((*row, partition + star, state)))
    return "\n".join(lines) + "\n"


def nodes_json(version: str) -> str:
    """Of scontrol show node --json."""
    nodes = []
    for name, (cpus, mem, spec, gres, features, partitions, state) in NODES.items():
        base, *flags = state.rstrip("*").split("+")
        flags += ["NOT_RESPONDING"] * state.endswith("*")
        node: dict[str, Any] = {"name": name, "hostname": name, "gres": gres, "weight": 1}
        node |= {"cpus": 64 if spec else cpus, "threads": 2, "real_memory": mem}
        node |= {"specialized_memory": spec, "specialized_cores": 1 if spec else 0}
        node["partitions"] = partitions.split(",")
        if old(version, "23.02"):
            node |= {"state": base.lower(), "state_flags": flags, "features": features}
            node["weight"] = 1
        else:
            node |= {"state": [base, *flags], "effective_cpus": cpus}
            node["features"] = features if old(version, "23.11") else features.split(",")
        nodes.append(node)
    return json.dumps({"meta": {"plugin": {}}, "errors": [], "nodes": nodes})


def partitions_json(version: str) -> str:
    """Of scontrol show partition --json, which there is from 23.02 on."""

    def number(value: int | None) -> dict[str, Any]:
        return {"set": value is not None, "infinite": value is None, "number": value or 0}

    minutes = {"cpu": 1440, "gpu": 2880, "all": None}
    listed = [
        {
            "name": name,
            "nodes": {"configured": part["nodes"], "total": 2},
            "maximums": {"time": number(minutes[name]), "nodes": number(None)},
            "minimums": {"nodes": 0},
            "defaults": {"time": number(60)},
            "priority": {"tier": int(part["tier"]), "job_factor": 1},
            "qos": {"allowed": "", "deny": "", "assigned": ""},
            "accounts": {"allowed": "", "deny": ""},
            "partition": {"state": ["UP"]},
            "flags": ["DEFAULT"] if part["default"] == "YES" else [],
        }
        for name, part in PARTITIONS.items()
    ]
    return json.dumps({"partitions": listed, "meta": {"slurm": {"version": version}}})


def sinfo_json() -> str:
    """Of sinfo --Node --json, from 23.02 on."""
    rows = []
    for name, (cpus, mem, _, gres, features, partitions, state) in NODES.items():
        base, *flags = state.rstrip("*").split("+")
        for partition in partitions.split(","):
            rows.append(
                {
                    "node": {"state": [base, *flags, *["NOT_RESPONDING"] * state.endswith("*")]},
                    "nodes": {"total": 1, "hostnames": [name], "nodes": [name]},
                    "cpus": {"minimum": cpus, "maximum": cpus, "total": cpus},
                    "memory": {"minimum": mem, "maximum": mem},
                    "gres": {"total": gres, "used": ""},
                    "features": {"total": features, "active": features},
                    "partition": {"name": partition},
                }
            )
    return json.dumps({"sinfo": rows, "meta": {}})


def write_all(folder: Path, version: str) -> list[Path]:
    """Every dump of the release in text, a file each."""
    texts = {
        "nodes.txt": nodes_text(version),
        "partitions.txt": partitions_text(version),
        "reservations.txt": reservation_text(version),
        "config.txt": CONFIG,
        "qos.txt": qos_text(version),
        "assoc.txt": assoc_text(version),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]
