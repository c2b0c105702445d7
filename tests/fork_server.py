"""Forks `python -m harness...` from what has imported it: `python -m tests.fork_server project`.

Importing torch costs every command some seconds, and the process that forks its supervisors as
many again; a fork of one that has it does not, nor does it load compiled kernels or read the yaml
that every run is composed of. A command that is forked has the arguments,
environment, folder, standard streams, group and signals that a fresh one would have, and is a
child of the process that asked for it.

`python -m tests.fork_server libraries` has imported other projects' packages alone. What it forks
imports ours from where the command runs, as a copy of the project in another folder has to. And
`python -m tests.fork_server networks` has what laws about networks need; it is small, forked soon.
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from ctypes import CDLL, get_errno
from functools import cache
from io import FileIO, TextIOWrapper
from multiprocessing import util
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from setproctitle import setproctitle

ROOT = Path(__file__).resolve().parents[1]
FORK_SERVER = "harness.runner.fork_server"
POOLS = ("harness.reproduce", "harness.advise")  # have pools of processes
FORK_SERVERS = (FORK_SERVER, "tests.fork_server")
FORKS_POOLS = "multiprocessing.forkserver"
ABOVE_ALL = 512  # descriptors that a command has
IMPORTED = ("harness.cli.run", "harness.runner.supervise", "harness.predict.plan",
            "harness.predict.cost_estimate", "harness.reporting.report",
            "harness.reproduce.__main__", "harness.reproduce.preload", "harness.cli.advise",
            "harness.fidelity.__main__", "harness.cli.draw", "harness.cli.doctor",
            "harness.cli.clean", "harness.cli.claims", "harness.cli.calibrate",
            "harness.cli.around", "harness.cli.report", "harness.around.supervise")  # fmt: skip
LIBRARIES = ("torch", "torch._dynamo", "torchvision", "scipy.stats", "numba", "hydra", "pandas",
             "matplotlib.figure", "matplotlib.backends.backend_agg", "rich.console", "jinja2",
             "setproctitle")  # fmt: skip
NETWORKS = ("pytest", "hypothesis", "harness.emulation.dumbbell", "harness.emulation.nic_lease",
            "harness.emulation.rendezvous", "harness.emulation.profile_player",
            "tests.launching")  # fmt: skip
# Of a test; what else the environment says is read when a library is imported.
FREE = {"TMPDIR", "GATE", "GATE_AT", "GATE_RANK", "GRADNET_DATA", "PYTEST_CURRENT_TEST"}
FRESH = "TESTS_FRESH"  # in the environment: nothing is forked, as where memory is scarce
OPTIONS = {"stdin", "stdout", "stderr", "text", "cwd", "env", "process_group", "start_new_session"}
MOST_BYTES = 1 << 17  # of what is asked for
PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE = 36, 4
SPARES = 2  # of a command: a second one for laws that kill the first, and for torchrun's ranks
UNBUFFERED = "-u"  # as torchrun starts Python
SPARE = "tests: a spare process"  # its title, until it is used
PATH = "PYTHONPATH"
THREADS = "OMP_NUM_THREADS"
OF_OURS = {PATH, THREADS, "GRADNET_KERNELS", "GRADNET_CONFIG"}  # read by ours, or told to torch


class Forked(subprocess.Popen):
    """A command forked by the process at the other end of the socket `by`.

    With `inside`, in the user and mount namespaces of that process; with `at_terminal`, its
    standard input is the terminal of its session.
    """

    def __init__(
        self,
        by: socket.socket,
        command: Sequence[str | Path],
        inside: int | None = None,
        at_terminal: bool = False,
        **options: Any,
    ) -> None:
        self._by = by
        self._where = {"inside": inside, "at_terminal": at_terminal}
        super().__init__(command, **options)

    def _execute_child(self, args: list[str], *options: Any) -> None:
        """In place of fork and exec; `options` are those of subprocess.Popen, in its order."""
        _, _, _, _, cwd, env, *more = options
        _, _, _, stdin, to_it, from_it, stdout, from_errors, stderr, *_, session, group = more
        asked = {"command": [str(each) for each in args], "folder": os.fspath(cwd or os.getcwd()),
                 "environment": {key: str(value) for key, value in (env or os.environ).items()},
                 "session": session, "group": group, **self._where}  # fmt: skip
        streams = [own if told == -1 else told for own, told in enumerate((stdin, stdout, stderr))]
        socket.send_fds(self._by, [json.dumps(asked).encode()], streams)
        self.pid = int.from_bytes(self._by.recv(8))
        assert self.pid, "the fork server has ended"
        self._child_created = True
        self._close_pipe_fds(stdin, to_it, from_it, stdout, from_errors, stderr)


@cache
def environment() -> dict[str, str]:
    """Of this process as it was first asked: what forks commands has imported everything in it."""
    return dict(os.environ)


@cache
def server(has: str = "project") -> socket.socket:
    """To what forks for this process; the commands are children of this process."""
    from harness.records.environment import ALLOCATOR  # of ours, so not at the top

    CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", __name__, has]
    started = {"cwd": ROOT, "stdin": theirs, "env": environment() | ALLOCATOR}
    with theirs:
        if has == "project":  # what others' packages cost is paid once
            Forked(server("libraries"), command, **started)
        else:
            subprocess.Popen(command, **started)
    return ours


def is_python(command: Sequence[str | Path], **options: Any) -> bool:
    """Whether what forks with libraries alone can do it."""
    wanted = options.get("env") or os.environ
    differs = {key for key, _ in set(wanted.items()) ^ set(environment().items())}
    alike = set(options) <= OPTIONS and differs <= FREE | OF_OURS
    return FRESH not in os.environ and command[0] == sys.executable and alike


def is_served(command: Sequence[str | Path], **options: Any) -> bool:
    """Whether a fork is what a fresh process would be: it has imported what that would import."""
    from harness.records.environment import ALLOCATOR

    if FRESH in os.environ:
        return False
    if command[:2] != [sys.executable, "-m"] or str(command[2]).split(".")[0] != "harness":
        return False
    wanted = set((options.get("env") or os.environ).items()) - set(ALLOCATOR.items())
    differs = {key for key, _ in wanted ^ set(environment().items())}
    return set(options) <= OPTIONS and differs <= FREE


def here(begin: Callable[[], None]) -> socket.socket:
    """To what forks in the namespaces of the calling thread, and in what `begin` changes of them.

    For a process that a server has forked: a fork of it has imported as much. Commands are children
    of this process, which is process 1 of its namespace.
    """
    assert os.getpid() == 1
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        begin()
        _serve(theirs)
    theirs.close()
    return ours


def main(has: str) -> None:
    """Commands are asked for on the socket that is standard input, until its other end goes."""
    asks = socket.socket(fileno=os.dup(0))
    for name in {"project": IMPORTED, "libraries": LIBRARIES, "networks": NETWORKS}[has]:
        importlib.import_module(name)
    if has == "project":
        _begin()
    elif has == "libraries":
        del sys.modules["tests"]  # where a command runs may be another
    gc.collect()
    gc.freeze()  # what is not looked at is not copied
    _serve(asks)


def _serve(asks: socket.socket) -> NoReturn:
    nothing = os.open(os.devnull, os.O_RDWR)
    for place in range(3):
        os.dup2(nothing, place)
    os.close(nothing)
    setproctitle("tests: forks commands")
    while True:
        asked, streams, _, _ = socket.recv_fds(asks, MOST_BYTES, 3)
        if not asked:
            os._exit(0)
        reading, writing = os.pipe()
        if (between := os.fork()) == 0:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            asks.close()
            os.close(reading)
            while os.getppid() == between:
                os.sched_yield()
            _command(json.loads(asked), streams, writing)
        os.waitpid(between, 0)  # so the command is the child of who asked
        for each in (writing, *streams):
            os.close(each)
        asks.send(os.read(reading, 8))
        os.close(reading)


def _begin() -> None:
    """What a run does first, and what of that does not change: compiled kernels, read yaml."""
    from compressors import kernels
    from harness.config import scales
    from tests.launching import TINY

    kernels.path()
    scales.compose(TINY)


def _command(asked: dict[str, Any], streams: list[int], writing: int) -> NoReturn:
    """Tell our process id to `writing` once all is as asked, and do the command."""
    if asked.get("inside"):
        _enter(asked["inside"])
    module = asked["command"][2] if asked["command"][1] == "-m" else ""
    has_spares = asked["command"][1] != "-c" and module not in FORK_SERVERS
    if has_spares:  # code may change namespaces first, which a spare would not be in
        _Spared.by = _Spares(streams)
    if asked["session"]:
        os.setsid()
    elif asked["group"] not in (None, -1):
        os.setpgid(0, asked["group"])
    if asked.get("at_terminal"):
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    os.write(writing, os.getpid().to_bytes(8))
    os.close(writing)
    threads = _threads(asked["environment"])
    if has_spares:
        subprocess.Popen = _Spared  # type: ignore[misc]
        if ranks := sys.modules.get("torch.distributed.elastic.multiprocessing.subprocess_handler"):
            ranks.subprocess_handler.Popen = _Spared
    if module in POOLS:
        util.spawnv_passfds = _SparePool(asked, streams, threads).become
    _run(asked, streams)


def _threads(environment: Mapping[str, str]) -> int:
    """As many as a fresh process would have; the fork server itself has one."""
    threads = int(environment.get(THREADS) or len(os.sched_getaffinity(0)))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    return threads


def _enter(holder: int) -> None:
    """Into the namespaces of the process `holder`, as nsenter does."""
    libc = CDLL(None, use_errno=True)
    for kind in ("user", "mnt"):
        path = f"/proc/{holder}/ns/{kind}"
        if not os.path.samefile(path, f"/proc/self/ns/{kind}"):
            place = os.open(path, os.O_RDONLY)
            if libc.setns(place, 0):
                raise OSError(get_errno(), f"setns to {path}")
            os.close(place)
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # as after an exec: /proc/self is its own


class _Spares:
    """Children that have done nothing yet, to become what forks supervisors, one after another."""

    def __init__(self, streams: list[int]) -> None:
        self._unused: dict[int, socket.socket] = {}  # by process id
        self._of = os.getpid()
        for _ in range(SPARES):
            ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
            with theirs:
                if (pid := os.fork()) == 0:
                    for each in (ours, *self._unused.values()):
                        each.close()
                    for stream in streams:
                        os.close(stream)
                    setproctitle(SPARE)
                    _wait(theirs)
            self._unused[pid] = ours
        atexit.register(self._end)

    def one(self) -> socket.socket | None:
        """To one that nobody has had yet; None where there is none left."""
        return self._unused.popitem()[1] if self._unused else None

    def _end(self) -> None:
        """Before the command ends: nobody else would wait for them. Its forks have none."""
        if os.getpid() != self._of:
            return
        for pid in self._unused:
            os.kill(pid, signal.SIGKILL)  # other children may have its socket's other end, too
            os.waitpid(pid, 0)


class _Spared(Forked):
    """subprocess.Popen of a command: what forks for it is one of its spares, while there is one."""

    by: _Spares

    def __init__(self, *args: Any, **options: Any) -> None:
        self._where = {"inside": None, "at_terminal": False}
        super(Forked, self).__init__(*args, **options)

    def _execute_child(self, args: list[str], *options: Any) -> None:
        forks = args[1:2] == ["-m"] and args[2] in FORK_SERVERS
        rank = (*args[:2],) == (sys.executable, UNBUFFERED)  # of torchrun, which is in our process
        if (forks or rank) and (spare := self.by.one()):
            self._by = spare
            super()._execute_child(args, *options)
        else:
            super(Forked, self)._execute_child(args, *options)


class _SparePool:
    """A child that has done nothing yet, to become what multiprocessing forks a pool from."""

    def __init__(self, asked: dict[str, Any], streams: list[int], threads: int) -> None:
        self._socket, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._start: Callable[..., int] = util.spawnv_passfds
        with theirs:
            if os.fork() == 0:
                self._socket.close()
                for each in streams:
                    os.close(each)
                _surround(asked)
                _wait_for_pool(theirs, threads)

    def become(self, path: bytes, words: list[str], descriptors: Sequence[int]) -> int:
        """In place of multiprocessing.util.spawnv_passfds; the tracker of resources is fresh."""
        if f"from {FORKS_POOLS} import" not in words[-1] or self._socket.fileno() < 0:
            return self._start(path, words, descriptors)
        with self._socket:
            places = [0, 1, 2, *descriptors]
            asked = {"words": [os.fsdecode(word) for word in words], "places": places}
            socket.send_fds(self._socket, [json.dumps(asked).encode()], places)
            return int.from_bytes(self._socket.recv(8))


def _wait_for_pool(asks: socket.socket, threads: int) -> NoReturn:
    """Until it is told what to do, or the command has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as it does once it forks
    asked, came, _, _ = socket.recv_fds(asks, MOST_BYTES, 16)
    if not asked:
        os._exit(0)
    asks.send(os.getpid().to_bytes(8))
    asks.close()
    told = json.loads(asked)
    above = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, ABOVE_ALL) for each in came]
    for each in came:
        os.close(each)
    for each, place in zip(above, told["places"], strict=True):
        os.dup2(each, place)
        os.close(each)
    import torch

    torch.set_num_threads(threads)
    setproctitle(" ".join(told["words"]))
    exec(told["words"][-1], {})
    os._exit(0)


def _wait(asks: socket.socket) -> NoReturn:
    """Until it is told what to become, or the command has ended."""
    os.setsid()  # Ctrl-C is not for us
    asked, streams, _, _ = socket.recv_fds(asks, MOST_BYTES, 3)
    if not asked:
        os._exit(0)
    asks.send(os.getpid().to_bytes(8))
    asks.close()
    told = json.loads(asked)
    if told["command"][1] == UNBUFFERED:
        _threads(told["environment"])
    _run(told, streams)


def _run(asked: dict[str, Any], streams: list[int]) -> NoReturn:
    """What Python does with these arguments, in the environment that was asked for."""
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    _surround(asked)
    sys.orig_argv = asked["command"]
    _, *words = asked["command"]
    if words[0] == UNBUFFERED:
        words.pop(0)
        sys.stdout = TextIOWrapper(FileIO(1, "w", closefd=False), write_through=True)
    how = words.pop(0) if words[0] in ("-m", "-c") else "script"
    what, *sys.argv[1:] = words
    sys.path[0] = asked["folder"] if how != "script" else os.path.dirname(what) or asked["folder"]
    added = asked["environment"].get(PATH, "").split(os.pathsep)
    sys.path[1:1] = [each for each in added if each and each not in sys.path]
    setproctitle(" ".join(asked["command"]))
    code: object = None
    try:
        _main(how, what)
    except SystemExit as end:
        code = end.code
    except Exception:
        traceback.print_exc()
        code = 1
    _exit(code)


def _surround(asked: dict[str, Any]) -> None:
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    tempfile.tempdir = None


def _main(how: str, what: str) -> None:
    if how == "-c":
        sys.argv[0] = how
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), vars(main))
        return
    if how == "script":
        sys.argv[0] = what
        runpy.run_path(what, run_name="__main__")
        return
    for name in (what, f"{what}.__main__"):
        if not hasattr(sys.modules.get(name), "__path__"):
            sys.modules.pop(name, None)  # what runs as __main__ is not imported
    runpy.run_module(what, run_name="__main__", alter_sys=True)


def _exit(code: object) -> NoReturn:
    """As the interpreter does, but for taking apart what was imported, which costs a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main(*sys.argv[1:])
