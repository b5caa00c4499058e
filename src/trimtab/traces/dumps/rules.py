"""A site's rules from Slurm's records: partitions, QOS, accounts, reservations, parameters.

What the records say and we do not model is told in `notes`, by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isnan

from trimtab.site import Account, Partition, Qos, Reservation
from trimtab.traces.dumps.records import Record
from trimtab.traces.readers.hostlist import expanded, natural
from trimtab.traces.readers.slurm_text import NO_LIMIT, NOTHING, instant_s, limit_s, tres

KEPT = (  # of the parameters, those that say how jobs are ordered, started and stopped
    *("SchedulerParameters", "SchedulerType", "SelectType", "SelectTypeParameters"),
    *("PreemptMode", "PreemptType", "PreemptParameters", "PreemptExemptTime"),
    *("PriorityType", "PriorityParameters", "PriorityFlags", "PriorityFavorSmall"),
    *("PriorityDecayHalfLife", "PriorityCalcPeriod", "PriorityUsageResetPeriod"),
    *("PriorityMaxAge", "PrioritySiteFactorParameters", "PrioritySiteFactorPlugin"),
    *("PriorityWeightAge", "PriorityWeightAssoc", "PriorityWeightFairShare"),
    *("PriorityWeightJobSize", "PriorityWeightPartition", "PriorityWeightQOS"),
    *("PriorityWeightTRES", "FairShareDampeningFactor", "AccountingStorageEnforce"),
    *("EnforcePartLimits", "MaxArraySize", "OverTimeLimit"),
)
OF_PARTITION = {  # field: what it says where nothing is left out
    "AllowGroups": ("ALL",),
    "AllocNodes": ("ALL",),
    "MaxCPUsPerNode": ("UNLIMITED",),
    "MaxCPUsPerSocket": ("UNLIMITED",),
    "MaxMemPerNode": ("UNLIMITED", "0"),
    "MaxMemPerCPU": ("UNLIMITED", "0"),
    "ExclusiveUser": ("NO",),
    "ExclusiveTopo": ("NO",),
    "RootOnly": ("NO",),
    "ReqResv": ("NO",),
    "LLN": ("NO",),
    "TRESBillingWeights": (),
}
OF_QOS = (
    *("UsageFactor", "GraceTime", "GrpTRESMins", "GrpTRESRunMins", "GrpWall", "GrpSubmit"),
    *("MaxTRESMins", "MaxTRESPerNode", "MaxSubmitPU", "MaxSubmitPA", "MinTRES", "LimitFactor"),
    *("MaxTRESRunMinsPA", "MaxTRESRunMinsPU", "UsageThres"),
)
OF_ACCOUNT = (
    *("GrpSubmit", "GrpWall", "GrpTRESMins", "GrpTRESRunMins", "MaxJobs", "MaxSubmit"),
    *("MaxTRESMins", "MaxTRESPerNode"),
)
OF_USER = ("GrpTRES", "GrpJobs", "MaxTRES", "MaxWall", *OF_ACCOUNT)
LIMITED = {"cpu": "cpu", "mem": "mem_gb", "gres/gpu": "gpu", "node": "nodes"}
MB_A_GB = 1024


def parameters(records: Iterable[Record]) -> dict[str, str]:
    """Of scontrol show config or slurm.conf, what bears on which job starts when."""
    configs = [record for record in records if record.what == "config"]
    found = (
        (name, next((one.said(name) for one in configs if one.said(name)), "")) for name in KEPT
    )
    return {name: text for name, text in found if text}


def partitions(
    records: Iterable[Record],
    nodes: Mapping[str, Collection[str]],  # name: the partitions that it says it is in
    left_out: Collection[str],
    preempt_type: str,
    notes: list[str],
) -> list[Partition]:
    """The partitions, in the order of their first record, each with those of the nodes it has."""
    made: dict[str, Partition] = {}
    for record in records:
        if record.what != "partition":
            continue
        one = _partition(record, list(nodes), left_out, preempt_type, notes)
        before = made.get(one.name)
        hosts = {*one.nodes, *(before.nodes if before else ())}
        kept = tuple(sorted(hosts, key=natural))
        made[one.name] = replace(before or one, nodes=kept, default=one.default or _is(before))
    unlisted = sorted({name for said in nodes.values() for name in said} - made.keys())
    for name in unlisted:
        hosts = {host for host, said in nodes.items() if name in said}
        made[name] = Partition(name, tuple(sorted(hosts, key=natural)))
    if unlisted:
        notes.append(
            f"partition {', '.join(unlisted)}: no limits or priorities are known; add what "
            "scontrol show partition prints"
        )
    return [one for one in made.values() if one.nodes or _without(one, notes)]


def _is(before: Partition | None) -> bool:
    return before is not None and before.default


def _without(one: Partition, notes: list[str]) -> bool:
    notes.append(f"partition {one.name}: none of its nodes is in the cluster; it is left out")
    return False


def _partition(
    record: Record,
    nodes: Sequence[str],
    left_out: Collection[str],
    preempt_type: str,
    notes: list[str],
) -> Partition:
    name = record.said("PartitionName")
    listed = record.said("Nodes")
    known = {*nodes}
    hosts = nodes if listed == "ALL" else expanded(listed, f"{record.where}: Nodes")
    strange = [host for host in hosts if host not in known and host not in left_out]
    if strange:
        more = f" and {len(strange) - 1:,} more" if len(strange) > 1 else ""
        notes.append(f"partition {name}: no dump tells of node {strange[0]}{more}; left out")
    _unmodelled(record, f"partition {name}", OF_PARTITION, notes)
    share = record.said("OverSubscribe", "Shared").upper()
    if share.startswith("FORCE") and share != "FORCE:1":
        notes.append(f"partition {name}: OverSubscribe={share} is not modelled: no CPU is shared")
    mode = record.said("PreemptMode").lower().removeprefix("within,").split(",")[0]
    return Partition(
        name,
        tuple(host for host in hosts if host in known),
        default=record.said("Default").upper() == "YES",
        up=record.said("State").upper() in ("UP", ""),
        max_s=_limit_s(record, "MaxTime"),
        default_s=_limit_s(record, "DefaultTime"),
        min_nodes=least if (least := _number(record, "MinNodes", 0)) > 1 else 0,
        max_nodes=_number(record, "MaxNodes", inf),
        tier=int(_number(record, "PriorityTier", 1)),
        factor=_number(record, "PriorityJobFactor", 1),
        preempt="off" if preempt_type == "preempt/none" else mode or "off",
        exclusive=share == "EXCLUSIVE",
        qos=record.said("QoS"),
        accounts=_names(record, "AllowAccounts"),
        deny_accounts=_names(record, "DenyAccounts"),
        allow_qos=_names(record, "AllowQos"),
        deny_qos=_names(record, "DenyQos"),
    )


def qos(records: Iterable[Record], notes: list[str]) -> list[Qos]:
    """The qualities of service."""
    made = []
    for record in records:
        if record.what != "qos":
            continue
        name = record.said("Name")
        where = f"qos {name}"
        usual = {field: ("0", "00:00:00", "1.000000") for field in OF_QOS}
        _unmodelled(record, where, usual, notes)
        made.append(
            Qos(
                name,
                priority=_number(record, "Priority", 0),
                preempts=_names(record, "Preempt"),
                max_s=_limit_s(record, "MaxWall", "MaxWallDurationPerJob"),
                group=_limits(record, where, notes, "GrpTRES", jobs="GrpJobs"),
                user=_limits(record, where, notes, "MaxTRESPU", jobs="MaxJobsPU"),
                account=_limits(record, where, notes, "MaxTRESPA", jobs="MaxJobsPA"),
                job=_limits(record, where, notes, "MaxTRES"),
            )
        )
    return made


def accounts(records: Iterable[Record], notes: list[str]) -> list[Account]:
    """The tree of accounts with its users' shares; of the parents, root goes by no name."""
    rows = [record for record in records if record.what == "assoc"]
    clusters = sorted({row.said("Cluster") for row in rows})
    if len(clusters) > 1:
        problem = f"is one of {len(clusters)} ({', '.join(clusters)}); add cluster=NAME to sacctmgr"
        raise rows[0].mistake("Cluster", problem)
    made: dict[str, Account] = {}
    users: dict[str, dict[str, float]] = {}
    limits: dict[str, Record] = {}
    above: list[tuple[int, str]] = []  # in a tree, depth and name of the accounts over this line
    for row in rows:
        written = row.fields.get("account", "")
        name, depth = written.strip(), len(written) - len(written.lstrip())
        user = row.said("User").strip()
        if user:
            users.setdefault(name, {})[user] = _shares(row, f"user {user} of {name}", notes)
            # what stands there again is inherited
            own = {field: (limits.get(name, row).said(field).upper(),) for field in OF_USER}
            _unmodelled(row, f"user {user} of {name}", own, notes)
            continue
        limits[name] = row
        above = [one for one in above if one[0] < depth] + [(depth, name)]
        if name in ("root", ""):
            continue
        parent = row.said("ParName", "ParentName") or (above[-2][1] if len(above) > 1 else "")
        _unmodelled(row, f"account {name}", dict.fromkeys(OF_ACCOUNT, ()), notes)
        made[name] = Account(
            name,
            parent="" if parent == "root" else parent,
            shares=_shares(row, f"account {name}", notes),
            group=_limits(row, f"account {name}", notes, "GrpTRES", jobs="GrpJobs"),
            job=_limits(row, f"account {name}", notes, "MaxTRES", "MaxTRESPerJob"),
            max_s=_limit_s(row, "MaxWall"),
        )
    if (
        rows
        and not any(depth for depth, _ in above)
        and not any({"parname", "parentname"} & row.fields.keys() for row in rows)
    ):
        notes.append(
            "accounts: the dump does not tell who is below whom; run sacctmgr show assoc tree -P"
        )
    return [replace(one, users=users.get(one.name, {})) for one in made.values()]


def reservations(
    records: Iterable[Record], nodes: Collection[str], notes: list[str]
) -> list[Reservation]:
    """Reservations of nodes that are in the cluster."""
    made = []
    for record in records:
        if record.what != "reservation":
            continue
        name = record.said("ReservationName")
        hosts = expanded(record.said("Nodes"), f"{record.where}: Nodes")
        kept = tuple(host for host in hosts if host in nodes)
        who = [*_names(record, "Users"), *_names(record, "Accounts")]
        flags = record.said("Flags").upper().split(",")
        for repeated in {"DAILY", "WEEKLY", "HOURLY", "WEEKDAY", "WEEKEND"} & {*flags}:
            notes.append(f"reservation {name}: {repeated} is not modelled: it is taken once")
        for field in ("Groups", "Licenses", "PartitionName"):
            _unmodelled(record, f"reservation {name}", {field: ()}, notes)
        if any(one.startswith("-") for one in who):
            notes.append(f"reservation {name}: those whom it keeps out are not modelled")
        if not kept:
            notes.append(f"reservation {name}: none of its nodes is in the cluster; left out")
            continue
        made.append(
            Reservation(
                name,
                kept,
                _instant(record, "StartTime"),
                _instant(record, "EndTime"),
                users=tuple(one for one in _names(record, "Users") if not one.startswith("-")),
                accounts=tuple(
                    one for one in _names(record, "Accounts") if not one.startswith("-")
                ),
            )
        )
    return made


def _unmodelled(
    record: Record, where: str, usual: Mapping[str, tuple[str, ...]], notes: list[str]
) -> None:
    for field, plain in usual.items():
        text = record.said(field)
        if text and text.upper() not in plain:
            notes.append(f"{where}: {field}={text} is not modelled")


def _limit_s(record: Record, *names: str) -> float:
    text = record.said(*names)
    value = limit_s(text)
    if value is None:
        raise record.mistake(
            names[0], "is not a time limit such as 1-00:00:00; make the dump again"
        )
    return inf if isnan(value) else value


def _instant(record: Record, name: str) -> float:
    value = instant_s(record.said(name))
    if value is None or isnan(value):
        raise record.mistake(name, "is not a time such as 2025-03-01T08:00:00; make the dump again")
    return value


def _number(record: Record, name: str, default: float) -> float:
    text = record.said(name)
    if text in NO_LIMIT:
        return default
    try:
        return float(text)
    except ValueError:
        raise record.mistake(name, "is not a number; make the dump again") from None


def _names(record: Record, name: str) -> tuple[str, ...]:
    """Names between commas; none where all are meant."""
    text = record.said(name)
    return () if text.upper() == "ALL" else tuple(part for part in text.split(",") if part)


def _shares(row: Record, where: str, notes: list[str]) -> float:
    text = row.said("Share", "Fairshare")
    if text == "parent":
        notes.append(f"{where}: shares of the parent are not modelled: taken as 1")
        return 1.0
    return _number(row._replace(fields={"share": text}), "Share", 1)


def _limits(
    record: Record, where: str, notes: list[str], *names: str, jobs: str = ""
) -> dict[str, float]:
    """Amounts by our names for them."""
    text = record.said(*names)
    amounts = tres(text)
    if amounts is None:
        raise record.mistake(names[0], "is not such as cpu=100,gres/gpu=8; make the dump again")
    made = {}
    for name, amount in amounts.items():
        if name in LIMITED:
            made[LIMITED[name]] = amount / MB_A_GB if name == "mem" else amount
        else:
            notes.append(f"{where}: {names[0]}={name}={amount:g} is not modelled")
    most = record.said(jobs) if jobs else ""
    if most not in NOTHING:
        made["jobs"] = _number(record, jobs, inf)
    return made
