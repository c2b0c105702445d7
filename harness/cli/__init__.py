"""The commands of `gradnet` and `python -m harness`."""
