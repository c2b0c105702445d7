"""Runs of a paper, done: virtual ones as many at a time as there are cores, packets alone."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import NoReturn

from harness.config.settings import Settings
from harness.predict.cost_estimate import at_a_time, is_virtual
from harness.runner import previous_result, run
from harness.runner.run import Outcome

ATTEMPTS = 2  # what the machine's other work disturbed is done once more
IMPORTED = "harness.reproduce.preload"  # once for all processes of the pools
STOP_S = 8.0  # for a run to end in order, before its process does
LAST_S = 30.0  # for a pool to end in order, before its processes are killed
Tell = Callable[[Settings, Outcome], None]
Ended = Generator[tuple[int, Outcome], None, None]


def perform(runs: list[Settings], tell: Tell) -> list[Outcome]:
    """Do `runs` and return how each ended, in order; failures are tried ATTEMPTS times.

    `tell` is called as each ends, not for those done before. KeyboardInterrupt ends the runs that
    go on in order, is recorded by them, and is raised again: the same call goes on from there.
    """
    found = {
        at: Outcome(run_dir, "succeeded", None, skipped=True)
        for at, settings in enumerate(runs)
        if previous_result.is_kept(run_dir := settings.run_dir(), settings)
    }
    for group, which in ((_virtual, True), (_packets, False)):
        of_kind = [at for at, one in enumerate(runs) if is_virtual(one) == which]
        for _ in range(ATTEMPTS):
            again = [at for at in of_kind if at not in found or found[at].state != "succeeded"]
            with closing(group({at: runs[at] for at in again})) as ended:
                for at, outcome in ended:
                    found[at] = outcome
                    tell(runs[at], outcome)
    return [found[at] for at in range(len(runs))]


def _packets(runs: dict[int, Settings]) -> Ended:
    for at, settings in runs.items():
        yield at, run.perform(settings)


def _virtual(runs: dict[int, Settings]) -> Ended:
    if not runs:
        return
    with pool_of(len(runs)) as pool:
        going = {pool.submit(_unless_stopped, settings): at for at, settings in runs.items()}
        for done in as_completed(going):
            yield going[done], done.result()


@contextmanager
def pool_of(most: int) -> Iterator[ProcessPoolExecutor]:
    """Processes for so many works at most; what leaves the block early ends them in order.

    Those that have not ended LAST_S later are killed.
    """
    processes = max(1, min(most, at_a_time()))
    # Torch's threads do not survive a fork: all pools come from one process that has none yet.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([IMPORTED])
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_quietly)
    try:
        yield pool
    except BaseException:
        workers = list((pool._processes or {}).values())
        for process in workers:
            process.terminate()  # as terminate_workers of Python 3.14 does
        killing = threading.Timer(LAST_S, _kill, [workers])
        killing.daemon = True
        killing.start()
        try:
            pool.shutdown(cancel_futures=True)
        finally:
            killing.cancel()
        raise
    pool.shutdown()


def _kill(workers: Sequence[BaseProcess]) -> None:
    for process in workers:
        process.kill()


def _quietly() -> None:
    """Who started the pool tells of the runs and passes signals on."""
    sys.stderr = open(os.devnull, "w")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A pool whose owner was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # of a process of a pool
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)  # its run ends in order
    time.sleep(STOP_S)
    os._exit(1)


_stopped: list[int] = []  # the signal that asked this process of the pool to end


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _stopped.append(number)
    raise KeyboardInterrupt


def _unless_stopped(settings: Settings) -> Outcome:
    """Runs that the pool had handed out already are not begun any more."""
    if _stopped:
        raise KeyboardInterrupt
    return run.perform(settings)
