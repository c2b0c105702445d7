"""`python -m tests.between COMMAND`: the harness's command, with Ctrl-C after each of its runs."""

import os
import signal
import sys

from harness.cli import main as command
from harness.runner import run


def main() -> None:
    perform = run.perform

    def interrupted(*arguments: object, **options: object) -> run.Outcome:
        outcome = perform(*arguments, **options)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGINT)
        return outcome

    run.perform = interrupted
    sys.argv = sys.argv[sys.argv.index("harness") :]
    command.main()


if __name__ == "__main__":
    main()
