"""Times of a recording: seconds, epoch milliseconds, ISO 8601, times of day, or a given format."""

import re
from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import compress, count, repeat
from operator import add, lt, mul, sub

from profiles.recordings import NUMBER
from profiles.tables import plain_numbers

DAY_S = 86_400
EPOCH = 1e11  # more seconds than that are milliseconds or less since 1970
TIME_OF_DAY = re.compile(r"\d\d:\d\d")
SOME_DAY = "1970-01-01T"
DATED = ("%d", "%j", "%x", "%c", "%G")  # of a format, what says a day
PARTS = re.compile(r"(\d+|\D+)")


class Times:
    """Parser of a column of times to seconds since the first row, which decides the form."""

    def __init__(
        self, path: str, column: str, time_format: str | None = None, unit: float | None = None
    ) -> None:
        """Create the parser of time column `column` of the file `path`.

        `time_format` is a strptime format. `unit` is the seconds per number. With None, epoch
        milliseconds are recognised.
        """
        self.column = column
        self._path, self._format, self._unit = path, time_format, unit
        self._numeric: bool | None = None  # None: no row was read yet
        self._first: datetime | None = None
        self._of_day = False
        self._values = array("d")

    @property
    def are_local(self) -> bool:
        """True for dates without a time zone, which jump back when clocks change."""
        return self._first is not None and self._first.tzinfo is None

    def extend(self, texts: Sequence[str], lines: Sequence[int]) -> None:
        """Parse more rows. Raise ValueError with line and text of the first that is not a time."""
        if self._numeric is None:
            self._choose(texts[0].strip(), self._where(lines[0]))
        try:
            self._values.extend(self._read(texts))
        except (ValueError, TypeError):
            for text, line in zip(texts, lines, strict=True):
                self._require(text.strip(), self._where(line))
            raise

    def seconds(self) -> array:
        """Return seconds since the first row; a time of day that goes back is of the next day."""
        unit = self._unit
        if unit is None:
            unit, first = 1.0, abs(self._values[0])
            while self._first is None and first * unit >= EPOCH:
                unit /= 1000
        values = array("d", map(sub, self._values, repeat(self._values[0])))
        if unit != 1:
            values = array("d", map(mul, values, repeat(unit)))
        if self._of_day:
            nights = compress(count(1), map(lt, map(sub, values[1:], values), repeat(-DAY_S / 2)))
            for place in list(nights):
                values[place:] = array("d", map(add, values[place:], repeat(DAY_S)))
        return values

    def _where(self, line: int) -> str:
        return f"{self._path}:{line}: {self.column}"

    def _choose(self, text: str, where: str) -> None:
        """Choose the parser by the first value, `text`; ValueError if a unit needs a number."""
        self._numeric = self._format is None and bool(NUMBER.fullmatch(text))
        if not self._numeric and self._unit is not None:
            raise ValueError(f"{where} must be a number, as units.time_s is given, got {text!r}")
        if self._format is not None:
            self._of_day = not any(part in self._format for part in DATED)
        else:
            self._of_day = bool(TIME_OF_DAY.match(text))

    def _read(self, texts: Sequence[str]) -> Iterator[float] | array:
        """Parse times like the first row's. Raise ValueError or TypeError for any other form."""
        if not self._numeric:
            return self._dates(texts)
        if (values := plain_numbers(texts)) is None:
            raise ValueError("not all are numbers")
        return values

    def _dates(self, texts: Sequence[str]) -> Iterator[float]:
        stripped: Iterator[str] = map(str.strip, texts)
        if self._format is not None:
            dates = map(datetime.strptime, stripped, repeat(self._format))
        elif self._of_day:
            dates = map(datetime.fromisoformat, map(add, repeat(SOME_DAY), stripped))
        else:
            dates = map(datetime.fromisoformat, stripped)
        found = list(dates)
        self._first = self._first or found[0]
        return map(timedelta.total_seconds, map(sub, found, repeat(self._first)))

    def _require(self, text: str, where: str) -> None:
        """Raise ValueError unless `text` is a time of the first row's form."""
        try:
            list(self._read([text]))
        except TypeError:
            zone = "no time zone" if self.are_local else "a time zone"
            raise ValueError(f"{where} must have {zone}, as the first row, got {text!r}") from None
        except ValueError:
            raise ValueError(f"{where} {self._wanted(text)}") from None

    def _wanted(self, text: str) -> str:
        if self._format is not None:
            return f"must be a time as time_format={self._format!r} says, got {text!r}"
        if self._numeric:
            return f"must be a number, got {text!r}"
        said = "must be seconds, or a time such as 2026-02-03T10:00:00.5+01:00 or 10:00:00.5"
        return f"{said}, got {text!r}; others need time_format, such as {format_of(text)!r}"


def format_of(text: str) -> str:
    """Guess the strptime format of a date and time. Return an example if the guess fails."""
    parts = PARTS.findall(text)
    numbers = parts[::2]
    if len(numbers) in (6, 7) and all(number.isdigit() for number in numbers):
        day_first = [*"dmY"] if len(numbers[2]) == 4 else [*"Ymd"]
        named = [f"%{letter}" for letter in [*day_first, *"HMSf"]]
        parts[::2] = named[: len(numbers)]
        return "".join(parts)
    return "%d/%m/%Y %H:%M:%S"


def check_format(time_format: str) -> None:
    """Raise ValueError if datetime.strptime does not know `time_format`."""
    try:
        some_day = datetime(2000, 1, 2, 3, 4, 5, tzinfo=UTC)
        datetime.strptime(some_day.strftime(time_format), time_format)
        good = "%" in time_format
    except (ValueError, TypeError, re.error):
        good = False
    if not good:
        raise ValueError(
            "time_format must be in the words of Python's strptime, "
            f"such as '%d/%m/%Y %H:%M:%S.%f', got {time_format!r}"
        )
