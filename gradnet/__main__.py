"""`python -m gradnet`: the harness's command line, as `python -m harness`."""

from harness.__main__ import main

if __name__ == "__main__":
    main()
