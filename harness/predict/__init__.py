"""Predictions of what runs would take, before any run starts."""
