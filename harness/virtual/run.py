"""A run in virtual time, in this process, with the same records as one over real packets."""

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from compressors import kernels
from harness.config.run import Run
from harness.engine.training import forms
from harness.engine.training.failure import in_a_line, traceback_of
from harness.engine.training.resume import resumed
from harness.locks import directory_to_ourselves
from harness.records import environment, status, summary
from harness.records.run_directory import Events, read_events, write_json
from harness.virtual.crew import virtual
from harness.virtual.curve import Curve, Kept, find, is_apart, key_of
from harness.virtual.network import Simulated
from harness.virtual.ranks import Ended, WorkerError
from profiles import recordings

Tell = Callable[[], None]


def simulate(run_dir: Path, run: Run, tell: Tell) -> None:
    """Do `run` in `run_dir`, with `tell()` after each step; record all errors but Ctrl-C."""
    events = Events(run_dir)
    try:
        assert isinstance(run.network, Simulated)
        with as_in_a_rank(run.seed, run.network.threads):
            _simulate(run_dir, run, run.network, events, tell)
    except Exception as error:
        status.end(run_dir, "failed", _reported(run_dir, run, events, error))


def _simulate(run_dir: Path, run: Run, network: Simulated, events: Events, tell: Tell) -> None:
    dilation, sharing = run.emulation.dilation, run.workers_per_node
    costs = network.costs(run.profile, run.nodes, sharing, dilation, run.network_seed)
    found = {**environment.describe(), "seed": run.seed, "dilation": dilation}
    found |= {"network": network.describe(costs, dilation), "proof": {}}
    found["recordings"] = recordings.notes(run.profile, network)
    with _curve(run_dir, run) as (curve, keep):
        of_curve = {"curve": curve.told()} if curve else {}
        found |= {"forms": forms.told(run), **of_curve}
        write_json(run_dir / "environment.json", found)
        begin = resumed(run.resume_from)
        begins_s = begin.manifest.time_s if begin else 0.0
        if begin:
            events.append("resumed", begins_s, **begin.told())
        if begin is None or not begin.is_of(run_dir):
            events.append("step_0", begins_s)
        world = virtual(run)(run_dir, run, costs, begin, tell, curve=curve, keep=keep)
        ended = world.run()
        told = {"network": {key: found["network"][key] for key in ("kind", "in_place_of")}}
        _conclude(run_dir, ended, events, told | of_curve)


@contextmanager
def _curve(run_dir: Path, run: Run) -> Iterator[tuple[Curve | None, Kept | None]]:
    """Context manager: yield the curve that `run` rests on, or the file for its own, or neither.

    A run that saves checkpoints trains. While one run trains, others with the same training wait
    for its curve.
    """
    if not (run.reuse_training and is_apart(run)):
        yield None, None
        return
    key = key_of(run)
    with ExitStack() as held:
        held.enter_context(directory_to_ourselves(run_dir.parents[1] / key))
        curve = None if run.checkpoint_every else find(run_dir, key, run)
        if curve:
            held.close()
        yield curve, None if curve else Kept(run_dir, key)


def _conclude(run_dir: Path, ended: list[Ended], events: Events, told: dict[str, Any]) -> None:
    """Write events of all ranks' ends, summary.json with the entries `told`, and the final state.

    The state is `invalid` if the ranks' weights drifted apart, else `succeeded`.
    """
    for rank, end in enumerate(ended):
        of_rank = end._asdict()
        events.append("rank_finished", of_rank.pop("end_s"), rank=rank, **of_rank)
    happened = read_events(run_dir)
    ends = [event for event in happened if event["event"] == "rank_finished"]
    reasons = summary.drift_reasons(ends)  # no network is to be proved, no pace to be missed
    found = summary.of(run_dir, happened, reasons, {})
    write_json(run_dir / "summary.json", {"simulated": True, **found, **told})
    status.end(run_dir, "invalid" if reasons else "succeeded", "; ".join(reasons) or None)


@contextmanager
def as_in_a_rank(seed: int, threads: int) -> Iterator[None]:
    """Set random numbers and threads as in a rank's own process, and restore them afterwards.

    It also loads compiled kernels, as a fork does, so the first exchange is not charged.
    """
    kernels.compiled()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(before)


def _reported(run_dir: Path, run: Run, events: Events, error: Exception) -> str:
    """Record a failure, write its traceback to a log as a rank does, and return it in one line."""
    rank, line = 0, in_a_line(error, run)
    cause: BaseException = error
    if isinstance(error, WorkerError):
        rank, cause, line = error.rank, error.__cause__ or error, str(error)
    events.append(
        "rank_failed",
        rank=rank,
        error=in_a_line(cause, run),
        peer=False,
        traceback=traceback_of(cause),
        monotonic=time.monotonic(),
    )
    (run_dir / "logs").mkdir(exist_ok=True)
    with (run_dir / "logs" / f"rank{rank}.log").open("a") as log:
        traceback.print_exception(cause, file=log)
    return line
