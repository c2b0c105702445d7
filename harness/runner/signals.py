"""Signals that ask a command to end: the first stops it in order, the second kills its run."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from harness.emulation.user_namespace import SHELL_SIGNAL

STOPPING = b"stopping in order; again: at once\n"


def stop_in_order() -> None:
    """Let the first SIGINT, SIGTERM, SIGUSR1 or SIGHUP raise KeyboardInterrupt, from now on.

    A message says so at once, on standard error. Schedulers usually send SIGUSR1 before a job's
    time is up.
    """
    _on_signals(_interrupt)


def _on_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    """Let `handler` handle the signals that end a command; leave SIGHUP ignored under nohup."""
    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGINT, handler)  # a shell ignores it for background jobs
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handler)  # the terminal was closed


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    _on_signals(_at_once)
    if progress := sys.modules.get("harness.runner.progress"):  # absent: no run has started
        progress.erase()  # it would be drawn over the message
    with suppress(OSError):  # the terminal may be gone
        os.write(2, STOPPING)
    raise KeyboardInterrupt


def _at_once(number: int, frame: FrameType | None) -> None:
    """Kill the current run, which its runner then records; end the command if there is none."""
    run = sys.modules.get("harness.runner.run")
    if run is None or not run.kill():
        os._exit(SHELL_SIGNAL + number)
