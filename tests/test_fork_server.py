"""A command that is forked is the command: what it is told, says, leaves and ends with."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import fork_server
from tests.launching import ROOT, TINY, afresh, popen, processes, training, until
from tests.virtual.runs import DETERMINED

Start = Callable[..., subprocess.Popen]
VIRTUAL = ("network=simulated", "steps=4", "eval_every=2", *TINY[2:4], *DETERMINED, "report=false")
SWEEP = ("-m", "seed=0,1", "optimizer.lr=0.1,1e20", *VIRTUAL)
COMMANDS = {
    "nothing to report": ["harness.report"],
    "an option that is none": ["harness", "--nothing"],
    "a sweep of which half fails": ["harness", *SWEEP],
}
TELLS = """
import os, sys, tests
ours = {"harness", "compressors", "tests.fork_server"} & set(sys.modules)
print(__name__, sys.argv, os.getcwd(), tests.__file__, os.environ["PYTHONPATH"], ours)
import beside
print(beside.__file__)
"""
SCRIPTS = (["-m", "tests.told", "a word"], ["-c", TELLS, "a word"],
           ["-c", "raise ValueError('this is why')"], ["-c", "import sys; sys.exit(3)"],
           ["-c", "import sys; sys.exit('in words')"])  # fmt: skip
OF_THE_HOUR = {"status.json", "environment.json", "summary.json", "events.jsonl"}


def fresh(command: list[str], **options: object) -> subprocess.Popen:
    return subprocess.Popen(command, text=True, **options)  # type: ignore[call-overload]


def outcome(start: Start, words: list[str], folder: Path) -> tuple:
    """Exit status, output, errors and files, with the same `folder` to write to."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    module, *rest = words
    where = "{}" if module == "harness.report" else "results={}"
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", module, *rest, where.format(folder / "results")]
    process = start(command, cwd=ROOT, stdout=pipe, stderr=pipe)
    output, errors = process.communicate(timeout=120)
    told = [line for line in errors.splitlines() if "ETA" not in line]  # now and then
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    same = {str(n): p.read_bytes() for n, p in files.items() if p.name not in OF_THE_HOUR}
    return process.returncode, output, told, sorted(map(str, files)), same


@pytest.mark.parametrize("name", COMMANDS)
def test_it_says_leaves_and_ends_with_the_same(name: str, tmp_path: Path) -> None:
    forked = outcome(popen, COMMANDS[name], tmp_path / "folder")
    assert forked == outcome(fresh, COMMANDS[name], tmp_path / "folder")


@pytest.mark.launch
def test_a_run_over_packets_has_the_same_processes_and_ends_by_the_same_signals(tmp_path):
    assert packets(popen, tmp_path / "a") == packets(fresh, tmp_path / "b")


def packets(start: Start, results: Path) -> tuple:
    """How a run stands under way, and how it ends by Ctrl-C."""
    words = (*TINY, "steps=100000", f"results={results}", "report=false")
    command = [sys.executable, "-m", "harness", *words]
    pipe = subprocess.PIPE
    running = start(command, cwd=ROOT, stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        run = until(lambda: training(results), "a run under way")
        assert isinstance(run, Path)
        title = Path(f"/proc/{running.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        place = (os.getpgid(running.pid), os.getsid(running.pid), parent(running.pid))
        [forks] = [pid for pid in processes("harness: forks") if parent(pid) == running.pid]
        assert os.getsid(forks) == forks
        settings = (run / "config.yaml").read_text().replace(str(results), "")
        running.send_signal(signal.SIGINT)
        told = running.communicate(timeout=60)
    finally:
        running.kill()
    tells = [line for line in told[1].splitlines() if "goes on from here" in line]
    place = tuple(each - running.pid if each == running.pid else each for each in place)
    return title.strip().replace(str(results), ""), place, running.returncode, tells, settings


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("words", SCRIPTS, ids=range(len(SCRIPTS)))
def test_what_is_forked_with_libraries_alone_runs_the_code_where_it_is(words, tmp_path):
    for name, content in (("__init__", ""), ("told", TELLS), ("more/beside", "")):
        file = tmp_path / "tests" / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    command = [sys.executable, *words]
    env = os.environ | {"PYTHONPATH": str(tmp_path / "tests" / "more")}
    pipe = subprocess.PIPE
    new = subprocess.run(command, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe, text=True)
    assert fork_server.is_python(command, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe)
    forked = afresh(command, cwd=tmp_path, env=env)
    assert (forked.returncode, forked.stdout) == (new.returncode, new.stdout)
    assert forked.stderr.splitlines()[-1:] == new.stderr.splitlines()[-1:]


@pytest.mark.parametrize("signalled", [signal.SIGKILL, signal.SIGSTOP])
def test_its_process_is_a_child_that_is_waited_for(signalled: signal.Signals) -> None:
    command = [sys.executable, "-m", "harness", "--help"]
    process = popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.send_signal(signalled)
    if signalled == signal.SIGSTOP:
        process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if signalled == signal.SIGKILL else 0)


def test_a_variable_that_is_set(name: str = "LEFT_BY_A_TEST") -> None:
    os.environ[name] = "1"
    assert not fork_server.is_served([sys.executable, "-m", "harness"])


def test_is_gone_for_the_next_test(name: str = "LEFT_BY_A_TEST") -> None:
    assert name not in os.environ
    assert fork_server.is_served([sys.executable, "-m", "harness"])


def test_what_only_a_fresh_process_reads_gets_one() -> None:
    command = [sys.executable, "-m", "harness"]
    assert fork_server.is_served(command)
    assert fork_server.is_served(command, env=os.environ | {"TMPDIR": "/elsewhere"})
    assert not fork_server.is_served(command, env=os.environ | {"OMP_NUM_THREADS": "3"})
    assert not fork_server.is_served(command, preexec_fn=os.getpid)
    assert not fork_server.is_served(["nohup", *command])
    assert not fork_server.is_served([sys.executable, "-m", "tests.between", "harness"])


@pytest.mark.parametrize("command", [["sleep", "60"], [sys.executable, "-m", "harness", "--help"]])
def test_signals_that_the_tests_ignore_are_not_passed_on(command: list[str]) -> None:
    process = popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    ignored = Path(f"/proc/{process.pid}/status").read_text().partition("SigIgn:")[2].split()[0]
    process.kill()
    process.communicate()
    assert not int(ignored, 16) & sum(1 << number - 1 for number in (signal.SIGHUP, signal.SIGINT))
