"""Checkpoints: a run's state after a step, in checkpoint/, which is either complete or missing.

model.pt has the state common to all ranks, rank<k>.pt that of rank k (rank<k>.<t>.pt: of its thread
t). manifest.json, written last, has the digest of each. A new checkpoint is written beside the
previous one, and replaces it at the end.
"""

import hashlib
import json
import os
import pickle
import pickletools
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness.records.run_directory import Events, read_json, write_json

NAME, PARTIAL, BEFORE = "checkpoint", "checkpoint.partial", "checkpoint.before"
MANIFEST, MODEL = "manifest.json", "model.pt"
FILE_NAME = re.compile(r"(model|rank\d+(\.\d+)?)\.pt")
ZIP_BEGINS = b"PK\x03\x04"  # torch.load recognizes a zip file by it
MOST_LEVELS = 1000  # of nested tuples; hashing a deeper one overflows the stack
MOST_LETTERS = 500
MOST_NAMED = 3  # parameters in a line
Files = dict[str, str]  # digest by name


class BadCheckpoint(ValueError):
    """A checkpoint or state that training cannot resume from; its message is one short line."""

    def __init__(self, message: str) -> None:
        line = "".join(letter if letter.isprintable() else " " for letter in message)
        super().__init__(line if len(line) <= MOST_LETTERS else f"{line[:MOST_LETTERS]}...")


class NoZipFile(BadCheckpoint):
    """A file that is not in torch's zip format, for example from before torch 1.6."""


@contextmanager
def refusing(where: object) -> Iterator[None]:
    """Context manager: raise errors due to damaged files as BadCheckpoint that names `where`."""
    try:
        yield
    except BadCheckpoint:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
        pickle.UnpicklingError,
        zipfile.BadZipFile,
    ) as error:
        raise BadCheckpoint(f"{where} is damaged: {type(error).__name__}: {error}") from error


class Manifest(NamedTuple):
    """Origin and files of a checkpoint."""

    step: int  # steps done
    time_s: float  # on the emulated clock
    device: str  # cpu | cuda
    digest: str  # of all ranks' files on all machines
    files: Files  # of this machine
    settings: dict[str, Any]  # those that must not change when a run resumes


def rank_file(rank: int, thread: int = 0) -> str:
    """Return the name of the checkpoint file of a rank, or of a further thread of it."""
    return f"rank{rank}.{thread}.pt" if thread else f"rank{rank}.pt"


@dataclass
class Writer:
    """Writer of one rank's checkpoints; all ranks call `write` together."""

    run_dir: Path
    name: str  # of the rank's file
    leads: bool  # one rank per machine leads: it writes the common files
    gather: Callable[[Files], list[Files]]  # returns every rank's files, by rank
    device: str
    settings: dict[str, Any]
    events: Events | None  # None: another rank records the event

    def write(self, step: int, time_s: float, shared: dict[str, Any], own: dict[str, Any]) -> None:
        """Replace the checkpoint by that after `step` steps; on OSError the old one remains."""
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
    """Return the complete checkpoint's folder in run directory `path`; ValueError if none."""
    before = path.with_name(BEFORE) if path.name == NAME else path / BEFORE
    for folder in (path, path / NAME, before):  # `before` is left by a crash between two renames
        if (folder / MANIFEST).is_file():
            return folder
    raise ValueError(
        f"must be a run directory, or its checkpoint/, with a whole checkpoint, got {str(path)!r}; "
        "one that reused another's training (summary.json names it) has none"
    )


def manifest_of(folder: Path) -> Manifest:
    """Read the manifest of the checkpoint in `folder`; raise BadCheckpoint if it is damaged."""
    path = folder / MANIFEST
    with refusing(path):
        manifest = Manifest(**(read_json(path) or {}))
        step, time_s, files = manifest.step, manifest.time_s, manifest.files
        texts = (manifest.device, manifest.digest, *dict(files).values())
        good = {
            "step": type(step) is int and 0 <= step < 2**53,
            "time_s": type(time_s) in (int, float) and isfinite(time_s) and time_s >= 0,
            "files": all(isinstance(text, str) for text in texts)
            and all(map(FILE_NAME.fullmatch, files)),
            "settings": isinstance(manifest.settings, dict),
        }
        for name, is_good in good.items():
            if not is_good:
                raise BadCheckpoint(f"{path} is damaged: {name} is {getattr(manifest, name)!r}")
        return manifest


def digest_of(path: str | None) -> str | None:
    """Return the digest of the checkpoint at `path`; None if no complete one exists."""
    if path is None:
        return None
    try:
        return manifest_of(find(Path(path))).digest
    except ValueError:
        return None


def check_files(folder: Path, manifest: Manifest, needed: Iterable[str]) -> None:
    """Raise BadCheckpoint unless all `needed` and all listed files exist with their digests."""
    for name in sorted({*manifest.files, *needed}):
        if name not in manifest.files or not (folder / name).is_file():
            raise BadCheckpoint(f"{folder} has no {name}, which going on needs")
        if _digest(folder / name) != manifest.files[name]:
            raise BadCheckpoint(f"{folder / name} is damaged: it is not what was written")


def load(folder: Path, name: str, device: torch.device) -> dict[str, Any]:
    """Return the content of a checkpoint file; tensors saved on a GPU are on `device`.

    Raise BadCheckpoint, in one line that names the file, if torch.save did not write it.
    """

    def place(storage: Any, location: str) -> Any:
        on_gpu = location != "cpu" and device.type == "cuda"
        return storage.cuda(device.index) if on_gpu else storage

    path = folder / name
    with refusing(path):
        _check_archive(path)
        content = torch.load(path, weights_only=True, map_location=place)
        if not isinstance(content, dict):
            raise BadCheckpoint(f"{path} is damaged: it has a {type(content).__name__}")
        return content


def _check_archive(path: Path) -> None:
    """Raise BadCheckpoint unless the file is a zip file that does not grow when unpacked.

    Torch reads any other file as a pickle from before 1.6, even if a zip file follows; its size has
    no bound. Deeply nested tuples overflow the stack.
    """
    with path.open("rb") as file:
        if file.read(len(ZIP_BEGINS)) != ZIP_BEGINS:
            raise NoZipFile(f"{path} is damaged: it is no zip file, as torch >= 1.6 writes it")
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        total, size = sum(member.file_size for member in members), path.stat().st_size
        if not stored or total > size:
            raise BadCheckpoint(
                f"{path} is damaged: it has {size} bytes, and {total} when unpacked"
            )
        pickles = [member for member in members if member.filename.endswith("/data.pkl")]
        levels = max(_levels_of_tuples(archive.read(member)) for member in pickles)
    if levels > MOST_LEVELS:
        raise BadCheckpoint(f"{path} is damaged: tuples in tuples at {levels} levels")


def _levels_of_tuples(pickled: bytes) -> int:
    """Return the depth of the deepest nested tuple of a pickle, without unpickling it."""
    stack: list[int] = []  # nesting depth of each item; 0 if it is no tuple
    marks: list[int] = []
    memo: dict[Any, int] = {}
    deepest = 0
    for opcode, argument, _ in pickletools.genops(pickled):
        takes = opcode.stack_before
        if opcode.name == "MARK":
            marks.append(len(stack))
        elif opcode.name.endswith("BINPUT"):
            memo[argument] = stack[-1]
        else:
            first = len(stack) - len(takes)
            if pickletools.markobject in takes:
                first = marks.pop() - takes.index(pickletools.markobject)
            taken, stack[first:] = stack[first:], []
            levels = 1 + max(taken, default=0) if "TUPLE" in opcode.name else 0
            levels = memo[argument] if opcode.name.endswith("BINGET") else levels
            stack += [levels] * len(opcode.stack_after)
            deepest = max(deepest, levels)
    return deepest


def weights_of(path: str | Path, device: str = "cpu") -> dict[str, torch.Tensor]:
    """Return the weights in our model.pt, or in a file with a plain state_dict.

    With `device="meta"` tensors have no values. Raise ValueError, in one line, for other files.
    """
    wanted = "must be a file of torch.save with a state_dict, or a checkpoint/model.pt"
    try:
        _check_archive(Path(path))
        content = torch.load(path, weights_only=True, map_location=device)
    except Exception as error:  # torch may raise anything for a foreign file
        said = "which torch.load(weights_only=True) cannot read"
        if isinstance(error, NoZipFile):
            said = "which is no zip file: load it and save it again with torch 1.6 or later"
        raise ValueError(f"{wanted}, got {str(path)!r}, {said}") from error
    found = content.get("model", content) if isinstance(content, dict) else None
    is_named = isinstance(found, dict) and all(isinstance(name, str) for name in found)
    if not (is_named and found and all(isinstance(each, torch.Tensor) for each in found.values())):
        raise ValueError(f"{wanted}, got {str(path)!r}, which has {_described(content)}")
    return dict(found)


def _described(content: Any) -> str:
    """Describe the content of a file without weights."""
    if isinstance(content, dict):
        return f"a dict of {', '.join(map(str, list(content)[:3])) or 'nothing'}"
    return f"a {type(content).__name__}"


def unlike(weights: dict[str, torch.Tensor], model: torch.nn.Module) -> str:
    """Describe missing, unexpected and misshapen `weights` for `model`; "" if all fit."""
    needed = model.state_dict()
    others = [
        f"{name} is {list(weights[name].shape)}, not {list(each.shape)}"
        for name, each in needed.items()
        if name in weights and weights[name].shape != each.shape
    ]
    lists = {
        "missing": [name for name in needed if name not in weights],
        "unexpected": [name for name in weights if name not in needed],
        "of another shape": others,
    }
    return "; ".join(
        f"{len(names)} {what}: {', '.join(names[:MOST_NAMED])}{', ...' * (len(names) > MOST_NAMED)}"
        for what, names in lists.items()
        if names
    )


def _save(path: Path, content: dict[str, Any]) -> str:
    """Write `content` and return its digest; on OSError, which names `path`, remove the file."""
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
    """Replace the last checkpoint by the new one; at any time one of them is complete."""
    last, before = run_dir / NAME, run_dir / BEFORE
    shutil.rmtree(before, ignore_errors=True)
    if last.exists():
        last.rename(before)
    (run_dir / PARTIAL).rename(last)
    shutil.rmtree(before, ignore_errors=True)
