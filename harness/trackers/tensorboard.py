"""TensorBoard: a folder of event files for each run, for `tensorboard --logdir`."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from harness.trackers.base import beside, read, require_package


@dataclass
class TensorBoard:
    """Tracker that writes RESULTS/tensorboard/EXPERIMENT/NAME-ID, in float32 as TensorBoard does.

    A value's wall time is the run's start plus its time on the training clock, so that the relative
    axis shows emulated seconds.
    """

    def check(self) -> None:
        require_package("tensorboard", "tensorboard")

    def write(self, run_dir: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        run = read(run_dir)
        folder = beside(run_dir, "tensorboard") / run.experiment
        for earlier in folder.glob(f"*-{run.run_id}"):
            shutil.rmtree(earlier)
        began_s = run.started.timestamp()
        with SummaryWriter(str(folder / f"{run.name.replace(' ', '_')}-{run.run_id}")) as writer:
            lines = (f"    {key}: {value}" for key, value in run.settings.items())
            writer.add_text("settings", "\n".join(lines), 0, began_s)
            writer.add_text("state", run.state, 0, began_s)
            for point in run.points:
                for name, value in point.values.items():
                    writer.add_scalar(name, value, point.step, began_s + point.time_s)
