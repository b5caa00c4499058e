"""What a policy is tried on: a workload, a cluster and its speeds, by name or from files."""
