"""Manifest of a finished run: sizes and digests of its files, kept in status.json.

It shows damage: rows that were cut, doubled or changed, and files that were removed or added. It is
no signature: anyone who can write every file can write a manifest that fits.
"""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from harness.records import run_directory

CHUNK_BYTES = 1 << 16  # a reading holds no more, however long the run was
TABLES = [*run_directory.ALL_TABLES]
NAMES = ["config.yaml", "environment.json", "summary.json", "events.jsonl", *TABLES]
NAMES += [run_directory.CURVE]


class FileDigest(NamedTuple):
    """Size and digest of one file."""

    bytes: int
    lines: int
    sha256: str


def of(run_dir: Path) -> dict[str, dict[str, Any]]:
    """Return size and digest of each of NAMES in `run_dir`, by name. Other files are ignored."""
    return {name: _held(run_dir / name)._asdict() for name in NAMES if (run_dir / name).is_file()}


def damage(run_dir: Path, status: dict[str, Any]) -> str:
    """Say how the files of a run that ended with `status` differ from its manifest, or "".

    It names the first of NAMES that differs, with present and recorded size.
    """
    kept = status.get("files")
    if not isinstance(kept, dict):
        return "status.json has no manifest of the run's files"
    now = of(run_dir)
    for name in NAMES:
        if told := _difference(name, kept.get(name), now.get(name)):
            return told
    return ""


def _difference(name: str, kept: Any, now: dict[str, Any] | None) -> str:
    if kept == now:
        return ""
    if now is None:
        return f"{name} is damaged: it is missing"
    if not isinstance(kept, dict):
        return f"{name} is damaged: there was none when the run ended"
    for unit in ("lines", "bytes"):
        if kept.get(unit) != now[unit]:
            return f"{name} is damaged: {now[unit]} {unit}, {kept.get(unit)} when the run ended"
    return f"{name} is damaged: it has changed since the run ended"


def _held(path: Path) -> FileDigest:
    size, lines, digest = 0, 0, hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            size, lines = size + len(chunk), lines + chunk.count(b"\n")
            digest.update(chunk)
    return FileDigest(size, lines, digest.hexdigest())
