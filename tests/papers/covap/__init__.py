"""Tests of COVAP's study."""
