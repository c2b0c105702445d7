"""Our own study: check that a workload is sensitive enough to tell methods apart."""
