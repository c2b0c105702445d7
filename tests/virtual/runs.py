"""Small runs: in virtual time, and by as many real ranks over gloo."""

import shutil
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import yaml

from harness.clock import Clock
from harness.config.run import Run
from harness.config.scales import composed
from harness.config.settings import Settings
from harness.engine.exchange.collectives import Workers
from harness.engine.programs import build_loop
from harness.engine.training.rank_context import RankContext
from harness.engine.training.resume import resumed
from harness.engine.training.together import Machines
from harness.engine.training.worker import barrier_min, gather, to_rank, two_level_workers
from harness.records import status
from harness.records.run_directory import TABLES, Table
from harness.validation import checked
from harness.virtual.run import simulate
from tests.ranks import run_ranks

SMALL = ("model=convnet", "dataset=digits", "report=false", "eval_every=3", "reuse_training=false")
TIMEOUT = timedelta(seconds=60)
DETERMINED = ("network.compress_scale=0", "emulation.compute=paced")  # times too


def settings_of(*overrides: str) -> Settings:
    """Checked settings of a small run, by default in virtual time."""
    other = any(override.startswith("model=") for override in overrides)
    width = () if other else ("model.width=8",)
    settings, _ = composed(["network=simulated", *SMALL, *width, *overrides])
    checked(settings)
    return settings


def simulated(folder: Path, *overrides: str) -> Path:
    """The run directory of a simulated run; it may have failed."""
    settings = settings_of(*overrides)
    prepare(folder, settings)
    simulate(folder, settings.run(), lambda: None)
    return folder


def prepare(folder: Path, settings: Settings) -> None:
    """What harness.runner.run leaves there before a run begins."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    status.begin(folder)
    (folder / "config.yaml").write_text(yaml.safe_dump(settings.config))
    for name in TABLES:
        table = Table(folder, name)
        table.header()
        table.close()


def over_gloo(folder: Path, *overrides: str) -> Path:
    """The run directory of the same, trained by real ranks on the loopback interface."""
    settings = settings_of(*overrides)
    prepare(folder, settings)
    run_ranks(settings["workers"], rank, folder, settings.run())
    return folder


def rank(folder: Path, run: Run) -> list[tuple[float, float, int, int]]:
    """What a rank does; its collectives: begin, end, sent and received bytes."""
    torch.manual_seed(run.seed)
    clock, cpu, own = Clock(run.emulation.dilation), torch.device("cpu"), run.workers_per_node
    two = run.parallel.levels > 1
    workers = two_level_workers(own, cpu, TIMEOUT) if two else Workers(dist.new_group())
    own, alone = workers.rank, 1  # each has a clock of its own; the first one's is stopped
    together = Machines(clock, barrier_min, gather, own, alone)
    context = RankContext(
        folder, own, own == 0, clock, workers, torch.device("cpu"), together, run.dataset
    )
    context = context._replace(channel=partial(to_rank, workers.group, device=context.device))
    loop = build_loop(run, context._replace(begin=resumed(run.resume_from)))
    clock.start()
    loop.run()
    loop.exchange.close()
    return workers.counted


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoint" / "model.pt", weights_only=True)["model"]
