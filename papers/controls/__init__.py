"""Controls: on each workload, what should reach the target does, and what should not does not; ours."""
