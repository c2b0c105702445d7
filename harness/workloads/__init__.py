"""Workloads: models, and the data sets that they learn from."""
