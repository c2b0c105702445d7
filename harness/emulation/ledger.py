"""Ledger of a real interface's state before the first change, from which it is restored.

There is one file for each network namespace and interface. Its owner keeps it locked. The kernel
frees the lock when the owner dies, so no process id has to be trusted. Restoring removes only our
additions, checks the result, and only then removes the file.
"""

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyroute2 import IPRoute

from harness.emulation import namespaces, nic, tcp_settings
from harness.emulation.links import NetworkError, attempt
from harness.emulation.nic import Nic
from harness.records.status import boot_id

FOLDER, SUFFIX = "/var/lib/gradnet", ".ledger.json"  # as in conf/network/host.yaml
_INITIAL_PROCESSES = 0xEFFFFFFC  # inode of the machine's own process namespace


class InUse(NetworkError):
    """Error: the owner of a ledger is still alive."""


@dataclass(frozen=True)
class Entry:
    """Content of a ledger: an interface before a run changed it, and the run."""

    boot_id: str
    namespace: int  # inode of the network namespace
    interface: str
    index: int
    mac: str
    qdiscs: list[dict[str, str]]  # before
    offloads: dict[str, bool]  # left as they are
    adds: list[str]  # what we may add
    owner: str  # name of the run's guard, which begins with a process id
    run: str
    began: str
    until: str
    until_boottime_s: float

    @property
    def nic(self) -> Nic:
        return Nic(self.interface, self.index, self.mac)


def path_of(folder: Path, interface: str) -> Path:
    """Return the ledger of `interface` in the calling thread's network namespace."""
    return folder / f"{interface}.{_namespace()}{SUFFIX}"


def entry(ip: IPRoute, found: Nic, owner: str, run: str, limit_s: float) -> Entry:
    """Return the ledger entry for interface `found`; write it before the first change to it.

    It has the present qdiscs and offloads, what we will add, and the time limit `limit_s`.
    """
    now = datetime.now(UTC)
    return Entry(
        boot_id=boot_id(),
        namespace=_namespace(),
        interface=found.name,
        index=found.index,
        mac=found.mac,
        qdiscs=nic.qdiscs(ip, found.index),
        offloads=tcp_settings.read_offloads(found.name),
        adds=[f"root qdisc {nic.HANDLE >> 16:x}:", "ingress qdisc", f"interface {found.ifb}"],
        owner=owner,
        run=run,
        began=now.isoformat(timespec="seconds"),
        until=(now + timedelta(seconds=limit_s)).isoformat(timespec="seconds"),
        until_boottime_s=time.clock_gettime(time.CLOCK_BOOTTIME) + limit_s,
    )


class Ledger:
    """A ledger that this process owns, locked, until `restore`."""

    def __init__(self, path: Path, content: Entry) -> None:
        """Write the ledger. NetworkError if that fails or another run's ledger exists."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _write(path, json.dumps(asdict(content), indent=2) + "\n")
        except OSError as error:
            raise NetworkError(
                f"write ledger {path}: {error.strerror}; no interface was changed "
                "(network.ledger is its folder)"
            ) from error

    def restore(self) -> list[str]:
        """Restore the interface and report it. Do nothing if another process did so before."""
        try:
            if not _is_same(self._file, self.path):
                return []
            return _restore(self.path, read(self.path), dry_run=False)
        finally:
            os.close(self._file)


def settle(path: Path, dry_run: bool = False) -> list[str]:
    """Restore what a dead owner left, and report what was, or would be, done.

    Raise InUse if the owner lives, NetworkError for an unreadable ledger or a refusal.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            known = read(path)
            pid = known.owner.partition(".")[0]
            raise InUse(f"{known.interface} is shaped by {known.run} (pid {pid})") from None
        if not _is_same(file, path):
            return []  # another process has just restored it
        return _restore(path, read(path), dry_run)
    finally:
        os.close(file)


def wait_and_settle(path: Path, owner: str) -> list[str]:
    """Wait for the end of the run that `owner` guards, then undo its changes to the interface.

    Return a line for each change undone. Return [] at once if the ledger at `path` is gone, or is
    another owner's.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        if read(path).owner != owner:
            return []
        fcntl.flock(file, fcntl.LOCK_EX)
        if not _is_same(file, path):
            return []
        return _restore(path, read(path), dry_run=False)
    finally:
        os.close(file)


def left_s(path: Path, owner: str) -> float | None:
    """Return the seconds that `owner` may still keep the interface, or None if it does not."""
    if not path.exists() or (known := read(path)).owner != owner:
        return None
    return max(0.0, known.until_boottime_s - time.clock_gettime(time.CLOCK_BOOTTIME))


def restore_from_living(path: Path) -> list[str]:
    """Restore the interface of a living owner whose time is up."""
    return _restore(path, read(path), dry_run=False)


def read(path: Path) -> Entry:
    """Return the content of a ledger. Raise NetworkError if it is incomplete."""
    try:
        content = json.loads(path.read_text())
        found = Entry(**content)
        wrong = [key for key, kind in _kinds().items() if not isinstance(getattr(found, key), kind)]
        if wrong:
            raise TypeError(f"{wrong[0]} is {getattr(found, wrong[0])!r}")
    except (OSError, ValueError, TypeError) as error:
        raise NetworkError(
            f"ledger {path} cannot be read ({error}), so nothing was touched; look for a qdisc "
            f"{nic.HANDLE >> 16:x}: in `tc qdisc show` and for {nic.IFB_PREFIX}* in `ip link`, "
            "remove them with `tc qdisc del dev INTERFACE root`, `tc qdisc del dev INTERFACE "
            "ingress` and `ip link del`, then delete the file"
        ) from error
    return found


def _kinds() -> dict[str, type]:
    return {"boot_id": str, "namespace": int, "interface": str, "index": int, "mac": str,
            "owner": str, "run": str}  # fmt: skip


def _restore(path: Path, known: Entry, dry_run: bool) -> list[str]:
    said = _undo(path, known, dry_run)
    if not dry_run:
        path.unlink(missing_ok=True)
        _sync(path.parent)
    return [*said, f"{known.interface}: ledger of {known.run}"]


def _undo(path: Path, known: Entry, dry_run: bool) -> list[str]:
    if known.boot_id != boot_id():
        return []  # nothing of ours survives a boot
    where = namespaces.find(known.namespace)
    if where is None:
        if os.stat("/proc/self/ns/pid").st_ino == _INITIAL_PROCESSES:
            return []  # the interface went with its namespace
        raise NetworkError(
            f"restore {known.interface}: its network namespace, net:[{known.namespace}], is not "
            f"to be seen from here; run harness.doctor --clean inside it, or delete {path}"
        )
    try:
        with where.entered(), IPRoute() as ip:
            return _remove_all(ip, known, dry_run)
    finally:
        where.close()


def _remove_all(ip: IPRoute, entry: Entry, dry_run: bool) -> list[str]:
    said = []
    for piece in nic.left(ip, entry.nic):
        if not dry_run:
            with attempt(f"remove {piece.text}"):
                piece.remove()
        said.append(f"{entry.interface}: {piece.text}")
    if dry_run:
        return said
    if remaining := nic.left(ip, entry.nic):
        raise NetworkError(f"restore {entry.interface}: {remaining[0].text} is still there")
    if said and (now := nic.qdiscs(ip, entry.index)) != entry.qdiscs:
        said.append(f"{entry.interface}: its qdiscs were {entry.qdiscs} and now are {now}")
    return said


def _namespace() -> int:
    return os.stat("/proc/thread-self/ns/net").st_ino


def _is_same(file: int, path: Path) -> bool:
    """Return True if `path` still is the file that was opened as `file`."""
    try:
        now = path.stat()
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (os.fstat(file).st_dev, os.fstat(file).st_ino)


def _write(path: Path, text: str) -> int:
    """Create a complete, locked file at `path`, never over another. Return its descriptor."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        data = text.encode()
        while data:
            data = data[os.write(file, data) :]
        os.fsync(file)
        os.link(draft, path)
        _sync(path.parent)
    except OSError:
        os.close(file)
        raise
    finally:
        draft.unlink()
    return file


def _sync(folder: Path) -> None:
    """Make the folder's own change durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
