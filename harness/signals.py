"""What asks a command to end: the first signal stops in order, a later one kills."""

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from harness.emulation.user_namespace import SHELL_SIGNAL
from harness.runner import run


def stop_in_order() -> None:
    """Let the first SIGINT, SIGTERM, SIGUSR1 or SIGHUP raise KeyboardInterrupt, from now on.

    SIGUSR1 is what a scheduler is usually told to send before a job's time is up.
    """
    _on_signals(_interrupt)


def _on_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    """Let `handler` meet what asks us to end; SIGHUP not under nohup, which has it ignored."""
    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGINT, handler)  # a shell ignores it for background jobs
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handler)  # the terminal was closed


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    _on_signals(_at_once)
    raise KeyboardInterrupt


def _at_once(number: int, frame: FrameType | None) -> None:
    """Kill the run, which we then record; without one, end."""
    if not run.kill():
        os._exit(SHELL_SIGNAL + number)
