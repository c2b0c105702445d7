"""Tests of harness.calibrate."""
