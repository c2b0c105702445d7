"""Commands of `gradnet` and `python -m harness`, one module each."""
