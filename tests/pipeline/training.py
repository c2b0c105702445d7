"""Whole trainings over gloo without shapers, as a worker has them: as pipelines, and not."""

from collections.abc import Container
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist

from compressors import kernels
from harness.clock import Clock
from harness.config.settings import Settings
from harness.engine.training.resume import resumed
from harness.engine.training.worker import LocalRanks, _drifted, build_rank
from harness.records import checkpoint, columns
from harness.records.run_directory import TABLES
from harness.validation import checked
from harness.workloads.data.digits import Digits
from tests.ranks import run_ranks
from tests.test_settings import settings

TINY = (
    "dataset=digits", "batch_size=6", "accumulate=4", "steps=12", "eval_every=100",
    "optimizer.lr=0.3",
)  # fmt: skip
MLP = ("model=mlp", "model.hidden=[48,40,32]")
Runs = dict[str, tuple[str, ...]]  # overrides by name


class Trained(NamedTuple):
    """What a training left."""

    settings: Settings
    weights: dict[str, torch.Tensor]
    steps: pd.DataFrame
    evaluations: pd.DataFrame
    drifted: list[bool]  # by rank


class _Run(NamedTuple):
    run_dir: Path
    settings: Settings
    clock: Clock  # made before the ranks are forked


def train(
    folder: Path, workers: int, runs: Runs, saved: Container[str] | None = None
) -> dict[str, Trained]:
    """Train each of `runs` to its end, one after the other, with so many ranks.

    Those not among `saved` leave no weights; None: all do.
    """
    prepared = {}
    for name, overrides in runs.items():
        model = () if any(word.startswith("model=") for word in overrides) else MLP
        found = settings(*TINY, *model, f"workers={workers}", *overrides)
        if found["resume_from"] is None:
            checked(found)
        (folder / name).mkdir()
        prepared[name] = _Run(folder / name, found, Clock())
    kernels.compiled()  # and what data sets import: here once, before the fork
    Digits().train()
    ranks = run_ranks(workers, _train_all, list(prepared.values()))
    by_run = zip(*ranks, strict=True)
    return {
        name: _left(run, list(drifted), saved is None or name in saved)
        for (name, run), drifted in zip(prepared.items(), by_run, strict=True)
    }


def _left(run: _Run, drifted: list[bool], saved: bool) -> Trained:
    weights = {}
    if saved:
        model = checkpoint.find(run.run_dir) / checkpoint.MODEL
        weights = torch.load(model, weights_only=True)["model"]
    steps, evaluations = (_table(run.run_dir, name) for name in ("steps.csv", "evaluations.csv"))
    return Trained(run.settings, weights, steps, evaluations, drifted)


def _table(run_dir: Path, name: str) -> pd.DataFrame:
    path = run_dir / name
    path.touch()  # a run that is not evaluated leaves none
    return pd.read_csv(path, names=list(columns.recorded(TABLES[name])))


def _train_all(runs: list[_Run]) -> list[bool]:
    return [_train(run) for run in runs]


def _train(run: _Run) -> bool:
    """Whether the weights of this rank differ from those that it shares gradients with."""
    torch.manual_seed(run.settings["seed"])
    rank, begin = dist.get_rank(), resumed(run.settings["resume_from"])
    here, timeout = LocalRanks(0, dist.get_world_size()), timedelta(seconds=60)
    loop, groups = build_rank(
        run.settings.run(), run.run_dir, run.clock, torch.device("cpu"), here, timeout
    )
    dist.barrier()
    if rank == 0:
        run.clock.begins_s = begin.manifest.time_s if begin else 0.0
        run.clock.start()
    dist.barrier()
    loop.run()
    drifted = _drifted(loop.gradients, groups[0])
    loop.exchange.close()
    if hasattr(loop.gradients, "close"):
        loop.gradients.close()
    return drifted
