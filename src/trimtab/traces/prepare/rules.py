"""What makes a row unusable, one rule a line, in the order in which they are asked.

The first rule that a row breaks removes it and is counted, so that rows in = rows kept + removed.
"""

from typing import NamedTuple

from trimtab.traces.alibaba2018.tables import MOST_S

MISSING, ABNORMAL, DUPLICATE, CAPACITY = "missing", "abnormal", "duplicate", "against capacity"


class Rule(NamedTuple):
    name: str
    kind: str  # of the four that the paper names
    sql: str  # true = remove; empty = asked later, by the join
    about: str


def _empty(*columns: str) -> str:
    return " OR ".join(f"coalesce({column}, '') = ''" for column in columns)


def _null(*columns: str) -> str:
    return " OR ".join(f"{column} IS NULL" for column in columns)


def _times(*columns: str) -> list[Rule]:
    beyond = " OR ".join(f"{column} < 0 OR {column} > {MOST_S}" for column in columns)
    return [
        Rule("no-time", MISSING, _null(*columns), "a time is missing"),
        Rule("bad-time", ABNORMAL, beyond, "a time is negative or beyond a year"),
    ]


STATUS = [
    Rule("running", ABNORMAL, "status = 'Running'", "still running when the trace ends"),
    Rule("waiting", ABNORMAL, "status IN ('Waiting', 'Ready')", "never started"),
    Rule("failed", ABNORMAL, "status = 'Failed'", "failed"),
    Rule(
        "other-status", ABNORMAL, "status IS DISTINCT FROM 'Terminated'",
        "neither finished nor any of these: no status, cancelled, interrupted",
    ),
]  # fmt: skip
BACKWARDS = Rule("end-before-start", ABNORMAL, "end_time < start_time", "ends before it starts")
UNKNOWN_MACHINE = Rule("unknown-machine", MISSING, "node IS NULL", "its machine is in no table")
REPEATED = Rule("repeated", DUPLICATE, "", "the same row once more")
STRAY = Rule("stray-time", ABNORMAL, "", "more than a day from the rest of the trace")
NO_MACHINE = Rule("no-machine", MISSING, _empty("machine_id"), "no machine is named")
USAGE = [
    Rule("no-value", MISSING, _null("cpu", "mem"), "CPU or memory use is missing"),
    Rule(
        "marked-invalid", ABNORMAL, "cpu IN (-1, 101) OR mem IN (-1, 101) OR cpu < 0 OR mem < 0",
        "CPU or memory use is -1 or 101, the trace's mark of an invalid value, or negative",
    ),
    Rule("over-capacity", CAPACITY, "cpu > 100 OR mem > 100", "use above 100 %"),
]  # fmt: skip

RULES: dict[str, list[Rule]] = {
    "machine_meta": [
        NO_MACHINE,
        *_times("time_stamp"),
        Rule("no-capacity", MISSING, _null("cpu_num", "mem_size"), "cores or memory are missing"),
        Rule("bad-capacity", ABNORMAL, "cpu_num <= 0 OR mem_size <= 0", "no cores or no memory"),
        Rule(
            "changed", CAPACITY, "changed", "another capacity than in the machine's first row"
        ),
        Rule("repeated", DUPLICATE, "again", "the same machine with nothing new"),
    ],
    "machine_usage": [NO_MACHINE, *_times("time_stamp"), *USAGE, UNKNOWN_MACHINE, STRAY, REPEATED],
    "container_meta": [
        Rule("no-id", MISSING, _empty("container_id"), "no container is named"),
        NO_MACHINE,
        *_times("time_stamp"),
        Rule("no-request", MISSING, _null("cpu_request", "mem_size"), "no CPU or memory request"),
        Rule("bad-request", ABNORMAL, "cpu_request <= 0 OR mem_size < 0", "asks for nothing"),
        UNKNOWN_MACHINE,
        Rule(
            "over-capacity", CAPACITY, "cpu_request > 100 * cores OR mem_size > memory",
            "asks for more than its machine has",
        ),
        Rule("repeated", DUPLICATE, "again", "the same container with nothing new"),
    ],
    "container_usage": [
        Rule("no-id", MISSING, _empty("container_id"), "no container is named"),
        *_times("time_stamp"),
        *USAGE,
        Rule("unknown-container", MISSING, "service IS NULL", "its container is in no table"),
        STRAY,
        REPEATED,
    ],
    "batch_task": [
        Rule("no-id", MISSING, _empty("job_name", "task_name"), "no job or task is named"),
        *STATUS,
        *_times("start_time", "end_time"),
        BACKWARDS,
        Rule("no-plan", MISSING, _null("plan_cpu", "plan_mem"), "no planned CPU or memory"),
        Rule(
            "bad-plan", ABNORMAL, "plan_cpu <= 0 OR plan_mem < 0 OR coalesce(instance_num, 0) < 1",
            "plans no CPU, negative memory or no instance",
        ),
        Rule(
            "over-capacity", CAPACITY, "plan_cpu > 100 * cores OR plan_mem > memory",
            "an instance plans more than the largest machine has",
        ),
        STRAY._replace(sql="stray"),
        Rule("repeated", DUPLICATE, "again", "the same task of the same job once more"),
    ],
    "batch_instance": [
        Rule(
            "no-id", MISSING, _empty("job_name", "task_name", "instance_name"),
            "no job, task or instance is named",
        ),
        *STATUS,
        *_times("start_time", "end_time"),
        BACKWARDS,
        NO_MACHINE,
        UNKNOWN_MACHINE,
        Rule(
            "over-capacity", CAPACITY, "cpu_avg > 100 * cores OR mem_avg > memory",
            "used more than its machine has",
        ),
        Rule("bad-value", ABNORMAL, "cpu_avg < 0 OR mem_avg < 0", "a negative use"),
        STRAY._replace(sql="end_time > last_s"),
        Rule("unknown-task", MISSING, "", "its task is not among the clean ones"),
        Rule("before-task", ABNORMAL, "", "starts before its task does"),
        REPEATED,
    ],
}  # fmt: skip


def verdict(table: str, without: frozenset[str] = frozenset()) -> str:
    """SQL for the number of the first rule a row breaks, from 1; 0 = keep it."""
    cases = [
        f"WHEN {rule.sql} THEN {number}"
        for number, rule in enumerate(RULES[table], 1)
        if rule.sql and rule.name not in without
    ]
    return f"CASE {' '.join(cases)} ELSE 0 END"


def number_of(table: str, name: str) -> int:
    """As `verdict` counts."""
    return 1 + [rule.name for rule in RULES[table]].index(name)
