"""Tests of `papers.local_steps`."""
