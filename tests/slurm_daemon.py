"""A real Slurm on loopback, of many nodes on this machine: started in a folder, ended by pid.

    with running(folder, NODES, PARTITIONS, {"SchedulerParameters": "bf_interval=2"}) as slurm:
        slurm.out("sbatch", "--parsable", "--wrap", "sleep 5")

It needs slurmctld, slurmd and munged (Debian: slurm-wlm munge), and with `accounts` also slurmdbd
and mariadbd (slurmdbd mariadb-server). No systemd, no cgroups, nothing outside the folder. Not a
test: what the tests of Slurm start from.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol")
FOR_ACCOUNTS = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr")
SBIN = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
UP_S = 60.0  # to come up; it takes about 5
ZERO = (1, 5)  # /dev/zero: a character device that stands for a GPU


def why_not(accounts: bool = False) -> str:
    """Why no Slurm can be started here, or nothing."""
    wanted = NEEDED + (FOR_ACCOUNTS if accounts else ())
    missing = [name for name in wanted if shutil.which(name, path=SBIN) is None]
    if missing:
        packages = "slurm-wlm munge" + (" slurmdbd mariadb-server" if accounts else "")
        return f"{', '.join(missing)} not installed (Debian: apt-get install {packages})"
    if os.geteuid() != 0:
        return "slurmd starts jobs as others only when it is run by root"
    return ""


@dataclass(frozen=True)
class Node:
    """A node as slurm.conf has it."""

    name: str
    cpus: int
    mem_mb: int = 4000
    gpu_kind: str = ""
    gpus: int = 0
    features: str = ""
    weight: int = 1


@dataclass
class Slurm:
    """One that runs. Its commands find it by SLURM_CONF."""

    folder: Path
    nodes: Sequence[Node]
    settings: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)  # settings that a restart brought
    waiting: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # what a test asked, by job

    def out(self, *command: str, given: str = "") -> str:
        """What a command prints. It fails the test where the command fails."""
        path = shutil.which(command[0], path=SBIN) or command[0]
        done = subprocess.run(
            [path, *command[1:]], env=self.environ(), input=given, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}{done.stdout}"
        return done.stdout

    def submit(self, *options: str, sleep_s: float = 3600.0, name: str = "job") -> str:
        """The id of a batch job that sleeps."""
        return self.out(
            "sbatch", "--parsable", "--output=/dev/null", f"--job-name={name}", *options,
            f"--wrap=exec sleep {sleep_s:g}",
        ).strip()  # fmt: skip

    def environ(self) -> dict[str, str]:
        return {**os.environ, "PATH": SBIN, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self, *command: str) -> None:
        """Start a daemon in the foreground, so that its pid is ours to end."""
        path = shutil.which(command[0], path=SBIN)
        log = (self.folder / f"{command[0]}-{len(self.processes)}.out").open("wb")
        self.processes.append(
            subprocess.Popen(
                [str(path), *command[1:]], env=self.environ(), stdout=log, stderr=log,
                start_new_session=True,
            )
        )  # fmt: skip

    def restart(self, settings: Mapping[str, str]) -> None:
        """End slurmctld, which saves its state, and start it with other settings of its own."""
        conf = self.folder / "slurm.conf"
        lines = [
            line for line in conf.read_text().splitlines()
            if line.partition("=")[0] not in {*self.changed, *settings}
        ]  # fmt: skip
        self.changed = set(settings)
        named = [f"{name}={value}" for name, value in settings.items()]
        conf.write_text("\n".join([*named, *lines, ""]))
        old = next(one for one in self.processes if str(one.args[0]).endswith("slurmctld"))
        old.send_signal(signal.SIGTERM)
        old.wait(20.0)
        self.processes.remove(old)
        self.start("slurmctld", "-D")
        wait_for(lambda: "UP" in self.out("scontrol", "ping"), UP_S, "slurmctld")

    def stop(self) -> None:
        """End the jobs and the daemons, last started first."""
        with suppress(AssertionError, subprocess.TimeoutExpired):
            self.out("scancel", "--full", "--user=root")
            wait_for(lambda: not self.out("squeue", "-h"), 10.0, "jobs to end", fail=False)
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10.0)


def wait_for(true: object, seconds: float, what: str, fail: bool = True) -> None:
    """Ask again and again until it is true; a failure of the asking counts as not yet."""
    assert callable(true)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(AssertionError, OSError):
            if true():
                return
        time.sleep(0.1)
    assert not fail, f"waited {seconds:g} s for {what}"


def free_ports(count: int) -> list[int]:
    taken = []
    for _ in range(count):
        held = socket.socket()
        held.bind(("127.0.0.1", 0))
        taken.append(held)
    ports = [held.getsockname()[1] for held in taken]
    for held in taken:
        held.close()
    return ports


@contextmanager
def running(
    folder: Path,
    nodes: Sequence[Node],
    partitions: Sequence[str],
    settings: Mapping[str, str] | None = None,
    accounts: bool = False,
) -> Iterator[Slurm]:
    """A Slurm of these nodes, idle, until the block ends. Partitions are lines of slurm.conf."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    slurm = Slurm(folder, nodes, dict(settings or {}))
    ports = free_ports(3 + len(nodes))
    try:
        _munge(slurm)
        if accounts:
            _accounts(slurm, ports[1], ports[2])
        _write(slurm, nodes, partitions, ports, accounts)
        slurm.start("slurmctld", "-D", "-i")
        for node in nodes:
            (folder / "spool" / node.name).mkdir(parents=True)
            slurm.start("slurmd", "-D", "-N", node.name)
        wait_for(
            lambda: (
                slurm.out("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split().__len__()
                >= len(nodes)
            ),
            UP_S,
            f"{len(nodes)} idle nodes; see {folder}",
        )
        yield slurm
    finally:
        slurm.stop()


def _munge(slurm: Slurm) -> None:
    key, socket_file = slurm.folder / "munge.key", slurm.folder / "munge.sock"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    slurm.start(
        "munged", "--foreground", "--force", f"--socket={socket_file}", f"--key-file={key}",
        f"--pid-file={slurm.folder / 'munged.pid'}", f"--log-file={slurm.folder / 'munged.log'}",
        f"--seed-file={slurm.folder / 'munged.seed'}",
    )  # fmt: skip
    wait_for(socket_file.exists, UP_S, "munge")


def _accounts(slurm: Slurm, dbd_port: int, db_port: int) -> None:
    """MariaDB and slurmdbd, which keep accounts and QOS."""
    data = slurm.folder / "mysql"
    install = shutil.which("mariadb-install-db", path=SBIN)
    subprocess.run(
        [str(install), "--no-defaults", f"--datadir={data}", "--user=root",
         "--auth-root-authentication-method=socket", "--skip-test-db"],
        check=True, capture_output=True, timeout=UP_S,
    )  # fmt: skip
    db_socket = slurm.folder / "db.sock"
    first = slurm.folder / "first.sql"
    first.write_text("CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';\n"
                     "GRANT ALL ON slurm_acct.* TO 'slurm'@'127.0.0.1';\n")  # fmt: skip
    slurm.start(
        "mariadbd", "--no-defaults", f"--datadir={data}", "--user=root", f"--port={db_port}",
        "--bind-address=127.0.0.1", f"--socket={db_socket}", f"--init-file={first}",
        f"--pid-file={slurm.folder / 'db.pid'}", "--innodb-buffer-pool-size=16M",
    )  # fmt: skip
    wait_for(lambda: socket.create_connection(("127.0.0.1", db_port), 1.0).close() is None,
             UP_S, "MariaDB")  # fmt: skip
    conf = slurm.folder / "slurmdbd.conf"
    lines = {
        "DbdHost": "localhost",
        "DbdAddr": "127.0.0.1",
        "DbdPort": dbd_port,
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={slurm.folder / 'munge.sock'}",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": db_port,
        "StorageUser": "slurm",
        "StoragePass": "slurm",
        "StorageLoc": "slurm_acct",
        "PidFile": slurm.folder / "slurmdbd.pid",
        "LogFile": slurm.folder / "slurmdbd.log",
    }
    conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    conf.chmod(0o600)
    (slurm.folder / "slurm.conf").write_text("ClusterName=trim\nSlurmctldHost=localhost\n")
    slurm.settings |= {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(dbd_port),
        "AccountingStoragePass": str(slurm.folder / "munge.sock"),
        "AccountingStorageEnforce": "associations,limits,qos",
    }
    slurm.start("slurmdbd", "-D")
    wait_for(lambda: socket.create_connection(("127.0.0.1", dbd_port), 1.0).close() is None,
             UP_S, "slurmdbd")  # fmt: skip


def _write(
    slurm: Slurm,
    nodes: Sequence[Node],
    partitions: Sequence[str],
    ports: Sequence[int],
    accounts: bool,
) -> None:
    """slurm.conf and gres.conf, with a character device for each GPU."""
    folder = slurm.folder
    (folder / "state").mkdir()
    lines: dict[str, object] = {
        "ClusterName": "trim",
        "SlurmctldHost": "localhost(127.0.0.1)",
        "SlurmctldPort": ports[0],
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder / 'munge.sock'}",
        "CredType": "cred/munge",
        "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool/%n",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd-%n.pid",
        "SlurmctldLogFile": folder / "slurmctld.log",
        "SlurmdLogFile": folder / "slurmd-%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "SlurmdParameters": "config_overrides",
        "ReturnToService": 2,
        "GresTypes": "gpu",
        "MinJobAge": 600,
        "SlurmctldTimeout": 30,
        "SlurmdTimeout": 30,
        "InactiveLimit": 0,
        "KillWait": 2,
        "SchedulerType": "sched/backfill",
        "DefMemPerCPU": 100,
    }
    lines |= slurm.settings
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    gres = ""
    for node, port in zip(nodes, ports[3:], strict=True):
        text += (
            f"NodeName={node.name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={node.cpus} RealMemory={node.mem_mb} Weight={node.weight}"
        )
        text += f" Feature={node.features}" if node.features else ""
        if node.gpus:
            text += f" Gres=gpu:{node.gpu_kind}:{node.gpus}"
            gres += f"NodeName={node.name} Name=gpu Type={node.gpu_kind} File={folder}/gpu[0-9]\n"
            gres = gres.replace("gpu[0-9]", f"gpu[0-{node.gpus - 1}]")
        text += "\n"
    for device in range(max((node.gpus for node in nodes), default=0)):
        os.mknod(folder / f"gpu{device}", 0o666 | stat.S_IFCHR, os.makedev(*ZERO))
    text += "".join(f"PartitionName={partition}\n" for partition in partitions)
    (folder / "slurm.conf").write_text(text)
    (folder / "gres.conf").write_text(gres)
    (folder / "cgroup.conf").write_text("")
    if accounts:
        slurm.out("sacctmgr", "-i", "add", "cluster", "trim")
