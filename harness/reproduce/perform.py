"""Execute a paper's runs: virtual ones in parallel, runs over packets one at a time."""

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

ATTEMPTS = 2  # a run that other programs disturbed is repeated once
IMPORTED = "harness.reproduce.preload"  # module loaded once for all workers
STOP_S = 8.0  # grace period of a run before its process exits
LAST_S = 30.0  # grace period of a pool before its workers are killed
Tell = Callable[[Settings, Outcome], None]
Ended = Generator[tuple[int, Outcome], None, None]


def perform(runs: list[Settings], tell: Tell) -> list[Outcome]:
    """Do `runs` and return their outcomes in order; failed runs are tried ATTEMPTS times.

    Call `tell` as each run ends, but not for runs done before. KeyboardInterrupt ends current runs
    cleanly and is raised again. The same call then continues from there.
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
    """Context manager: a process pool for at most `most` tasks at once.

    An exception in the block terminates the workers; any that still live after LAST_S are killed.
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
    """Initialize a worker: discard its stderr, and ignore signals that the owner passes on."""
    sys.stderr = open(os.devnull, "w")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent dies; it would otherwise wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker of a pool
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)  # lets its run end cleanly
    time.sleep(STOP_S)
    os._exit(1)


_stopped: list[int] = []  # signals that asked this worker to end


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _stopped.append(number)
    raise KeyboardInterrupt


def _unless_stopped(settings: Settings) -> Outcome:
    """Perform a run, unless this worker was asked to stop: then raise KeyboardInterrupt."""
    if _stopped:
        raise KeyboardInterrupt
    return run.perform(settings)
