"""Tests of `harness.reporting.claims`."""
