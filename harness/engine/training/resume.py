"""What a run goes on from: the checkpoint of another, of the same method, model and batches."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness.config.run import Run
from harness.engine.training import checkpoint
from harness.engine.training.checkpoint import Manifest

# May differ between a run and the one it goes on from: where, how long, how looked at, on what
# network. Any other key must be equal.
FREE = {"experiment", "method", "steps", "epochs", "target", "eval_every", "checkpoint_every"}
FREE |= {"initial_weights", "resume_from", "device", "workers_per_node", "profile", "network"}
FREE |= {"emulation", "timeouts", "results", "plan", "rerun", "report"}


class Resumed(NamedTuple):
    """The checkpoint a run begins with."""

    folder: Path
    manifest: Manifest

    def told(self) -> dict[str, Any]:
        """Fields for events.jsonl."""
        step, digest = self.manifest.step, self.manifest.digest
        return {"step": step, "checkpoint": str(self.folder), "digest": digest}


def resumed(path: str | None) -> Resumed | None:
    """Find the checkpoint of `resume_from`; None for null. ValueError if none there is whole."""
    if path is None:
        return None
    folder = checkpoint.find(Path(path))
    return Resumed(folder, checkpoint.manifest_of(folder))


def deciding(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that must be equal, as a file has them."""
    return json.loads(json.dumps({k: v for k, v in config.items() if k not in FREE}))


def check(run: Run, begin: Resumed, ranks: int) -> None:
    """ValueError, naming what differs or lacks, unless `run` can go on from `begin`.

    `ranks` is how many this machine has to find there.
    """
    now, then = run.deciding, begin.manifest.settings
    differing = [f"{key}={was!r} (now {is_!r})" for key, was, is_ in _differences(then, now)]
    if differing:
        raise ValueError(f"needs {', '.join(differing)}, as {begin.folder} has it")
    steps, done = run.steps, begin.manifest.step
    if steps is not None and steps <= done:
        raise ValueError(f"has done {done} steps: steps must be more, got {steps}")
    everyone = map(checkpoint.rank_file, range(run.workers))
    needed = everyone if ranks == run.workers else ()
    checkpoint.check_files(begin.folder, begin.manifest, (checkpoint.MODEL, *needed))


def _differences(
    then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield every key, at any depth, whose value differs, with both values."""
    for key in sorted({*then, *now}):
        was, is_ = then.get(key), now.get(key)
        if isinstance(was, dict) and isinstance(is_, dict):
            yield from _differences(was, is_, f"{prefix}{key}.")
        elif was != is_:
            yield prefix + key, was, is_
