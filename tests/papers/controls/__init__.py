"""Tests of `papers.dct`."""
