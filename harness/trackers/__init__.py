"""Trackers: further places to which the records of a run are written."""
