"""Tests of `papers.dc2`."""
