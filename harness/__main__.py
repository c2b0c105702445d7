"""Entry point of `python -m harness`, the same command line as `gradnet`."""

from harness.cli.main import main

if __name__ == "__main__":
    main()
