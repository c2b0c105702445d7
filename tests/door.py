"""The command line, called in the process of a test."""

import sys

import pytest

from harness.cli.main import main
from harness.runner import signals


def door(*words: object) -> int:
    """Return the exit status of a command line; a refusal goes to stderr, as in a process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["harness", *map(str, words)])
        patch.setattr(signals, "stop_in_order", lambda: None)
        with pytest.raises(SystemExit) as ended:
            main()
    if isinstance(ended.value.code, str):
        print(ended.value.code, file=sys.stderr)
        return 1
    return ended.value.code or 0
