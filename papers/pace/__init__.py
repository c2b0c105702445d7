"""Pace: controllers against each other where rates change and where flows compete; ours."""
