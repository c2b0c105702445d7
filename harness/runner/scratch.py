"""Where a run is written while it goes on: in its place, or on a disk of this machine's own.

GRADNET_SCRATCH names the folder on that disk; it may name variables of this machine's environment,
as `$SLURM_TMPDIR` does, and is a machine's property rather than a run's. The result, whole or not,
is copied beside its place at the end and renamed: readers see it there whole, or not at all. A run
that begins there finds no other's training to reuse.
"""

import hashlib
import os
import shutil
from pathlib import Path

from harness.config.typed import BadSetting
from harness.records import status

VARIABLE = "GRADNET_SCRATCH"


def working(run_dir: Path) -> Path:
    """Folder in which the run of `run_dir` is to be written; BadSetting for one that is none."""
    asked = os.environ.get(VARIABLE, "")
    folder = Path(os.path.expandvars(asked))
    if not asked:
        return run_dir
    if not (folder.is_absolute() and folder.is_dir()):
        raise BadSetting(f"{VARIABLE} must be a folder by its absolute path, got {asked}")
    name = hashlib.sha256(str(run_dir).encode()).hexdigest()[:12]
    return folder / f"gradnet-{os.getuid()}-{name}" / run_dir.parent.name / run_dir.name


def fetch(run_dir: Path, place: Path) -> None:
    """Bring what is in `run_dir` to `place`, where its run goes on; OSError where it cannot be."""
    if place != run_dir:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(run_dir, place, symlinks=True)


def arrive(place: Path, run_dir: Path) -> None:
    """Move what was written at `place` to `run_dir`, in the place of an earlier failure there.

    BadSetting where it cannot be copied; it then stays where it is.
    """
    if place == run_dir or not place.exists():
        return
    arriving = run_dir.with_name(f".{run_dir.name}.arriving")
    try:
        shutil.rmtree(arriving, ignore_errors=True)
        shutil.copytree(place, arriving, symlinks=True)
        if status.state(run_dir) == "succeeded":  # of a machine that does not see our lock
            shutil.rmtree(arriving)
        else:
            shutil.rmtree(run_dir, ignore_errors=True)
            arriving.rename(run_dir)
    except (OSError, shutil.Error) as error:
        raise BadSetting(f"results: {place} cannot be copied to {run_dir}: {error}") from error
    shutil.rmtree(place.parents[1])
