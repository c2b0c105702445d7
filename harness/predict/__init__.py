"""Predictions of the emulated time and the cost of runs, before any run starts."""
