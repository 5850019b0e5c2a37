# SPDX-License-Identifier: Apache-2.0
"""Where this user's compiled code is cached, and whether other users could write to that place."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
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
