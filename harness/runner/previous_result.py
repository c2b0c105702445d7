"""An earlier result of a run: whether it is whole; done again, it is kept until there is a new one.

While the run goes on, the earlier one is beside it, hidden. If it does not succeed, the earlier one
is put back, and what the failed one left is hidden in its place.
"""

import shutil
from pathlib import Path

import yaml

from harness.config.settings import Settings
from harness.records import manifest, status
from harness.records.run_directory import read_json


def is_kept(run_dir: Path, settings: Settings) -> bool:
    """True if a whole result of `settings` is in `run_dir`, and no other is asked for."""
    succeeded = status.state(run_dir) == "succeeded" and not settings["rerun"]
    return succeeded and not damage(run_dir, settings)


def damage(run_dir: Path, settings: Settings) -> str:
    """Describe damage to the files of an earlier run; "" if there is none, or no run."""
    if not (run_dir / "status.json").exists():
        return ""
    told = read_json(run_dir / "status.json")
    if told is None:
        return "status.json is damaged"
    if told.get("state") == "succeeded":
        if difference := manifest.damage(run_dir, told):
            return difference
    elif not (run_dir / "config.yaml").exists():
        return ""  # it ended before it began
    try:
        same = Settings.read(run_dir).run_id() == settings.run_id()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
        same = False  # it is not there, neither UTF-8 nor YAML, or no settings
    return "" if same else "config.yaml is damaged"


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
