"""Gradient compressors, one algorithm per file."""
