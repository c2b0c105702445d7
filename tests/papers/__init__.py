"""Tests of the studies, a folder for each."""
