"""What a foreign command tells of its steps in TensorBoard's event files.

The files are another program's: only plain ones are opened, up to a size, and of their records only
scalars are taken. Their checksums are not looked at, which would take a second for some megabytes.
"""

import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

from harness.around.settings import Command
from harness.around.told import ToldStep, metrics_of, numbers

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
    """Event files of node 0 in a folder that were not there when this was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = set(self._files())

    def scalars(self) -> list[Scalar]:
        """All scalars, in order of time; ValueError where there is more than can be believed."""
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
    """Its first bytes; none of what is no plain file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read(most_bytes) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""


def _scalars(content: bytes) -> Iterator[Scalar]:
    """Read the scalars of all whole records; the last record may be torn."""
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
    """Read a number of torch's, tensorboardX's or TensorFlow's writers; None if it is none."""
    if summary.HasField("simple_value"):
        return float(summary.simple_value)
    if summary.HasField("tensor") and not summary.tensor.tensor_shape.dim:
        held = summary.tensor
        if len(held.float_val) == 1:
            return float(held.float_val[0])
        if held.dtype == 1 and len(held.tensor_content) == 4:  # DT_FLOAT
            return float(struct.unpack("<f", held.tensor_content)[0])
    return None


def told(
    scalars: list[Scalar], command: Command, time_s: Callable[[float], float]
) -> list[ToldStep]:
    """A step for each that scalars matching the command's pattern are of, in order.

    `time_s` tells the clock's time of a wall time; what came before the clock started, below 0,
    is left out.
    """
    values: dict[int, dict[str, float]] = {}
    at_s: dict[int, float] = {}
    for each in scalars:
        found = re.search(command.metrics or "", f"{each.tag} {each.value}")
        if found is None or (named := numbers(found)) is None:
            continue
        if each.step < 0 or not (came_s := time_s(each.wall_s)) >= 0:  # it may be nan
            continue
        at_s.setdefault(each.step, came_s)
        values.setdefault(each.step, {}).update(named)
    steps: list[ToldStep] = []
    last = -1
    for step in sorted(values):
        of_step, came_s = values[step], at_s[step]
        samples = int(of_step.get("samples", (command.samples or 1) * (step - last)))
        came_s = max(came_s, steps[-1].time_s) if steps else came_s
        loss = of_step.get("loss", nan)
        steps.append(ToldStep(came_s, step, loss, samples, metrics_of(of_step)))
        last = step
    return steps
