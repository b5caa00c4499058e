"""A running job: what changed, what that says of the cost model, whether to change the plan."""
