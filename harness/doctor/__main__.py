"""`python -m harness.doctor`: the command `doctor`."""

from harness.cli.main import main

if __name__ == "__main__":
    main("doctor")
