"""The source text of Python's standard library as bytes: megabytes that every machine has.

Modules of one file are used in order of their names, and one in eight is for testing. Bytes from
127 on share one number. The length depends on Python's version. A small model never learns it all.
"""

import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from harness.workloads.data.base import Shape
from harness.workloads.data.text import Windows, require_window

TEST_EVERY = 8  # of the modules by name, one is for testing
OTHER = 127  # number of every byte that is not ASCII


@dataclass(frozen=True)
class StdlibText:
    """About 4 MB of training and 0.5 MB of test text in windows of `window` bytes, by module."""

    name: str = "stdlib"
    window: int = 64  # bytes that gradients go back
    test_bytes: int = 200_000  # at most, of the test modules' begin
    classes: ClassVar[int] = OTHER + 1
    metric: ClassVar[str] = "perplexity"

    def __post_init__(self) -> None:
        require_window(self.window)
        if self.test_bytes <= self.window:
            raise ValueError(f"test_bytes must be > window = {self.window}, got {self.test_bytes}")

    @property
    def shape(self) -> Shape:
        return (self.window,)

    def check(self) -> None:
        if not modules():
            raise FileNotFoundError(
                f"{self.name}: no source files of the standard library in {library()}: install "
                "Python with them, or use dataset=pydoc"
            )

    def train(self) -> Windows:
        self.check()
        return Windows(_numbered(split(modules())[0]), self.window)

    def test(self) -> Windows:
        self.check()
        return Windows(_numbered(split(modules())[1])[: self.test_bytes], self.window)


def library() -> Path:
    """Return the folder of the interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def modules() -> list[Path]:
    """Return its modules of one file by name, without those that describe the build machine."""
    return [path for path in sorted(library().glob("*.py")) if not path.stem.startswith("_sys")]


def split(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return files for training, and for testing."""
    tested = list(files[TEST_EVERY - 1 :: TEST_EVERY])
    return [path for path in files if path not in tested], tested


def _numbered(files: Sequence[Path]) -> torch.Tensor:
    text = b"\n".join(path.read_bytes() for path in files)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).clamp(max=OTHER).long()
