"""Fork server: supervisors of runs are forked by a process that has imported what they need.

Importing torch costs a process seconds, and forking one that has it does not. The fork server
starts with the first run. It has one thread, and only forks, waits and reports.
"""

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from setproctitle import setproctitle

from harness.config.settings import Settings
from harness.emulation import user_namespace
from harness.records import status
from harness.records.run_directory import read_json

STOP_S = 8.0  # for a supervisor to end after `stop`, before it is killed
POLL_S = 0.02
MOST_BYTES = 4096  # of a path
NOT_ENDED = f"the runner stopped or died; the supervisor did not end within {STOP_S:g} s: killed"


class _Loaded:
    """The fork server, and the state it copied from this process. Later changes do not reach it."""

    def __init__(self, run_dir: Path, log: int, program: str, variables: Mapping[str, str]) -> None:
        """Start the server; it imports `program`, logs to `log`, has temporaries of `run_dir`."""
        self.of, self.program = _surroundings(), program
        self.busy = False  # with a run whose end has not been told yet
        of_run = {"TMPDIR": str(status.temporary(run_dir))}
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "harness.runner.fork_server", program],
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                env=os.environ | variables | of_run,
                start_new_session=True,  # Ctrl-C is ours to pass on
            )

    def forks(self, program: str) -> bool:
        """Return True if it can fork the next supervisor, of `program`."""
        ready = not self.busy and self.process.poll() is None
        return ready and self.program == program and self.of == _surroundings()

    def close(self) -> None:
        """End the fork server, as the death of this process does."""
        self.socket.close()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _surroundings() -> tuple[dict[str, str], str]:
    return dict(os.environ), os.getcwd()


_loaded: list[_Loaded] = []  # at most one


@atexit.register
def _end() -> None:
    """End the fork server when the command ends, so that nothing is left."""
    while _loaded:
        _loaded.pop().close()


class Supervisor:
    """Supervisor process of one run, as its runner sees it."""

    def __init__(
        self, run_dir: Path, log: int, lock: int, program: str, variables: Mapping[str, str]
    ) -> None:
        """Start it. It writes to `log` and holds `lock`, both descriptors.

        Its process 1 runs `supervise` of the module `program`, with `variables` in its environment.
        """
        if _loaded and not _loaded[0].forks(program):
            _loaded.pop().close()
        if not _loaded:
            _loaded.append(_Loaded(run_dir, log, program, variables))
        self._by = _loaded[0]
        self._by.busy = True
        theirs, ours = os.pipe()
        # the supervisor reads it: its end means that the runner wants to stop, or is dead
        self._stop = open(ours, "wb", buffering=0)
        with suppress(BrokenPipeError):  # it has died, which `poll` tells
            socket.send_fds(self._by.socket, [os.fsencode(run_dir)], [theirs, log, lock])
        os.close(theirs)
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the supervisor's exit status as a shell's, or None before it has ended."""
        if self._code is None:
            try:
                told = self._by.socket.recv(1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except ConnectionResetError:
                told = b""
            self._code = told[0] if told else self._of_loaded()
            self._by.busy = False
            self._stop.close()
        return self._code

    def _of_loaded(self) -> int:
        """Return the fork server's exit status as a shell's. The kernel killed its supervisor."""
        code = self._by.process.wait()
        return code if code >= 0 else user_namespace.SHELL_SIGNAL - code

    def stop(self) -> None:
        """Ask it to end in order, and kill it if it does not."""
        if self.poll() is None:
            with suppress(BrokenPipeError):  # it is ending already
                self._stop.write(b"s")
            self._stop.close()
        deadline = time.monotonic() + STOP_S
        while self.poll() is None:
            if time.monotonic() > deadline:
                self.kill()
            time.sleep(POLL_S)

    def kill(self) -> None:
        """Kill it. The kernel removes all of its namespaces with it."""
        self._by.process.kill()


def main() -> None:
    """Serve requests to fork supervisors, from the socket that is the standard input.

    Each request is a run directory with three descriptors. The answer is one byte, the supervisor's
    exit status. End when the socket closes. The first argument is the module with `supervise`.
    """
    before = set(os.environ)
    supervise = import_module(sys.argv[1]).supervise
    for told in set(os.environ) - before:
        del os.environ[told]  # places for temporary files, which are of one run
    runner = socket.socket(fileno=os.dup(0))
    _put(os.open(os.devnull, os.O_RDWR), 0, 1, 2)
    own = os.getpid()
    setproctitle("harness: forks supervisors")
    # The runner's death wakes this process if it is stopped, so that it sees the socket's end.
    user_namespace.die_with_parent(signal.SIGCONT)
    while True:
        asked, descriptors, _, _ = socket.recv_fds(runner, MOST_BYTES, 3)
        if not asked:
            os._exit(0)  # the runner has ended; there is nothing to tidy up
        forked = os.fork()
        if forked == 0:
            runner.close()
            user_namespace.die_with_parent()
            if os.getppid() == own:
                _be_supervisor(Path(os.fsdecode(asked)), supervise, *descriptors)
            os._exit(1)
        for descriptor in descriptors:
            os.close(descriptor)
        _wait(forked, runner, Path(os.fsdecode(asked)))
        code = user_namespace.shell_status(os.waitpid(forked, 0)[1])
        with suppress(BrokenPipeError):  # the runner has ended, which the next look tells
            runner.send(bytes([code]))


def _wait(supervisor: int, runner: socket.socket, run_dir: Path) -> None:
    """Return when the supervisor has ended. If the runner ends first, it has STOP_S for that.

    Then it is killed, with all that is in its namespaces: it may be stopped, or stuck.
    """
    ended = os.pidfd_open(supervisor)
    looking = select.poll()
    looking.register(ended, select.POLLIN)
    looking.register(runner, select.POLLRDHUP)
    if not any(descriptor == ended for descriptor, _ in looking.poll()):
        looking.unregister(runner)
        if not looking.poll(1000 * STOP_S):
            if (read_json(run_dir / "status.json") or {}).get("state") == "running":
                status.end(run_dir, "interrupted", NOT_ENDED)
            os.kill(supervisor, signal.SIGKILL)
    os.close(ended)


def _be_supervisor(
    run_dir: Path, supervise: Callable[[Path], None], stop: int, log: int, lock: int
) -> NoReturn:
    """Supervise the run in `run_dir` in this forked process, and exit. Never return.

    Enter the namespaces of the run's network first. `stop`, `log` and `lock` are descriptors.
    """
    code = 1
    try:
        _put(stop, 0)
        _put(log, 1, 2)
        os.set_inheritable(lock, True)
        os.environ["TMPDIR"], tempfile.tempdir = str(status.temporary(run_dir)), None
        setproctitle(f"harness: enclosure of {run_dir}")
        Settings.read(run_dir).build("network").enter()
        setproctitle(f"harness: supervisor of {run_dir}")
        from harness.runner.first_process import to_its_end  # no run in virtual time needs it

        to_its_end(run_dir, supervise)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _put(descriptor: int, *places: int) -> None:
    """Duplicate `descriptor` to `places`, which children inherit, and close it."""
    for place in places:
        os.dup2(descriptor, place)
    os.close(descriptor)


if __name__ == "__main__":
    main()
