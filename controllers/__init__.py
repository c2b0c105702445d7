"""Density controllers, one algorithm per file."""
