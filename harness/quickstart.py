"""Entry point of `python -m harness.quickstart`, the command `quickstart`."""

from harness.cli.main import main

if __name__ == "__main__":
    main("quickstart")
