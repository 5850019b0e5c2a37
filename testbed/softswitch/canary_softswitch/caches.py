# SPDX-License-Identifier: Apache-2.0
"""Where this user's compiled code is cached, and whether other users could put code there."""

from __future__ import annotations

import errno
import os
import pwd
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path


def user_cache(name: str) -> Path | None:
    """Return the path of this user's cache folder ``name``, or None if the user has no home.

    The folder is not created. ``$XDG_CACHE_HOME`` comes before ``~/.cache``.
    """
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        with suppress(KeyError):  # containers may run as users without a passwd entry
            home = pwd.getpwuid(os.getuid()).pw_dir
    for base in (os.environ.get("XDG_CACHE_HOME", ""), os.path.join(home, ".cache")):
        if os.path.isabs(base):
            return Path(base) / name
    return None


def made_cache(folder: Path) -> Path:
    """Create a folder for compiled code and its parents, if need be, for this user alone (0700).

    Returns:
        The folder's real path. It and all its ancestors can be changed by nobody but this user,
        root and the owner of this program, so the path leads to the same folder from now on.

    Raises:
        PermissionError: Others could put code there; the message is one line without what to do.
        OSError: It cannot be created.
    """
    path = Path(os.path.realpath(folder))
    missing = [path]
    while not missing[-1].exists():
        missing.append(missing[-1].parent)
    there = missing.pop()
    if reason := distrust(there):
        raise PermissionError(reason)
    for place in reversed(missing):
        with suppress(FileExistsError):  # another process was faster
            place.mkdir(mode=0o700)
    if reason := distrust(path):
        raise PermissionError(reason)
    return path


def distrust(folder: Path) -> str:
    """Return why other users could put code into a folder; "" if they could not.

    Its ancestors are looked at from the root on: who can write to one can exchange all below it.
    In a sticky folder, as /tmp, others may not exchange what is not theirs.

    Raises:
        OSError: There is no such folder.
    """
    path = Path(os.path.realpath(folder))
    for place in (*reversed(path.parents), path):
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
        if not (owned(found) or (place != path and _unknown(found))):
            return f"{place} belongs to another user, who could put code there"
        sticky = place != path and found.st_mode & stat.S_ISVTX
        if shared(found) and not sticky:
            return f"{place} can be written by others, who could put code there"
    return ""


def owned(found: os.stat_result) -> bool:
    """Return True if a file belongs to this user, to root, or to the owner of this program.

    The owner of the program is trusted because they could change the program as well.
    """
    return found.st_uid in (os.geteuid(), 0, Path(__file__).stat().st_uid)


def shared(found: os.stat_result) -> bool:
    """Return True if other users can write to a file.

    A group whose number equals the user's is taken to have that user as its only member.
    """
    group = found.st_mode & 0o020 and found.st_gid != found.st_uid
    return bool(found.st_mode & 0o002 or group)


def _unknown(found: os.stat_result) -> bool:
    """Return True if a file's owner has no number in this user namespace, as root may have none."""
    return found.st_uid == _overflow_uid()


@cache
def _overflow_uid() -> int:
    """Return the number that stands for owners without one; -1 outside of user namespaces."""
    try:
        if int(Path("/proc/self/uid_map").read_text().split()[2]) >= 2**32 - 1:
            return -1
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError, IndexError):
        return -1
