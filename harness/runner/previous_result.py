"""An earlier result of a run that is done again: kept until there is a new one.

While the run goes on, the earlier one is beside it, hidden. If it does not succeed, the earlier one
is put back, and what the failed one left is hidden in its place.
"""

import shutil
from pathlib import Path

from harness.records import status


def put_back(run_dir: Path) -> Path:
    """End what `set_aside` began, also in a process that was killed; where the run is now."""
    before, failed = _before(run_dir), run_dir.with_name(f".{run_dir.name}.failed")
    if not before.exists():
        return run_dir
    if status.state(run_dir) == "succeeded":
        shutil.rmtree(before)
        return run_dir
    shutil.rmtree(failed, ignore_errors=True)
    if run_dir.exists():
        run_dir.rename(failed)
    before.rename(run_dir)
    return failed


def set_aside(run_dir: Path) -> None:
    """Keep what succeeded in `run_dir`, if anything did, which is then gone."""
    if status.state(run_dir) == "succeeded":
        run_dir.rename(_before(run_dir))


def _before(run_dir: Path) -> Path:
    return run_dir.with_name(f".{run_dir.name}.before")
