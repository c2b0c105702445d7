"""Steps that a foreign command writes to TensorBoard's event files.

The files belong to another program. Only plain files are opened, up to a size, and only scalars are
read. Checksums are not verified, since that would take a second for some megabytes.
"""

import os
import stat
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from harness.around.counter import StepCounter
from harness.around.settings import FIRST_BYTE, LOSS
from harness.around.told import EARLY, ToldSteps
from harness.around.values import values

OF_NODE_0 = ".node0."  # a writer puts the host's name into the file's
MOST_FILES, MOST_BYTES, MOST_SCALARS = 64, 1 << 28, 1 << 20
MOST_RECORD_BYTES = 1 << 16  # longer ones have pictures or histograms
HEADER, CHECKSUM_BYTES = struct.Struct("<QI"), 4  # length and its checksum, as TFRecord has them


class Scalar(NamedTuple):
    """One value of an event file."""

    tag: str
    step: int
    value: float
    wall_s: float  # since the epoch


class EventFiles:
    """Event files of node 0 in a folder, created after this object."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = set(self._files())

    def scalars(self) -> list[Scalar]:
        """Return all scalars in order of time. Raise ValueError if there are implausibly many."""
        files = sorted(set(self._files()) - self._before)
        if len(files) > MOST_FILES:
            raise ValueError(f"{self._folder} has {len(files)} new event files, over {MOST_FILES}")
        found: list[Scalar] = []
        left = MOST_BYTES
        for path in files:
            content = _content(path, left)
            left -= len(content)
            found += _scalars(content)
            if left <= 0 or len(found) > MOST_SCALARS:
                most = f"{MOST_BYTES} bytes or {MOST_SCALARS} scalars"
                raise ValueError(f"the new event files in {self._folder} have over {most}")
        return sorted(found, key=lambda each: each.wall_s)

    def _files(self) -> Iterator[Path]:
        for folder, _, names in os.walk(self._folder):
            for name in names:
                if "tfevents" in name and OF_NODE_0 in name:
                    yield Path(folder, name)


def _content(path: Path, most_bytes: int) -> bytes:
    """Return the first `most_bytes` bytes of the file, or b"" if it is not a plain file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read(most_bytes) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""


def _scalars(content: bytes) -> Iterator[Scalar]:
    """Yield the scalars of all whole records. The last record may be torn."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    at = 0
    while at + HEADER.size <= len(content):
        length, _ = HEADER.unpack_from(content, at)
        record = content[at + HEADER.size : at + HEADER.size + length]
        at += HEADER.size + length + CHECKSUM_BYTES
        if length > MOST_RECORD_BYTES or len(record) < length:
            continue
        try:
            event = Event.FromString(record)
        except DecodeError:
            return
        for each in event.summary.value:
            if (value := _value(each)) is not None:
                yield Scalar(each.tag, event.step, value, event.wall_time)


def _value(summary: Any) -> float | None:
    """Return a number written by torch, tensorboardX or TensorFlow, or None."""
    if summary.HasField("simple_value"):
        return float(summary.simple_value)
    if summary.HasField("tensor") and not summary.tensor.tensor_shape.dim:
        held = summary.tensor
        if len(held.float_val) == 1:
            return float(held.float_val[0])
        if held.dtype == 1 and len(held.tensor_content) == 4:  # DT_FLOAT
            return float(struct.unpack("<f", held.tensor_content)[0])
    return None


def take(steps: ToldSteps, scalars: list[Scalar], time_s: Callable[[float], float]) -> None:
    """Count in `steps` the scalars that match its pattern. They are ordered by time.

    Every tag has a counter of its own. `time_s` converts a wall time to the clock's time, below 0
    before the clock started.
    """
    found: list[tuple[Scalar, dict[str, float]]] = []
    for each in scalars:
        match = steps.pattern.search(_line(each)) if steps.pattern else None
        if match is None or (time_s(each.wall_s) < 0 and steps.command.start != FIRST_BYTE):
            continue
        try:
            found.append((each, _checked(each, values(match), time_s)))
        except ValueError as error:
            steps.leave_out(str(error), _line(each))
    counted = Counter((frozenset(groups), each.tag) for each, groups in found)
    main: dict[frozenset[str], str] = {}  # tag of most scalars, by groups
    for groups, tag in sorted(counted, key=lambda key: -counted[key]):
        main.setdefault(groups, tag)
    counters: dict[str, StepCounter] = defaultdict(StepCounter)
    for each, numbers in found:
        if main[frozenset(numbers)] == each.tag:
            numbers["step"] = each.step
            steps.add(numbers, time_s(each.wall_s), _line(each), counters[each.tag])
        elif steps.command.metrics != LOSS:
            steps.leave_out(f"more scalars of {main[frozenset(numbers)]!r} do", _line(each))


def _line(scalar: Scalar) -> str:
    return f"{scalar.tag} {scalar.value}"


def _checked(
    scalar: Scalar, numbers: dict[str, float], time_s: Callable[[float], float]
) -> dict[str, float]:
    """Return `numbers`. Raise ValueError if the scalar has no step, or no time since the start."""
    if scalar.step < 0:
        raise ValueError("step is no whole number from 0")
    if not isfinite(scalar.wall_s):
        raise ValueError("their wall time is no number")
    if time_s(scalar.wall_s) < 0:
        raise ValueError(EARLY)
    return numbers
