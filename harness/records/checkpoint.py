"""checkpoint/: all that a run needs to go on after a step; it is there whole, or not there.

model.pt has what every rank has, rank<k>.pt what rank k alone has (rank<k>.<t>.pt: its thread t),
and manifest.json, written last, the digest of each. A set is written beside the one before, and
takes its place in the end.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness.records.run_directory import Events, read_json, write_json

NAME, PARTIAL, BEFORE = "checkpoint", "checkpoint.partial", "checkpoint.before"
MANIFEST, MODEL = "manifest.json", "model.pt"
Files = dict[str, str]  # digest by name


class Manifest(NamedTuple):
    """Origin and files of a checkpoint."""

    step: int  # steps done
    time_s: float  # on the emulated clock
    device: str  # cpu | cuda
    digest: str  # of all ranks' files, on whichever machine they are
    files: Files  # of this machine
    settings: dict[str, Any]  # those that must be equal where it goes on


def rank_file(rank: int, thread: int = 0) -> str:
    """Name of the file that keeps a rank, or a further thread of it."""
    return f"rank{rank}.{thread}.pt" if thread else f"rank{rank}.pt"


@dataclass
class Writer:
    """Writes the checkpoints of one rank; all ranks write at once."""

    run_dir: Path
    name: str  # of its file
    leads: bool  # its machine's ranks: one of each machine does, and writes for it
    gather: Callable[[Files], list[Files]]  # of every rank, by rank
    device: str
    settings: dict[str, Any]
    events: Events | None  # None: another rank tells

    def write(self, step: int, time_s: float, shared: dict[str, Any], own: dict[str, Any]) -> None:
        """Replace the checkpoint by that of `step` steps done; OSError leaves the old one."""
        partial = self.run_dir / PARTIAL
        partial.mkdir(exist_ok=True)
        mine = {self.name: _save(partial / self.name, own)}
        model = {MODEL: _save(partial / MODEL, {"step": step, **shared})} if self.leads else {}
        ranks = {name: digest for files in self.gather(mine) for name, digest in files.items()}
        if not self.leads:
            return
        here = {name: digest for name, digest in ranks.items() if (partial / name).exists()}
        digest = hashlib.sha256(json.dumps(ranks, sort_keys=True).encode()).hexdigest()
        manifest = Manifest(step, time_s, self.device, digest, here | model, self.settings)
        write_json(partial / MANIFEST, manifest._asdict())
        _replace(self.run_dir)
        if self.events is not None:
            self.events.append("checkpoint", time_s, step=step)


def find(path: Path) -> Path:
    """The whole checkpoint of a run directory, or of its checkpoint/; ValueError without one."""
    before = path.with_name(BEFORE) if path.name == NAME else path / BEFORE
    for folder in (path, path / NAME, before):  # the last: a crash between two renames
        if (folder / MANIFEST).is_file():
            return folder
    raise ValueError(
        f"must be a run directory, or its checkpoint/, with a whole checkpoint, got {str(path)!r}; "
        "one that reused another's training (summary.json names it) has none"
    )


def manifest_of(folder: Path) -> Manifest:
    """Read the manifest of the checkpoint in `folder`; ValueError when it is damaged."""
    try:
        return Manifest(**(read_json(folder / MANIFEST) or {}))
    except TypeError as error:
        raise ValueError(f"{folder / MANIFEST} is damaged: {error}") from error


def digest_of(path: str | None) -> str | None:
    """Digest of the checkpoint that `path` names; None where none is whole."""
    if path is None:
        return None
    try:
        return manifest_of(find(Path(path))).digest
    except ValueError:
        return None


def check_files(folder: Path, manifest: Manifest, needed: Iterable[str]) -> None:
    """ValueError unless every file that is `needed`, or listed, is there and as it was written."""
    for name in sorted({*manifest.files, *needed}):
        if name not in manifest.files or not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}, which going on needs")
        if _digest(folder / name) != manifest.files[name]:
            raise ValueError(f"{folder / name} is damaged: it is not what was written")


def load(folder: Path, name: str, device: torch.device) -> dict[str, Any]:
    """Content of a file of a checkpoint; what was on a GPU is now on `device`."""

    def place(storage: Any, location: str) -> Any:
        on_gpu = location != "cpu" and device.type == "cuda"
        return storage.cuda(device.index) if on_gpu else storage

    return torch.load(folder / name, weights_only=True, map_location=place)


def _save(path: Path, content: dict[str, Any]) -> str:
    """Write `content`; its digest. OSError that names `path`, which is then gone."""
    try:
        with path.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:
        path.unlink(missing_ok=True)
        cause = error if isinstance(error, OSError) else error.__context__
        if isinstance(cause, OSError):
            raise OSError(cause.errno, cause.strerror, str(path)) from None
        raise
    return _digest(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace(run_dir: Path) -> None:
    """Put the set that was just written in the place of the last; one of them is always whole."""
    last, before = run_dir / NAME, run_dir / BEFORE
    shutil.rmtree(before, ignore_errors=True)
    if last.exists():
        last.rename(before)
    (run_dir / PARTIAL).rename(last)
    shutil.rmtree(before, ignore_errors=True)
