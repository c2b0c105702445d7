"""Entry point of `python -m harness.report`, the command `report`."""

from harness.cli.main import main

if __name__ == "__main__":
    main("report")
