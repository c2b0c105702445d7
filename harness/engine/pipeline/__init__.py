"""Pipelines: a model cut into stages, one on each node, and several pipelines side by side."""
