"""What the jobs of a list name of their site: partitions, GPU models, constraints and the rest.

What the fields do not say, the line that submitted the job may (SubmitLine, from Slurm 21.08 on):
tasks of an array at once, whole nodes, and the jobs that it waits for.
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from trimtab import site
from trimtab.arrays import Array
from trimtab.site import Labels, labelled
from trimtab.traces.readers.csv_rows import Rows
from trimtab.traces.readers.slurm_text import NOTHING, gpu_model, gpus

COLUMN = {  # label: field of the list
    site.PARTITION: "Partition",
    site.QOS: "QOS",
    site.ACCOUNT: "Account",
    site.USER: "User",
    site.CONSTRAINT: "Constraints",
    site.RESERVATION: "Reservation",
}
TASK = re.compile(r"(\d+)_.*")
WAITING = re.compile(r"(\d+)_\[.*%(\d+)\]")  # the tasks of an array that have not begun
ENDS = ("afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer")
SHORT = {"-a": "--array", "-d": "--dependency", "-G": "--gpus"}
FORM = {
    "--array": re.compile(r"\d[\d,:-]*(?:%(\d+))?"),
    "--dependency": re.compile(r"(?:after|singleton).*"),
    "--gres": re.compile(r"(?:.*,)?gpu:([A-Za-z_][^:=,]*).*"),
    "--gpus": re.compile(r"([A-Za-z_][^:=,]*)(?::\d+)?(?:,.*)?"),
}
FORM["--gpus-per-node"] = FORM["--gpus-per-task"] = FORM["--gpus"]
HINT = re.compile("-a|-d|-G|--exclusive|--g")


def waiting_limits(job_ids: Array) -> dict[str, str]:
    """Tasks at once of the arrays of which a row such as 1234_[6-10%4] still waits."""
    found = (WAITING.fullmatch(job_id) for job_id in job_ids)
    return {one[1]: one[2] for one in found if one}


def whole_nodes(rows: Rows) -> list[bool]:
    """Which jobs were submitted for whole nodes."""
    return ["--exclusive" in submitted(line) for line in rows["SubmitLine"]]


def asked_models(rows: Rows) -> Array:
    """The GPU model that each job asks for, "" where it takes any.

    Few sites count GPUs by model (AccountingStorageTRES), so the line that submitted the job is
    read too. Where no GPUs are among what was asked, they are missing there: what was given counts.
    """
    told = zip(rows["asked"], rows["asked_gres"], rows["SubmitLine"], rows["held"])
    return np.array(
        [
            gpu_model(asked)
            or gpu_model(gres)
            or _model_of(submitted(line))
            or ("" if gpus(asked) or gpus(gres) else gpu_model(held))
            for asked, gres, line, held in told
        ],
        object,
    )


def labels_of(rows: Rows, models: Array, limits: dict[str, str]) -> dict[str, Labels]:
    """The columns of names in which any job names something."""
    lines = [submitted(text) for text in rows["SubmitLine"]]
    texts = {
        label: ["" if text in NOTHING else text for text in rows[column]]
        for label, column in COLUMN.items()
    }
    texts[site.GPU_KIND] = list(models)
    told = zip(rows["JobID"], rows["tasks_at_once"], lines)
    texts[site.ARRAY] = [_array(job, at_once, line, limits) for job, at_once, line in told]
    texts[site.EXCLUSIVE] = [line.get("--exclusive", "") for line in lines]
    return {label: labelled(column) for label, column in texts.items() if any(column)}


def parents_of(rows: Rows) -> tuple[tuple[Array, Array] | None, int]:
    """The jobs that each one waits for, (ptr, idx), and how many dependencies are left out.

    Those are what is no end of a job (after, singleton), one of several that do (a ? between), and
    jobs that the list lacks.
    """
    row_of: dict[str, list[int]] = defaultdict(list)
    for row, job_id in enumerate(rows["JobID"]):
        row_of[job_id].append(row)
        if task := TASK.fullmatch(job_id):
            row_of[task[1]].append(row)  # who waits for an array waits for all its tasks
    parents: list[list[int]] = []
    left_out = 0
    for row, text in enumerate(rows["SubmitLine"]):
        found: set[int] = set()
        named = submitted(text).get("--dependency", "")
        for part in re.split("[,?]", named):
            kind, *job_ids = part.split(":")
            if kind not in ENDS or "?" in named:
                left_out += bool(part)
                continue
            for job_id in job_ids:
                known = [one for one in row_of[job_id.partition("+")[0]] if one < row]
                found.update(known)
                left_out += not known
        parents.append(sorted(found))
    if not any(parents):
        return None, left_out
    ptr = np.concatenate(([0], np.cumsum([len(one) for one in parents]))).astype(np.int64)
    return (ptr, np.array([one for job in parents for one in job], np.int64)), left_out


def submitted(line: str) -> dict[str, str]:
    """Of a line such as `sbatch --array=1-10%4 -d afterok:7 job.sh` the options that matter."""
    if not HINT.search(line):
        return {}
    words = line.split()  # Slurm keeps no quotes, and cuts long lines
    options: dict[str, str] = {}
    for word, after in zip(words, [*words[1:], ""]):
        name, equals, value = word.partition("=")
        if not word.startswith("--") and word[:2] in SHORT:
            name, value = SHORT[word[:2]], word[2:].lstrip("=") or after
        elif not equals:
            value = after
        if name in FORM and FORM[name].fullmatch(value):  # else it is the job's own option
            options[name] = value
        elif word == "--exclusive":  # =user and =mcs let some share
            options[word] = "yes"
    return options


def _array(job_id: str, at_once: str, line: dict[str, str], limits: dict[str, str]) -> str:
    task = TASK.fullmatch(job_id)
    if not task:
        return ""
    told = FORM["--array"].fullmatch(line.get("--array", ""))
    most = (told and told[1]) or at_once or limits.get(task[1], "")
    return f"{task[1]}%{most}" if most not in ("", "0") else ""


def _model_of(line: dict[str, str]) -> str:
    for name in ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task"):
        if name in line and (found := FORM[name].fullmatch(line[name])):
            return found[1]
    return ""
