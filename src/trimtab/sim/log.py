"""What the engine writes down: states, events and the reasons for them."""

from trimtab.compiled import inner
from trimtab.core import Status, What
from trimtab.rules.world import World

FUTURE, BLOCKED, QUEUED, RUNNING = (
    int(Status.FUTURE),
    int(Status.BLOCKED),
    int(Status.QUEUED),
    int(Status.RUNNING),
)
FINISHED, FAILED, REJECTED, CANCELLED = (
    int(Status.FINISHED),
    int(Status.FAILED),
    int(Status.REJECTED),
    int(Status.CANCELLED),
)
E_SUBMITTED, E_STARTED, E_FINISHED = int(What.SUBMITTED), int(What.STARTED), int(What.FINISHED)
E_STOPPED, E_REJECTED, E_FAILED = int(What.STOPPED), int(What.REJECTED), int(What.FAILED)

# reasons in the log
(
    PLAIN,
    PREEMPTED,
    CANCEL,
    NODE_FAILED,
    RETRIES,
    PARENT,
    LIMIT,
    MOVED,
    RESIZED,
    NODE_DOWN,
    NODE_UP,
    EVICTED,
) = range(12)
REASONS = (
    "",
    "preempted",
    "cancelled",
    "node failed",
    "node failed and no retries are left",
    "a job it waits for did not finish",
    "ran past its requested time",
    "moved",
    "resized",
    "node down",
    "node up",
    "evicted: services need the node",
)


@inner
def note(
    w: World,
    c: int,
    what: int,
    job: int,
    node: int,
    count: int,
    shape: int,
    run: int,
    reason: int,
) -> None:
    if w.conf[0].log == 0:
        return
    row = w.log[c, w.head[c].log]
    row.time_s = w.head[c].now_s
    row.what = what
    row.job = job
    row.node = node
    row.count = count
    row.shape = shape
    row.run = run
    row.reason = reason
    w.head[c].log += 1
