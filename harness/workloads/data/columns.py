"""Clicks in the format of Criteo's Kaggle challenge: text that is parsed once into a table.

A line has a label (0 or 1), 13 whole numbers and 26 categories of 8 hexadecimal digits, separated
by tabs. Numbers and categories may be missing. Numbers become log(1 + max(x, 0)), and missing ones
0, as in DLRM's dlrm_data_pytorch.py. A column's categories are numbered from 1 in order of
appearance while rows are left. Later ones share rows by their value. 0 is a missing category. So
one pass suffices, and the rows bound the memory.
"""

import hashlib
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from harness.workloads.data.base import Batch, Plan
from harness.workloads.data.kept import alone, replacing

COUNTS, CATEGORIES = 13, 26
COLUMNS = 1 + COUNTS + CATEGORIES
DAYS = 7  # in equal parts, as DLRM cuts them: the file does not say where one begins
LARGEST = 2**31 - 1
HEXADECIMAL = re.compile(rb"[0-9a-fA-F]{8}")
BLOCK = 1 << 16  # lines parsed before they are written
FORMAT = 1  # of a table on disk; raise it when the content changes


@dataclass(frozen=True)
class ClickTable:
    """`rows` [n, 40] int32 of label, counts and categories, read from disk on demand."""

    rows: np.ndarray
    in_order: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.rows)

    def stream(self, plan: Plan) -> Iterator[Batch]:
        """Yield inputs [n, 39, 1] float32, with whole categories, and labels [n] int64."""
        for indices, _ in plan:
            found = torch.from_numpy(self.rows[indices.numpy()])
            inputs = found[:, 1:].float()
            inputs[:, :COUNTS] = inputs[:, :COUNTS].clamp_(min=0).log1p_()
            yield inputs[:, :, None], found[:, 0].long()


def days(table: np.ndarray) -> tuple[ClickTable, ClickTable]:
    """Return the first six days, and the last one."""
    first = len(table) * (DAYS - 1) // DAYS
    return ClickTable(table[:first]), ClickTable(table[first:])


def read(text: Path, cache: Path, rows: int) -> np.ndarray:
    """Return the table of `text`, [n, 40], with categories below `rows`, parsed or from `cache`.

    A cached table must be of the very same file, by name, size and time of change. Other processes
    wait while one parses. Raise ValueError with file and line of malformed text.
    """
    found = text.stat()
    of = f"{FORMAT} {text.resolve()} {found.st_size} {found.st_mtime_ns} {rows}"
    path = cache / f"clicks-{hashlib.sha256(of.encode()).hexdigest()[:16]}.int32"
    with alone(path):
        if not path.exists():
            with replacing(path) as temporary:
                parse(text, temporary, rows)
    return np.asarray(np.memmap(path, np.int32, mode="r")).reshape(-1, COLUMNS)


def parse(text: Path, table: Path, rows: int) -> None:
    """Convert the file `text` to `table`, a file of int32 values, line by line.

    `rows` is the number of rows of the embedding tables. Raise ValueError, naming file and line,
    for a line that is not as published, or too few lines.
    """
    numbering = Numbering(rows)
    with text.open("rb") as lines, table.open("wb") as out:
        block, number = array("i"), 0
        for number, line in enumerate(lines, start=1):
            try:
                block.extend(_numbers(line, numbering))
            except ValueError as error:
                raise ValueError(f"{text}:{number}: {error}") from None
            if number % BLOCK == 0:
                block.tofile(out)
                block = array("i")
        block.tofile(out)
    if number < DAYS:
        raise ValueError(f"{text}: must have {DAYS} lines at least, one for each day, got {number}")


class Numbering:
    """Assignment of rows in [0, rows) to each column's categories, in order of appearance."""

    def __init__(self, rows: int) -> None:
        if rows < 2:
            raise ValueError(f"rows must be >= 2, got {rows}")
        self._rows = rows
        self._known: list[dict[bytes, int]] = [{} for _ in range(CATEGORIES)]

    def row(self, column: int, category: bytes) -> int:
        if not category:
            return 0
        known = self._known[column]
        if (found := known.get(category)) is not None:
            return found
        if not HEXADECIMAL.fullmatch(category):
            said = repr(category.decode(errors="replace"))
            raise ValueError(
                f"category {column + 1} of {CATEGORIES} must be 8 hexadecimal digits, or empty, "
                f"got {said}"
            )
        if len(known) == self._rows - 1:
            return 1 + int(category, 16) % (self._rows - 1)
        known[category] = len(known) + 1
        return len(known)


def _numbers(line: bytes, numbering: Numbering) -> list[int]:
    """Return label, counts and row numbers of one line, as integers.

    Raise ValueError for a wrong number of columns, or a label other than 0 and 1.
    """
    fields = line.rstrip(b"\r\n").split(b"\t")
    if len(fields) != COLUMNS:
        raise ValueError(
            f"must have {COLUMNS} columns (a label, {COUNTS} numbers, {CATEGORIES} categories) "
            f"with tabs between, got {len(fields)}"
        )
    if fields[0] not in (b"0", b"1"):
        raise ValueError(f"the label must be 0 or 1, got {fields[0].decode(errors='replace')!r}")
    counts = [_count(place, field) for place, field in enumerate(fields[1 : 1 + COUNTS], start=1)]
    categories = enumerate(fields[1 + COUNTS :])
    return [int(fields[0]), *counts, *(numbering.row(*each) for each in categories)]


def _count(place: int, field: bytes) -> int:
    """Parse count number `place`, 0 if empty; ValueError for other text or beyond LARGEST."""
    if not field:
        return 0
    if not field.removeprefix(b"-").isdigit() or abs(int(field)) > LARGEST:
        said = repr(field.decode(errors="replace"))
        raise ValueError(
            f"number {place} of {COUNTS} must be a whole one in +- {LARGEST}, got {said}"
        )
    return int(field)
