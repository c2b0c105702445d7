"""Private cache folder for code and data that are made once and loaded again.

No other user may have written to it, because code from it is executed.
"""

import atexit
import grp
import os
import pwd
import shutil
import stat
import sys
import tempfile
from pathlib import Path

CHOSEN = "GRADNET_CACHE"  # environment variable for child processes: `wanted:replacement`
ALL_USERS = "4294967295"  # users in /proc/self/uid_map outside a user namespace


def cache_folder() -> Path:
    """Return the folder gradnet/ in $XDG_CACHE_HOME, or in ~/.cache if unset, and create it.

    If another user may have written to it or to a folder above it, return a private temporary
    folder. Print that once. Child processes inherit the choice through the environment variable
    CHOSEN. Raise OSError if no folder can be created.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    wanted = Path(home, "gradnet").absolute()
    before, _, used = os.environ.get(CHOSEN, "").rpartition(":")
    if before == str(wanted):
        return Path(used)
    if not (reason := _make(wanted) or not_private(wanted)):
        return wanted
    place = Path(tempfile.gettempdir(), f"gradnet-{os.getuid()}")
    if _make(place) or not_private(place):
        place = Path(tempfile.mkdtemp(prefix="gradnet-"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
    os.environ[CHOSEN] = f"{wanted}:{place}"
    print(f"{wanted} is not used: {reason}; {place} is, in its place", file=sys.stderr)
    return place


def _make(folder: Path) -> str:
    """Create `folder` if it is missing. Return why nothing can be written to it, or ""."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"it cannot be written ({error.strerror})"
    return ""


def not_private(folder: Path) -> str:
    """Return why another user may have written to `folder`, or "" if none can have.

    All folders above are checked too. They may be sticky, as /tmp is: there, nobody can replace
    another user's folder. Inside a user namespace, root outside has no number, so owners without a
    number are accepted above `folder`.
    """
    real = folder.resolve()
    for place in (real, *real.parents):
        found = place.stat()
        owners = {0, os.getuid()} | (set() if place == real else _without_number())
        if found.st_uid not in owners:
            return f"{place} is another user's"
        is_sticky = place != real and found.st_mode & stat.S_ISVTX
        by_group = found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
        if (found.st_mode & stat.S_IWOTH or by_group) and not is_sticky:
            return f"{place} is writable by others"
    return ""


def _without_number() -> set[int]:
    """Return the number of owners unknown in this user namespace, as a set; empty outside."""
    try:
        if Path("/proc/self/uid_map").read_text().split()[2:3] == [ALL_USERS]:
            return set()
        return {int(Path("/proc/sys/kernel/overflowuid").read_text())}
    except OSError:  # not Linux
        return set()


def _is_own_group(number: int) -> bool:
    """Return True if group `number` has this user's name and no other member."""
    try:
        user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}
