"""Weights & Biases, offline by default: `wandb sync` uploads what was written."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.trackers.base import beside, read, require_package


@dataclass
class WandB:
    """Tracker that writes RESULTS/wandb/offline-run-...-ID, with the training clock as axis."""

    project: str = "gradnet"
    mode: Literal["offline", "online"] = "offline"

    def check(self) -> None:
        require_package("wandb", "wandb")

    def write(self, run_dir: Path) -> None:
        import wandb

        run = read(run_dir)
        folder = beside(run_dir, "wandb")
        folder.mkdir(exist_ok=True)
        for earlier in folder.glob(f"offline-run-*-{run.run_id}"):
            shutil.rmtree(earlier)
        quiet = wandb.Settings(
            silent=True, console="off", disable_git=True, x_disable_stats=True, save_code=False
        )
        with wandb.init(
            project=self.project,
            mode=self.mode,
            id=run.run_id,
            name=run.name,
            group=run.experiment,
            dir=str(folder.parent),
            config=run.settings,
            settings=quiet,
        ) as written:
            written.define_metric("*", step_metric="time_s")
            for point in run.points:
                written.log(point.values | {"time_s": point.time_s}, step=point.step)
            written.summary["state"] = run.state
