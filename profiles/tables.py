"""Tables of numbers in text, parsed by whole columns: a day at 10 Hz has a million rows.

`profiles.trace` and `profiles.foreign` use it. C code of the standard library parses all rows.
Python looks at single rows only if one may have to be refused.
"""

import csv
import io
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import NamedTuple

from profiles.recordings import Recording

AT_ONCE = 1024  # rows; more of them leave the cache of a processor
NUMERALS = b"0123456789+-.eE \t\n"  # float() alone also takes 1_0, nan and digits of any script
DELIMITERS = ",;\t"


class Chunk(NamedTuple):
    """Some consecutive rows: their line numbers, and their texts by column."""

    lines: Sequence[int]
    texts: Mapping[str, Sequence[str]]


@dataclass
class Table:
    """Rows of a recording below its header, which can be read once."""

    recording: Recording
    header: list[str]
    top: int  # number of the line with the header, 0 without one
    rows: Iterator[list[str]]  # values
    split: Callable[[str], list[str]]  # a line into its values
    line: Callable[[], int] | None = None  # of the row read last; None: each row is one line

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows. Raise ValueError for a row with fewer or more values than columns."""
        width, before = len(self.header), self.top
        while rows := self._some():
            last = self.line() if self.line else before + len(rows)
            lines: Sequence[int] = range(before + 1, last + 1)
            if len(lines) != len(rows):  # some values in quotation marks have several lines
                ends = accumulate(("".join(row).count("\n") + 1 for row in rows), initial=before)
                lines = list(ends)[1:]
            before = last
            if set(map(len, rows)) != {width}:
                place = next(place for place, row in enumerate(rows) if len(row) != width)
                where, row = f"{self.recording.path}:{lines[place]}", rows[place]
                wanted = f"have {width} values" if self.top else f"be {' and '.join(self.header)}"
                raise ValueError(f"{where}: must {wanted}, got {len(row)} values: {row}")
            yield Chunk(lines, dict(zip(self.header, zip(*rows, strict=True), strict=False)))

    def _some(self) -> list[list[str]]:
        """Read the next rows. Raise ValueError for text that is not CSV."""
        try:
            return list(islice(self.rows, AT_ONCE))
        except csv.Error as error:
            line = self.line() if self.line else 0
            raise ValueError(f"{self.recording.path}:{line}: not a CSV: {error}") from error

    def cell(self, line: int, column: str) -> str:
        """Return one value of a line that was already read."""
        return self.split(self.recording.lines[line - 1])[self.header.index(column)].strip()


def csv_table(recording: Recording, delimiters: str) -> Table:
    """Open a CSV file, whose header may follow comments that start with `#`.

    The delimiter is the most frequent character of `delimiters` in the header.
    """
    text = io.TextIOWrapper(io.BytesIO(recording.content), "utf-8", newline="")
    top, first = 1, next(text, "")
    while first.startswith("#"):
        top, first = top + 1, next(text, "")
    delimiter = max(delimiters, key=first.count)
    reader = csv.reader(text, delimiter=delimiter, strict=True)

    def split(line: str) -> list[str]:
        return next(csv.reader([line], delimiter=delimiter), [])

    header = [name.strip() for name in split(first)]
    return Table(recording, header, top, reader, split, lambda: top + reader.line_num)


def word_table(recording: Recording, header: list[str]) -> Table:
    """Open a file of words separated by white space, whose columns are `header`."""
    text = io.TextIOWrapper(io.BytesIO(recording.content), "utf-8")
    return Table(recording, header, 0, map(str.split, text), str.split)


def plain_numbers(texts: Sequence[str]) -> array | None:
    """Parse a column of plain decimal numbers. Return None if any text is not one."""
    if "\n".join(texts).encode().translate(None, NUMERALS):
        return None
    try:
        return array("d", map(float, texts))
    except ValueError:
        return None
