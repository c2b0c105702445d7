"""checkpoint/: all that a run needs to go on after a step; it is there whole, or not there.

model.pt has what every rank has, rank<k>.pt what rank k alone has (rank<k>.<t>.pt: its thread t),
and manifest.json, written last, the digest of each. A set is written beside the one before, and
takes its place in the end.
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
ZIP_BEGINS = b"PK\x03\x04"  # by this torch.load knows a zip file
MOST_LEVELS = 1000  # of tuples in tuples: the hash of a deeper one overflows the stack
MOST_LETTERS = 500
MOST_NAMED = 3  # parameters in a line
Files = dict[str, str]  # digest by name


class BadCheckpoint(ValueError):
    """A checkpoint, or a state, that training cannot go on from; its message is one short line."""

    def __init__(self, message: str) -> None:
        line = "".join(letter if letter.isprintable() else " " for letter in message)
        super().__init__(line if len(line) <= MOST_LETTERS else f"{line[:MOST_LETTERS]}...")


class NoZipFile(BadCheckpoint):
    """A file in the format that torch wrote before 1.6, or in none of torch's."""


@contextmanager
def refusing(where: object) -> Iterator[None]:
    """Raise what damage makes go wrong in the block as BadCheckpoint, which begins with `where`."""
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
    """Read the manifest of the checkpoint in `folder`; BadCheckpoint if it is damaged."""
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
    """Digest of the checkpoint that `path` names; None where none is whole."""
    if path is None:
        return None
    try:
        return manifest_of(find(Path(path))).digest
    except ValueError:
        return None


def check_files(folder: Path, manifest: Manifest, needed: Iterable[str]) -> None:
    """BadCheckpoint unless every file that is `needed`, or listed, is there as it was written."""
    for name in sorted({*manifest.files, *needed}):
        if name not in manifest.files or not (folder / name).is_file():
            raise BadCheckpoint(f"{folder} has no {name}, which going on needs")
        if _digest(folder / name) != manifest.files[name]:
            raise BadCheckpoint(f"{folder / name} is damaged: it is not what was written")


def load(folder: Path, name: str, device: torch.device) -> dict[str, Any]:
    """Read a file of a checkpoint; tensors that were on a GPU are now on `device`.

    Raise BadCheckpoint, in one line that names the file, for whatever torch.save did not write.
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
    """Raise BadCheckpoint unless torch reads the file as a zip file that does not grow.

    Torch reads a file that begins otherwise as a pickle of before 1.6, even if a zip file follows;
    its size has no bound. Tuples that are nested without end overflow the stack.
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
    """Count the levels of the deepest tuple, without making it: by what each opcode takes."""
    stack: list[int] = []  # levels of what lies there; 0 for all that is no tuple
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
    """Read the weights of a model: of our model.pt, or of a file with a plain state_dict.

    With `device="meta"` they have shapes and no values. Raises ValueError, in one line, for
    anything else.
    """
    wanted = "must be a file of torch.save with a state_dict, or a checkpoint/model.pt"
    try:
        _check_archive(Path(path))
        content = torch.load(path, weights_only=True, map_location=device)
    except Exception as error:  # torch raises whatever reading a foreign file does
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
    """Say what a file has that holds no weights."""
    if isinstance(content, dict):
        return f"a dict of {', '.join(map(str, list(content)[:3])) or 'nothing'}"
    return f"a {type(content).__name__}"


def unlike(weights: dict[str, torch.Tensor], model: torch.nn.Module) -> str:
    """Name what `weights` lack, have besides or have in another shape than `model`; "" if none."""
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
