"""Files that reports and other commands write; none is written through a link.

A folder of results may come from somebody else and hold links in the places that a command writes
to. So every command hands its files to an `OutputFolder`.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.records.printable import PrintableError

BEFORE_A_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")  # as spreadsheets read the start of a cell
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE)
OUT = "write elsewhere with --out FOLDER"


class CannotWrite(PrintableError, OSError):
    """Error: a file cannot be written. The message names the place and a remedy."""


@dataclass(frozen=True)
class OutputFolder:
    """A folder for files that a command writes: `root` / `inside`.

    `root` is as the user named it. The folders `inside` it may be somebody else's: none of them may
    be a link, and no file in them is written through one.
    """

    root: Path
    inside: tuple[str, ...] = ()  # names of nested folders
    instead: str = OUT  # remedy for the user if the folder cannot be written

    @classmethod
    def beside(cls, folder: Path, name: str) -> "OutputFolder":
        """Return the folder `name` in a `folder` of results; CannotWrite if that is a link.

        A link there may be one of many in a folder of somebody else's.
        """
        if folder.is_symlink():
            raise CannotWrite(f"{folder} is a link: name the folder that it leads to, or {OUT}")
        return cls(folder, (name,))

    @property
    def path(self) -> Path:
        return Path(self.root, *self.inside)

    def __truediv__(self, name: str) -> "OutputFolder":
        return replace(self, inside=(*self.inside, _plain(name)))

    def write(self, name: str, content: bytes | str) -> Path:
        """Write the file `name`, in the place of an older one, and return its path.

        Folders are made where they are missing. Readers see the older file or the whole new one.
        Raise CannotWrite where a link, a folder or a device lies at the file's place or a link on
        the way, or where the file system refuses.
        """
        data = content.encode() if isinstance(content, str) else content
        part, name = f".{os.getpid()}.part", _plain(name)
        with self._opened(name) as folder:
            self._check(folder, self.path / name, stat.S_ISREG, "a file")
            with suppress(FileNotFoundError):
                os.unlink(part, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            file = os.open(part, flags, 0o666, dir_fd=folder)
            try:
                with os.fdopen(file, "wb") as stream:
                    stream.write(data)
                os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(part, dir_fd=folder)
                raise
        return self.path / name

    def make(self) -> None:
        """Make the folder where it is missing; CannotWrite as `write` raises it."""
        with self._opened():
            pass

    def remove(self, name: str) -> None:
        """Remove the file `name` if it exists. Of a link, remove the link, not its target."""
        with self._opened(name) as folder, suppress(FileNotFoundError):
            os.unlink(_plain(name), dir_fd=folder)

    @contextmanager
    def _opened(self, name: str = "") -> Iterator[int]:
        """Yield a descriptor of this folder, made if missing; CannotWrite for an OSError inside."""
        folder = -1
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
            for at, inner in enumerate(self.inside, 1):
                with suppress(FileExistsError):
                    os.mkdir(inner, dir_fd=folder)
                self._check(folder, Path(self.root, *self.inside[:at]), stat.S_ISDIR, "a folder")
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
                outer, folder = folder, os.open(inner, flags, dir_fd=folder)
                os.close(outer)
            yield folder
        except CannotWrite:
            raise
        except OSError as error:
            said = f"{self.path / name} cannot be written: {error.strerror}"
            raise CannotWrite(f"{said}; {self.instead}") from error
        finally:
            if folder != -1:
                os.close(folder)

    def _check(self, folder: int, path: Path, fits: Callable[[int], bool], wanted: str) -> None:
        """Raise CannotWrite if anything but `wanted` lies at `path`, in the open `folder`."""
        try:
            mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return
        if not fits(mode):
            kind = "a link" if stat.S_ISLNK(mode) else f"not {wanted}"
            said = f"{path} is {kind}, and this command writes there"
            raise CannotWrite(f"{said}: remove it, or {self.instead}")


def _plain(name: str) -> str:
    """Return `name`; ValueError if it leads to another folder."""
    if name in ("", ".", "..") or "/" in name:
        raise ValueError(f"{name!r} is no name of a file")
    return name


def first_link(folder: Path) -> Path | None:
    """Return the first link, device or pipe in `folder`, at any depth; None if there is none."""
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in sorted([*folders, *files])):
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                return path
    return None


def csv_text(table: Any, **options: Any) -> str:
    """Return the DataFrame `table` as CSV without its index, for spreadsheets too.

    Text that one would read as a formula has an apostrophe in front; numbers stay as they are.
    """
    text = table.select_dtypes(exclude=["number", "bool"])
    safe = table.assign(**{name: text[name].map(_as_text) for name in text})
    return str(safe.rename(columns=_as_text).to_csv(index=False, **options))


def _as_text(cell: Any) -> Any:
    if not isinstance(cell, str) or not BEFORE_A_FORMULA.match(cell) or NUMBER.fullmatch(cell):
        return cell
    return "'" + cell
