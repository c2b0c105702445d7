"""Check earlier results of a run, and keep them until a new run has succeeded.

During a run the earlier result has a hidden name beside it. If the run fails, the earlier result is
restored, and the failed run gets a hidden name instead.
"""

import shutil
from pathlib import Path

import yaml

from harness.config.settings import BadSetting, Settings
from harness.records import manifest, status
from harness.records.run_directory import read_json


def is_kept(run_dir: Path, settings: Settings) -> bool:
    """Return True if `run_dir` has a complete result of `settings` and rerun is off."""
    succeeded = status.state(run_dir) == "succeeded" and not settings["rerun"]
    return succeeded and not damage(run_dir, settings)


def damage(run_dir: Path, settings: Settings) -> str:
    """Describe damage to the files of an earlier run; "" if there is no damage or no run."""
    if not (run_dir / "status.json").exists():
        return ""
    told = read_json(run_dir / "status.json")
    if told is None:
        return "status.json is damaged"
    if told.get("state") == "succeeded":
        if difference := manifest.damage(run_dir, told):
            return difference
    elif not (run_dir / "config.yaml").exists():
        return ""  # the run ended before it started
    try:
        same = Settings.read(run_dir).run_id() == settings.run_id()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
        same = False  # it is missing, not UTF-8, not YAML, or has no settings
    return "" if same else "config.yaml is damaged"


def check_places(run_dir: Path) -> None:
    """Raise BadSetting if `run_dir`, or a hidden name beside it, is a symbolic link."""
    for path in (run_dir, _before(run_dir), _failed(run_dir)):
        if path.is_symlink():
            raise BadSetting(f"results: a run is written to folders, got {path}, which is a link: "
                             "remove it, or write elsewhere with results=FOLDER")  # fmt: skip


def put_back(run_dir: Path) -> Path:
    """Restore the earlier result, or delete it if the new run has succeeded.

    This also works after a killed process. Return the folder of the last run: `run_dir`, or the
    hidden one to which a failed run was moved.
    """
    before, failed = _before(run_dir), _failed(run_dir)
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
    """Move a succeeded `run_dir` to its backup name."""
    if status.state(run_dir) == "succeeded":
        run_dir.rename(_before(run_dir))


def _before(run_dir: Path) -> Path:
    return run_dir.with_name(f".{run_dir.name}.before")


def _failed(run_dir: Path) -> Path:
    return run_dir.with_name(f".{run_dir.name}.failed")
