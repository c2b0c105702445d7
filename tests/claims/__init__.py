"""Tests of `harness.claims`."""
