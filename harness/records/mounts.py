"""Check whether a folder's file locks are visible to other machines, by its mount.

Sources: nfs(5), mount.lustre(8), mount.cifs(8). Locks of sshfs are always local.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

MOUNTS = Path("/proc/self/mountinfo")
OF_NFS = {"nolock", "local_lock=flock", "local_lock=all"}
LOCAL = {
    "nfs": OF_NFS,
    "nfs4": OF_NFS,
    "lustre": {"localflock"},
    "cifs": {"nobrl"},
    "smb3": {"nobrl"},
    "fuse.sshfs": {"rw", "ro"},  # one of which every mount has
}


class Mount(NamedTuple):
    """A mounted file system."""

    place: Path
    kind: str
    options: set[str]


def own_locks(folder: Path) -> str:
    """Name what hides locks in `folder` from other machines (`nfs with nolock`), or ""."""
    if not MOUNTS.exists():
        return ""
    return own_locks_of(mounts(MOUNTS.read_text(errors="replace").splitlines()), folder)


def own_locks_of(found: Iterable[Mount], folder: Path) -> str:
    """Do the work of `own_locks` with given mounts. Of several at one place the last counts."""
    real = Path(os.path.realpath(folder))
    over = [each for each in found if real.is_relative_to(each.place)]
    if not over:
        return ""
    mount = max(reversed(over), key=lambda each: len(each.place.parts))
    local = sorted(mount.options & LOCAL.get(mount.kind, set()))
    return f"{mount.kind} with {local[0]}" if local else ""


def mounts(lines: Iterable[str]) -> list[Mount]:
    """Return mounts from the lines of mountinfo, proc(5). Other lines are skipped."""
    found = []
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, of_kind = before.split(), after.split()
        if len(fields) > 5 and len(of_kind) > 2:
            place = fields[4].encode().decode("unicode_escape")  # a space is \040
            options = {*fields[5].split(","), *of_kind[2].split(",")}
            found.append(Mount(Path(place), of_kind[0], options))
    return found
