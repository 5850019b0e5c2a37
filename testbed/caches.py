"""Where this user's compiled code is kept, and whether others could put some there."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path


def user_cache(name: str) -> Path | None:
    """This user's cache folder of a name, not made; None if the user has no home."""
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        with suppress(KeyError):  # containers run as users that nobody made
            home = pwd.getpwuid(os.getuid()).pw_dir
    for base in (os.environ.get("XDG_CACHE_HOME", ""), os.path.join(home, ".cache")):
        if os.path.isabs(base):
            return Path(base) / name
    return None


def owned(found: os.stat_result) -> bool:
    """By this user, root, or the owner of this program, who could change that as well."""
    return found.st_uid in (os.geteuid(), 0, Path(__file__).stat().st_uid)


def shared(found: os.stat_result) -> bool:
    """Return True if others can write it; a group of the user's own number is the user alone."""
    group = found.st_mode & 0o020 and found.st_gid != found.st_uid
    return bool(found.st_mode & 0o002 or group)
