"""What is known of Alibaba's cluster trace of 2018, as numbers a twin is held against.

Source: alibaba/clusterdata, cluster-trace-v2018. Totals, rates by hour, machines and containers are
of the whole trace; task durations, instances, plans, use and stragglers are of every job of one
hour (from trace second 203,040), DAG shapes of a larger sample; use of machines is the cluster's
mean every 300 s. Two pairs do not agree among themselves, and a twin stands between them:

- 14,295,731 tasks have 1,403,141,267 instances, 98 a task, and that hour's have 45. A twin has the
  98, of which tasks of 6,000 instances and more, rare in that hour, are the difference.
- 4,201,014 jobs make 3.4 tasks a job, and the sample of shapes says 3.8. A twin has about 3.7.
"""

# Task starts by hour of day against their mean, hours 24 to 191.
BY_HOUR = (
    *(1.07, 0.89, 0.84, 1.60, 1.22, 1.50, 1.20, 1.26, 0.96, 1.01, 0.83, 0.84),
    *(0.70, 0.74, 0.84, 0.82, 0.83, 1.05, 0.94, 1.09, 1.16, 1.02, 0.84, 0.75),
)
MACHINES = 4034
TASKS_AN_HOUR = 85_000  # hours 24 to 191
TASKS = 14_295_731
INSTANCES = 1_403_141_267
JOBS = 4_201_014
CONTAINERS = 71_476
CONTAINER_MACHINES = 4005
CORES = 96
MEMORY = 100

PUBLISHED: dict[str, float] = {
    "machines": MACHINES,
    "machine.cpu_num": CORES,
    "machine.mem_size": MEMORY,
    "failure_domains_1": 292,
    "failure_domains_2": 20,
    "failure_domains_2_of_one_1.mean": 1.8,  # 94 lie in one, 162 in two, 36 in three
    "cluster_cpu_percent.mean": 40,
    "cluster_cpu_percent.sd": 9.8,
    "cluster_cpu_percent.min": 16,
    "cluster_cpu_percent.max": 79,
    "cluster_cpu_percent.hour_min": 31,
    "cluster_cpu_percent.hour_max": 52,
    "cluster_mem_percent.mean": 88,
    "cluster_mem_percent.min": 78,
    "cluster_mem_percent.max": 95,
    "machine_cpu_percent.own_sd": 12,
    "containers_a_machine": CONTAINERS / MACHINES,
    "containers.machine_share": CONTAINER_MACHINES / MACHINES,
    "containers.cores_reserved": 0.935,
    "container_cpu_percent.p50": 6,
    "tasks_a_machine_hour": TASKS_AN_HOUR / MACHINES,
    "tasks.day_0_share": 2683 / TASKS,  # without the 24,000 of the very first second
    **{f"task_rate.hour_{hour:02d}": rate for hour, rate in enumerate(BY_HOUR)},
    "jobs_a_second.dispersion": 4.4,
    "task_duration_s.p25": 3,
    "task_duration_s.p50": 10,
    "task_duration_s.p75": 37,
    "task_duration_s.p90": 148,
    "task_duration_s.p95": 320,
    "task_duration_s.p99": 741,
    "task_duration_s.mean": 64,
    "task_instances.p50": 1,
    "task_instances.p75": 5,
    "task_instances.p90": 48,
    "task_instances.p95": 233,
    "task_instances.p99": 877,
    "task_instances.mean": INSTANCES / TASKS,
    "task_instances.mean_under_6000": 45,
    "plan_cpu.share_100": 0.52,
    "plan_cpu.share_50": 0.45,
    "plan_mem.p50": 0.3,
    "plan_mem.p90": 0.49,
    "cpu_used_of_planned.p50": 0.64,
    "cpu_used_of_planned.p90": 1.7,
    "mem_used_of_planned.p50": 0.14,
    "mem_used_of_planned.p90": 0.68,
    "straggler.p50": 1.5,  # longest over mean instance, tasks of ten instances and more
    "straggler.p90": 2.9,
    "straggler.p99": 11,
    "tasks_a_job.mean": 3.8,
    "tasks_a_job.p50": 2,
    "tasks_a_job.p75": 5,
    "tasks_a_job.p90": 8,
    "tasks_a_job.p99": 23,
    "jobs.single_share": 0.35,
    "jobs.chain_share": 0.52,  # of the jobs of two tasks and more
    "job_depth.mean": 2.6,
    "job_depth.p90": 5,
    "job_depth.p99": 9,
    "tasks.independent_share": 2_088_028 / TASKS,  # named task_...
}
