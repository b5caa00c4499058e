"""The columns of every record array, with their units.

A record array keeps one named column a quantity, in one block of memory that compiled code reads
without unpacking.
"""

from __future__ import annotations

import numpy as np

from trimtab.arrays import Array

JOB = np.dtype(
    [
        ("submit_s", "f8"),
        ("request_s", "f8"),  # the user's estimate of the run time at rate 1: often wrong
        ("priority", "f8"),  # larger is more urgent
        ("deadline_s", "f8"),  # absolute; inf = none
        ("gpu_share", "f8"),  # of each GPU taken: below 1 only with gpus = 1
        ("gpu_mem_gb", "f8"),  # of each GPU taken
        ("checkpoint_s", "f8"),  # work between checkpoints: 0 keeps all progress, inf keeps none
        ("node_kinds", "u8"),  # bit k = may run on node kind k
        ("shapes", "u8"),  # bit s = may run in shape s
        ("instances", "i8"),
        ("gang", "i8"),  # 1 = all instances start together, 0 = an array that need not
        ("gpus", "i8"),  # whole or shared devices an instance
        ("kind", "i8"),
        ("tenant", "i8"),
        ("like", "i8"),  # jobs with one number here ask for the same and fit in the same places
    ]
)
TRUTH = np.dtype(
    [
        ("work_s", "f8"),  # run time at rate 1, which no policy may see
        ("cancel_s", "f8"),  # absolute; inf = never
        ("use", "f8"),  # used / demanded while it runs
        ("pattern", "i8"),  # row of Workload.patterns, -1 = steady
        ("service", "i8"),  # 1 = runs beside the batch jobs, in wall time, and is not waited for
        ("pinned", "i8"),  # 1 + the node where it starts as it comes; 0 = a policy places it
    ]
)
NODE = np.dtype(
    [
        ("gpu_mem_gb", "f8"),  # of each device
        ("idle_w", "f8"),
        ("peak_w", "f8"),
        ("kind", "i8"),
        ("region", "i8"),
        ("gpus", "i8"),
        ("driver", "i8"),  # the resource that stands for the node's load and drives its power
    ]
)
RUN = np.dtype(
    [
        ("start_s", "f8"),
        ("expected_end_s", "f8"),  # by the request: what backfilling may use
        ("end_s", "f8"),  # by the truth at the present rate
        ("updated_s", "f8"),
        ("resume_s", "f8"),  # work begins here: after start-up or a move
        ("left_s", "f8"),  # work still to do at rate 1
        ("rate", "f8"),
        ("job", "i8"),  # -1 = a free slot
        ("instances", "i8"),
        ("shape", "i8"),
        ("piece", "i8"),  # the first of its pieces
        ("place", "i8"),  # in the heap of ends
        ("sibling", "i8"),  # the next run of the same job, or the next free slot
    ]
)
PIECE = np.dtype(
    [
        ("run", "i8"),
        ("node", "i8"),
        ("count", "i8"),
        ("devices", "u8"),  # bit d = device d of the node
        ("next", "i8"),  # of the same run, or the next free slot
        ("before", "i8"),  # on the same node
        ("after", "i8"),
    ]
)
STATE = np.dtype(
    [
        ("start_s", "f8"),  # first start; NaN before
        ("end_s", "f8"),
        ("queued_s", "f8"),  # when it last became runnable
        ("waited_s", "f8"),  # seconds runnable and not running, so far
        ("kept_s", "f8"),  # work that checkpoints kept from earlier runs
        ("attained_s", "f8"),  # instance-seconds of runs that have ended
        ("wasted_s", "f8"),  # of those, thrown away: work that no checkpoint kept
        ("status", "i8"),  # a Status
        ("left", "i8"),  # instances not yet started
        ("active", "i8"),  # instances running
        ("parents", "i8"),  # unfinished jobs it waits for
        ("tries", "i8"),  # runs lost to failures
        ("stops", "i8"),  # times it was preempted
        ("run", "i8"),  # the first of its runs, -1 = none
        ("evicted", "i8"),  # instances that services pushed off their nodes
        ("back", "i8"),  # of those, instances that back off: neither left to start nor running
        ("back_s", "f8"),  # when they are back in the queue
        ("back_next", "i8"),  # the next job that backs off, -1 = none
    ]
)
NODE_STATE = np.dtype(
    [
        ("load", "f8"),  # used / capacity of the driving resource
        ("used", "f8"),
        ("draw", "f8"),  # share of the dynamic power that is drawn
        ("power_w", "f8"),
        ("energy_j", "f8"),
        ("load_s", "f8"),  # integral of load
        ("window_s", "f8"),  # the same, of the window that is not over yet
        ("since_s", "f8"),  # the integrals stand at this time
        ("up", "i8"),
        ("piece", "i8"),  # the first piece on it
        ("pieces", "i8"),
        # where a cluster lends what services leave; all of the driving resource
        ("service", "f8"),  # that services use
        ("read", "f8"),  # the same by the last reading, -1 = unknown
        ("reserved", "f8"),  # that services reserve
        ("kept", "f8"),  # that is kept from batch jobs: free = capacity - kept - what they booked
        ("tuned", "f8"),  # the load that the speeds of its runs were last set for
        ("over_s", "f8"),  # since when it is overloaded with batch jobs on it, inf = it is not
        ("hot_s", "f8"),  # since when it is crowded with batch jobs on it, inf = it is not
        ("due_s", "f8"),  # when batch jobs may have to leave it, inf = as yet never
        ("batch", "i8"),  # batch instances on it
        ("reads", "i8"),  # readings so far
        ("read_step", "i8"),  # of use, at the last of them
        ("harm_s", "f8"),  # integral of what services use while batch jobs overload the node
        ("evicted", "i8"),  # batch instances so far
    ]
)
TOTALS = np.dtype(
    [
        ("time_s", "f8"),
        ("waiting_s", "f8"),  # integral of the number of waiting jobs
        ("system_s", "f8"),  # integral of the number of jobs waiting or running
        ("busy_s", "f8"),  # integral of the summed node load
        ("idle_s", "f8"),  # integral of idle nodes while jobs wait
        ("imbalance_s", "f8"),  # integral of the standard deviation of node load
        ("contended_s", "f8"),  # time during which jobs wait
        ("held_s", "f8"),  # integral, while jobs wait, of the allocated share of the cluster
        ("energy_j", "f8"),
        ("work_s", "f8"),  # instance-seconds of work done and kept
        ("lost_s", "f8"),  # instance-seconds of work thrown away
        ("quality", "f8"),
        ("submitted", "i8"),
        ("started", "i8"),
        ("finished", "i8"),
        ("stopped", "i8"),
        ("failed", "i8"),
        ("rejected", "i8"),
        ("refused", "i8"),
        ("late", "i8"),  # finished after the deadline
        ("service_s", "f8"),  # integral of what services use, where a cluster lends
        ("harmed_s", "f8"),  # of that, on overloaded nodes
        ("own_harm_s", "f8"),  # of that, on nodes that services alone overload
        ("evicted", "i8"),  # instances
    ]
)
SO_FAR = np.dtype(  # a job as it stood when the last one was submitted, services apart
    [
        ("held_s", "f8"),  # instance-seconds of its runs
        ("done_s", "f8"),  # instance-seconds of work at rate 1 that was done and kept
    ]
)
MAX_DEVICES = 64

# A quantity is kept in whole 2**-20ths, rounded down, so that sums and differences of 64-bit floats
# are exact: what was taken is given back to the last bit. Since floor(a) + floor(b) <= floor(a +
# b),
# whatever fits in real arithmetic still fits.
QUANTUM = 2.0**-20


def quantised(amount: Array) -> Array:
    """Amounts rounded down to the quantum that makes booking exact."""
    return np.floor(np.asarray(amount, dtype=np.float64) * 2.0**20) * QUANTUM
