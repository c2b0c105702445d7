"""One run from its settings: create its directory, start it, follow it, and report a failure."""

import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import yaml

from harness.config.run import Run
from harness.config.settings import BadSetting, Settings
from harness.emulation.user_namespace import SHELL_SIGNAL
from harness.engine.training.resume import Resumed
from harness.locks import directory_to_ourselves, machine_to_ourselves
from harness.records import checkpoint, environment, status
from harness.records.run_directory import TABLES, Table, read_events, read_json, refusal, write_json
from harness.runner import going_on, previous_result, scratch, tries
from harness.runner.fork_server import Supervisor
from harness.runner.progress import Display

POLL_S = 0.1
PROGRAM = "harness.runner.supervise"  # module of process 1

Doing = Callable[[Path, int | None], None]  # takes a run directory and the machine's lock, if any
Begin = Callable[[Path], Resumed | None]  # returns the state in a run directory to resume from


class Shown(Protocol):
    """Display that is updated while a run is in progress."""

    def update(self) -> None:
        """Show new results of the run; raise FileNotFoundError if its directory was removed."""
        ...


Show = Callable[[Path], AbstractContextManager[Shown]]  # takes a run directory


class Outcome(NamedTuple):
    """Final state of a run; `skipped` is True if an earlier result was kept."""

    run_dir: Path
    state: str
    error: str | None
    skipped: bool


def perform(settings: Settings, display: Display | None = None) -> Outcome:
    """Run `settings`, already checked, unless a succeeded result exists; return the outcome.

    `display` shows the run's progress; by default the run has a display of its own.
    """
    run = settings.run()
    begin = partial(going_on.found, run=run, rerun=settings["rerun"])
    show = partial((display or Display()).follow, run=run)
    if run.network.in_process:
        do: Doing = partial(_simulated, run=run, show=show)
        return done_once(settings, do, alone=False, begin=begin)
    do = partial(supervised, show=show, program=PROGRAM, variables=environment.ALLOCATOR)
    if settings.is_dilated_by_load:
        do = partial(_twice, settings=settings, do=do)
    return done_once(settings, do, alone=True, begin=begin)


def _twice(run_dir: Path, lock: int | None, settings: Settings, do: Doing) -> None:
    """Do the run, and repeat it more slowly if load alone kept it from being valid."""
    do(run_dir, lock)
    if summary := tries.to_repeat(run_dir):
        _fresh(run_dir, settings)
        tries.note_first(run_dir, summary)
        do(run_dir, lock)


def begins_anew(run_dir: Path) -> None:
    """Do nothing, so that the run starts from the beginning."""


def done_once(settings: Settings, do: Doing, alone: bool, begin: Begin = begins_anew) -> Outcome:
    """Do as `_done_once` does, then write the run with its tracker unless that was done before.

    A tracker writes only after the run, so that it slows no step. Raise BadSetting if writing
    fails; the same command then writes without another run.
    """
    outcome = _done_once(settings, do, alone, begin)
    run_dir = outcome.run_dir
    note, section = run_dir / "tracked.json", dict(settings["tracker"])
    if run_dir.name.startswith(".") or not run_dir.is_dir() or read_json(note) == section:
        return outcome
    try:
        if linked := next(filter(Path.is_symlink, sorted(run_dir.iterdir())), None):
            raise ValueError(f"{linked} is a link")
        settings.build("tracker").write(run_dir)
        write_json(note, section)
    except Exception as error:  # a tracker's package may raise anything
        raise BadSetting(f"tracker: {run_dir} was not written: {error}") from error
    return outcome


def _done_once(settings: Settings, do: Doing, alone: bool, begin: Begin) -> Outcome:
    """Let `do` execute the run unless a succeeded result exists; with `alone` lock the machine.

    The run continues from the state that `begin` finds in its directory. Wait while another process
    does the same run. A new result replaces an earlier one only if it succeeded.

    KeyboardInterrupt ends the run cleanly, is recorded as interrupted, and is raised again. Raise
    BadSetting if the directory cannot be written.
    """
    run_dir = settings.run_dir()
    if previous_result.is_kept(run_dir, settings):
        return Outcome(run_dir, "succeeded", None, skipped=True)
    previous_result.check_places(run_dir)
    place = scratch.working(run_dir)
    with ExitStack() as held:
        try:
            held.enter_context(directory_to_ourselves(run_dir))
        except OSError as error:
            raise BadSetting(f"results: {run_dir} cannot be written: {error}") from error
        to_ourselves = machine_to_ourselves(f"in {run_dir}") if alone else nullcontext()
        lock = held.enter_context(to_ourselves)
        previous_result.put_back(run_dir)  # if a process was killed
        # While we waited, another process may have done this run; or its result was restored.
        if previous_result.is_kept(run_dir, settings):
            return Outcome(run_dir, "succeeded", None, skipped=True)
        if damaged := previous_result.damage(run_dir, settings):
            print(f"{run_dir}: {damaged}: its run is done again", file=sys.stderr)
        else:
            previous_result.set_aside(run_dir)
        if told := environment.to_compile():
            print(told, file=sys.stderr)
        try:
            if found := begin(run_dir):
                scratch.fetch(run_dir, place)
            _perform(place, settings, do, lock, found)
        finally:
            scratch.arrive(place, run_dir)
            now_in = previous_result.put_back(run_dir)
    ended = read_json(now_in / "status.json")
    if not ended:
        gone = f"{run_dir} was removed while the run went on"
        return Outcome(now_in, "failed", gone, skipped=False)
    return Outcome(now_in, ended["state"], ended.get("error"), skipped=False)


def _perform(
    run_dir: Path, settings: Settings, do: Doing, lock: int | None, begin: Resumed | None
) -> None:
    """Execute the run in `run_dir` by `do`, from `begin` if given.

    status.json records any ending; errors are raised again. Raise BadSetting if the directory
    cannot be written. Remove the run's temporary files.
    """
    try:
        try:
            if begin is None:
                _fresh(run_dir, settings)
            else:
                going_on.cut(run_dir, begin)
        except OSError as error:
            status.end_if_running(run_dir, "failed", str(error))
            raise BadSetting(f"results: {run_dir} cannot be written: {error}") from error
        do(run_dir, lock)
    except KeyboardInterrupt:
        status.end_if_running(run_dir, "interrupted", "stopped by the user")
        raise
    except SystemExit:  # raised by submitit, which has requeued the job
        status.end_if_running(run_dir, "interrupted", "stopped by the scheduler")
        raise
    except BaseException as error:
        status.end_if_running(
            run_dir, "failed", f"the runner failed: {type(error).__name__}: {error}"
        )
        raise
    finally:
        shutil.rmtree(status.temporary(run_dir), ignore_errors=True)


def _fresh(run_dir: Path, settings: Settings) -> None:
    """Create an empty run directory, marked as running, with all files that readers expect."""
    if run_dir.exists():
        shutil.rmtree(run_dir)
    (run_dir / "logs").mkdir(parents=True)
    status.temporary(run_dir).mkdir()
    status.begin(run_dir)
    (run_dir / "config.yaml").write_text(yaml.safe_dump(settings.config, sort_keys=False))
    for name in TABLES:
        table = Table(run_dir, name)
        table.header()
        table.close()


def _simulated(run_dir: Path, lock: int | None, run: Run, show: Show) -> None:
    """Do the run in virtual time here, from its checkpoint if any, and without a lock."""
    from harness.virtual.run import simulate  # imports torch only if needed

    if checkpoint.digest_of(str(run_dir)) is not None:  # None in an empty directory
        run = replace(run, resume_from=str(run_dir))
    with show(run_dir) as shown:
        simulate(run_dir, run, shown.update)


_running: list[Supervisor] = []  # at most one


def supervised(
    run_dir: Path, lock: int | None, show: Show, program: str, variables: Mapping[str, str]
) -> None:
    """Start the supervisor and follow it to its end; status.json then has the final state.

    Its process 1 runs module `program`, with `variables` added to our environment.
    """
    assert lock is not None  # two runs would distort each other's timings
    with (run_dir / "logs" / "supervisor.log").open("ab") as log:
        supervisor = Supervisor(run_dir, log.fileno(), lock, program, variables)
    _running.append(supervisor)
    try:
        with show(run_dir) as shown:
            while supervisor.poll() is None:
                shown.update()
                time.sleep(POLL_S)
    except FileNotFoundError as gone:
        supervisor.stop()
        status.end(run_dir, "failed", f"{gone.filename} was removed while the run went on")
    except BaseException:
        supervisor.stop()
        raise
    finally:
        _running.remove(supervisor)
    if status.state(run_dir) == "running":
        status.end(run_dir, "failed", _unreported(supervisor, run_dir))


def kill() -> bool:
    """Kill the current run at once, for a second Ctrl-C; return False if there is none."""
    for supervisor in _running:
        supervisor.kill()
    return bool(_running)


def _unreported(supervisor: Supervisor, run_dir: Path) -> str:
    """Return why a supervisor ended without a report of its own."""
    code = supervisor.poll() or 0
    if code > SHELL_SIGNAL:
        return f"the supervisor was killed by {signal.Signals(code - SHELL_SIGNAL).name}"
    log = (run_dir / "logs" / "supervisor.log").read_text(errors="replace").strip()
    last = refusal(run_dir) or (log.splitlines()[-1] if log else "no output")
    return f"the supervisor ended with status {code}: {last}"


def failure_report(outcome: Outcome) -> str:
    """Return the report on a failed run: traceback, location of its logs, and last the cause."""
    lines = []
    events = read_events(outcome.run_dir)
    reports = [event for event in events if event["event"] == "rank_failed"]
    causes = [event for event in reports if not event["peer"]] or reports
    first = min(causes, key=lambda event: event["monotonic"], default=None)
    if first and first["traceback"] and outcome.state == "failed":
        lines.append(f"--- traceback of rank {first['rank']}\n{first['traceback'].rstrip()}")
    lines.append(f"logs: {outcome.run_dir / 'logs'}")
    if outcome.state == "invalid":
        lines.append("it is kept, and figures leave it out; the same command makes it again")
    elif checkpoint.digest_of(str(outcome.run_dir)):
        lines.append(f"resume_from={outcome.run_dir} goes on from its last checkpoint")
    lines.append(f"run {outcome.state}: {outcome.error}")
    return "\n".join(lines)
