"""Controls: can a workload tell methods apart? Dense reaches its target, others must not; ours."""
