"""Tests, by package."""
