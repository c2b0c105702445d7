"""What this machine can emulate, and how to enable the rest: `python -m harness.doctor`."""
