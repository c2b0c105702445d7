"""Trackers: where the records of a run are written besides its directory."""
