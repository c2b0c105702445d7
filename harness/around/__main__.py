"""`python -m harness.around`: the command `around`."""

from harness.cli.main import main

if __name__ == "__main__":
    main("around")
