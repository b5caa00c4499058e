"""The dumps of a small Slurm site that never was, to try the path from dumps to an answer."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trimtab.arrays import Array
from trimtab.files import write_whole

START_S = 1_740_787_200  # 2025-03-01, UTC
DAYS = 28
DRAINED = "cpu05"


class Kind(NamedTuple):
    """Nodes that are alike."""

    hosts: tuple[str, ...]
    cpus: int
    mem_mb: int
    gres: str
    features: str
    partition: str


KINDS = (
    Kind(("a100-01", "a100-02"), 64, 1_031_000, "gpu:a100:4", "a100,nvlink", "gpu"),
    Kind(("v100-01", "v100-02"), 40, 385_000, "gpu:v100:4", "v100", "gpu"),
    Kind(tuple(f"cpu{n:02d}" for n in range(1, 6)), 64, 257_000, "(null)", "icelake", "cpu"),
)
PARTITIONS = """\
PartitionName=cpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=YES QoS=N/A
   DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=3-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   Nodes=cpu[01-05]
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=OFF
   State=UP TotalCPUs=320 TotalNodes=5 SelectTypeParameters=NONE

PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=NO QoS=N/A
   DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=2-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   Nodes=a100-[01-02],v100-[01-02]
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=OFF
   State=UP TotalCPUs=208 TotalNodes=4 SelectTypeParameters=NONE
"""
FIELDS = (
    "JobID|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|AllocTRES|ReqTRES|Priority|User|Account"
    "|Partition|QOS|Constraints|Reservation|SubmitLine"
)
# account: its users, and the share of the jobs that are theirs
ACCOUNTS = {
    "vision": (("ana", "bo", "cy"), 0.4),
    "speech": (("dee", "eli"), 0.3),
    "physics": (("flo", "gus", "hal", "ida"), 0.3),
}


class Span(NamedTuple):
    """What a job holds on a node."""

    start_s: int
    end_s: int
    cpus: int
    gpus: int


class Ask(NamedTuple):
    """What a job asks for."""

    partition: str
    model: str  # of its GPUs, "" = any
    cpus: int
    mem_gb: int
    gpus: int
    nodes: int
    mean_s: float


ASKS = (  # with how often each is asked
    (Ask("gpu", "a100", 16, 128, 1, 1, 16_000.0), 0.24),
    (Ask("gpu", "a100", 64, 512, 4, 1, 20_000.0), 0.09),
    (Ask("gpu", "", 8, 64, 1, 1, 24_000.0), 0.22),
    (Ask("gpu", "v100", 20, 128, 2, 1, 32_000.0), 0.12),
    (Ask("cpu", "", 8, 32, 0, 1, 24_000.0), 0.18),
    (Ask("cpu", "", 64, 192, 0, 1, 24_000.0), 0.1),
    (Ask("cpu", "", 256, 768, 0, 4, 28_000.0), 0.05),
)


def write_example(folder: str | Path, *, jobs: int = 800, seed: int = 0) -> dict[Path, str]:
    """Write nodes.txt, partitions.txt and month.txt there; what each is."""
    folder = Path(folder)
    rng = np.random.default_rng(seed)
    texts = {
        folder / "nodes.txt": (_nodes(), "as of scontrol show node"),
        folder / "partitions.txt": (PARTITIONS, "as of scontrol show partition"),
        folder / "month.txt": (_jobs(jobs, rng), "as of sacct --allusers --parsable2"),
    }
    for path, (text, _) in texts.items():
        write_whole(path, text)
    return {path: what for path, (_, what) in texts.items()}


def _nodes() -> str:
    return "\n".join(_node(host, kind) for kind in KINDS for host in kind.hosts)


def _node(host: str, kind: Kind) -> str:
    """As Slurm 23.11 prints it. One node is drained: there is always one."""
    state = "IDLE+DRAIN" if host == DRAINED else "IDLE"
    return f"""\
NodeName={host} Arch=x86_64 CoresPerSocket={kind.cpus // 2}
   CPUAlloc=0 CPUEfctv={kind.cpus} CPUTot={kind.cpus} CPULoad=0.01
   AvailableFeatures={kind.features}
   ActiveFeatures={kind.features}
   Gres={kind.gres}
   NodeAddr={host} NodeHostName={host} Version=23.11.4
   OS=Linux 5.14.0-362.8.1.el9_3.x86_64 #1 SMP PREEMPT_DYNAMIC
   RealMemory={kind.mem_mb} AllocMem=0 FreeMem={kind.mem_mb - 9000} Sockets=2 Boards=1
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions={kind.partition}
   CfgTRES=cpu={kind.cpus},mem={kind.mem_mb}M,billing={kind.cpus}
   AllocTRES=
"""


def _jobs(count: int, rng: np.random.Generator) -> str:
    """Rows of sacct: arrivals by day; each job starts where and when the earlier ones let it."""
    asks = [ask for ask, _ in ASKS]
    often = np.array([share for _, share in ASKS])
    accounts = list(ACCOUNTS)
    busy = np.array([share for _, share in ACCOUNTS.values()])
    rows = [FIELDS]
    held: dict[str, list[Span]] = defaultdict(list)
    for number, submit_s in enumerate(np.sort(_arrivals(count, rng)), 1001):
        ask = asks[rng.choice(len(asks), p=often / often.sum())]
        account = accounts[rng.choice(len(accounts), p=busy)]
        user = rng.choice(ACCOUNTS[account][0])
        run_s = max(60, int(ask.mean_s * rng.lognormal(-0.5, 1.0)))
        limit_min = int(min(2880, max(30, run_s / 60 * rng.uniform(1.1, 4.0))))
        run_s = min(run_s, 60 * limit_min)
        state = rng.choice(["COMPLETED", "FAILED", "TIMEOUT"], p=[0.9, 0.07, 0.03])
        if state == "TIMEOUT":
            run_s = 60 * limit_min
        start_s = _start(held, ask, int(submit_s), run_s)
        tres = f"billing={ask.cpus},cpu={ask.cpus},mem={ask.mem_gb}G,node={ask.nodes}"
        given = f"{tres},gres/gpu={ask.gpus}" if ask.gpus else tres
        asked = f"{given},gres/gpu:{ask.model}={ask.gpus}" if ask.model else given
        gres = f" --gres=gpu:{ask.model + ':' if ask.model else ''}{ask.gpus}" if ask.gpus else ""
        rows.append(
            f"{number}|{_iso(submit_s)}|{_iso(start_s)}|{_iso(start_s + run_s)}|{run_s}|"
            f"{limit_min}|{state}|{given}|{asked}|{int(rng.integers(1000, 9000))}|{user}|{account}|"
            f"{ask.partition}|normal|||sbatch -p {ask.partition}{gres} job.sh"
        )
    return "\n".join(rows) + "\n"


def _start(held: dict[str, list[Span]], ask: Ask, submit_s: int, run_s: int) -> int:
    """The first second at which the nodes that suit are free for so long, and are then held."""
    suited = [
        (host, kind)
        for kind in KINDS
        for host in kind.hosts
        if kind.partition == ask.partition and ask.model in kind.gres and host != DRAINED
    ]
    need = Span(0, 0, ask.cpus // ask.nodes, ask.gpus // ask.nodes)
    ends = {span.end_s for host, _ in suited for span in held[host] if span.end_s > submit_s}
    for start_s in sorted({submit_s, *ends}):
        span = need._replace(start_s=start_s, end_s=start_s + run_s)
        free = [host for host, kind in suited if _fits(held[host], kind, span)]
        if len(free) >= ask.nodes:
            for host in free[: ask.nodes]:
                held[host].append(span)
            break
    return start_s


def _fits(spans: list[Span], kind: Kind, new: Span) -> bool:
    over = [span for span in spans if span.start_s < new.end_s and span.end_s > new.start_s]
    gpus = int(kind.gres.rpartition(":")[2]) if "gpu" in kind.gres else 0
    cpus_left = kind.cpus - sum(span.cpus for span in over)
    return cpus_left >= new.cpus and gpus - sum(span.gpus for span in over) >= new.gpus


def _arrivals(count: int, rng: np.random.Generator) -> Array:
    """Seconds since 1970, more of them by day than by night."""
    day = rng.integers(0, DAYS, count)
    second = np.clip(rng.normal(14 * 3600.0, 4 * 3600.0, count), 0, 86399)
    return START_S + day * 86400 + second.astype(np.int64)


def _iso(at_s: float) -> str:
    return str(np.datetime64(int(at_s), "s"))
