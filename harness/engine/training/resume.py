"""The checkpoint that a run resumes from. It must have the same method, model and batches."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness.config.run import Run
from harness.config.typed import class_paths
from harness.records import checkpoint
from harness.records.checkpoint import Manifest
from harness.records.run_directory import place_now


class Resumed(NamedTuple):
    """The checkpoint that a run resumes from."""

    folder: Path
    manifest: Manifest

    def is_of(self, run_dir: Path) -> bool:
        """Return True if the checkpoint is of the run in `run_dir`, which was interrupted."""
        return self.folder.parent.absolute() == run_dir.absolute()

    def told(self) -> dict[str, Any]:
        """Return step, path and digest of the checkpoint, for events.jsonl."""
        step, digest = self.manifest.step, self.manifest.digest
        return {"step": step, "checkpoint": str(self.folder), "digest": digest}


def resumed(path: str | None) -> Resumed | None:
    """Return the checkpoint in `path`, or None for None. Raise ValueError if none is complete."""
    if path is None:
        return None
    folder = checkpoint.find(Path(path))
    return Resumed(folder, checkpoint.manifest_of(folder))


def check(run: Run, begin: Resumed, ranks: int) -> None:
    """Raise ValueError, naming the difference, unless `run` can resume from `begin`.

    `ranks` is the number of ranks on this machine. If it has all of them, their files must exist.
    """
    now, then = run.deciding, begin.manifest.settings
    if any(place_now(each) != each for each in class_paths(then)):  # they have moved since
        anew = "begin anew with resume_from=null, or check out the commit in its environment.json"
        raise ValueError(f"{begin.folder} is of an older version and cannot be read: {anew}")
    differing = [f"{key}={was!r} (now {is_!r})" for key, was, is_ in _differences(then, now)]
    if differing:
        raise ValueError(f"needs {', '.join(differing)}, as {begin.folder} has it")
    steps, done = run.steps, begin.manifest.step
    if steps <= done:
        raise ValueError(f"has done {done} steps: steps must be more, got {steps}")
    everyone = map(checkpoint.rank_file, range(run.workers))
    needed = everyone if ranks == run.workers else ()
    checkpoint.check_files(begin.folder, begin.manifest, (checkpoint.MODEL, *needed))


def _differences(
    then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield (key, old value, new value) for every setting that differs, at any depth."""
    for key in sorted({*then, *now}):
        was, is_ = then.get(key), now.get(key)
        if isinstance(was, dict) and isinstance(is_, dict):
            yield from _differences(was, is_, f"{prefix}{key}.")
        elif was != is_:
            yield prefix + key, was, is_
