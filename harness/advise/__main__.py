"""`python -m harness.advise`: the command `advise`."""

from harness.cli.main import main

if __name__ == "__main__":
    main("advise")
