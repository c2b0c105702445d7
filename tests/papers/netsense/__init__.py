"""Tests of `papers.netsense`."""
