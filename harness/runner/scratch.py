"""Place where a run is written: its final folder, or a local disk of this machine.

GRADNET_SCRATCH names the folder on that disk. It may contain variables of this machine's
environment, such as `$SLURM_TMPDIR`, since it is a property of the machine. At the end the result
is copied beside its place and renamed, so readers see it complete or not at all. A run on scratch
finds no other run's training to reuse.
"""

import hashlib
import os
import shutil
from pathlib import Path

from harness.config.typed import BadSetting
from harness.records import status

VARIABLE = "GRADNET_SCRATCH"


def working(run_dir: Path) -> Path:
    """Return the folder in which to write the run: below GRADNET_SCRATCH if set, else `run_dir`.

    Raise BadSetting unless GRADNET_SCRATCH is an absolute path of an existing folder.
    """
    asked = os.environ.get(VARIABLE, "")
    folder = Path(os.path.expandvars(asked))
    if not asked:
        return run_dir
    if not (folder.is_absolute() and folder.is_dir()):
        raise BadSetting(f"{VARIABLE} must be a folder by its absolute path, got {asked}")
    name = hashlib.sha256(str(run_dir).encode()).hexdigest()[:12]
    return folder / f"gradnet-{os.getuid()}-{name}" / run_dir.parent.name / run_dir.name


def fetch(run_dir: Path, place: Path) -> None:
    """Copy `run_dir` to `place`, where its run resumes. Raise OSError if that fails."""
    if place != run_dir:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(run_dir, place, symlinks=True)


def arrive(place: Path, run_dir: Path) -> None:
    """Move the result at `place` to `run_dir`, replacing an earlier failure there.

    Raise BadSetting if it cannot be copied. It then stays where it is.
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
