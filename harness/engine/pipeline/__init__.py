"""Pipelines: a model cut into stages, one on each node; several of them train side by side."""
