"""The folder of what is made once and loaded again, where no other user can have put anything."""

import atexit
import grp
import os
import pwd
import shutil
import stat
import sys
import tempfile
from pathlib import Path

CHOSEN = "GRADNET_CACHE"  # environment variable for child processes: `wanted:used in its place`
ALL_USERS = "4294967295"  # length of the map of users outside a user namespace


def cache_folder() -> Path:
    """Return gradnet/ in $XDG_CACHE_HOME, or if unset in ~/.cache, made if it is missing.

    Code in it is executed, so where another user may have written to it, or to a folder above it, a
    private temporary folder takes its place; that is printed once. Raise OSError where no folder
    can be made.
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
    """Make `folder` if it is missing; say why nothing can be written to it, or ""."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"it cannot be written ({error.strerror})"
    return ""


def not_private(folder: Path) -> str:
    """Say why another user may have put something into `folder`; "" if none can have.

    A sticky folder, as /tmp is, may be above it: nobody replaces another user's folder there. In a
    user namespace root outside has no number; folders above may be of an owner without one.
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
    """Return the number that owners have who have none in this user namespace; none outside one."""
    try:
        if Path("/proc/self/uid_map").read_text().split()[2:3] == [ALL_USERS]:
            return set()
        return {int(Path("/proc/sys/kernel/overflowuid").read_text())}
    except OSError:  # not Linux
        return set()


def _is_own_group(number: int) -> bool:
    """True if only this user is in a group, as in the one that many systems give each user."""
    try:
        user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}
