# SPDX-License-Identifier: Apache-2.0
"""Lets a command that sudo started continue as the user who called sudo.

No command needs root. This happens before the command line is read: the program is executed again,
and the new process has never been root, so it writes the user's files and reads no others. This
module imports only what it needs for that.
"""

from __future__ import annotations

import os
import pwd
import signal
import sys
from pathlib import Path

from testbed.errors import UserError
from testbed.signals import SIGNALS

_OF_SUDO = ("SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "SUDO_HOME", "XDG_RUNTIME_DIR")


def leave_root() -> None:
    """Continue as the user who called sudo, if sudo started this command; else return."""
    number = os.environ.get("SUDO_UID", "")
    if os.geteuid() != 0 or number in ("", "0"):
        return
    try:
        _go_on_as(_id("SUDO_UID", number), _id("SUDO_GID", os.environ.get("SUDO_GID", number)))
    except (UserError, OSError) as error:
        print(f"canary: {error}", file=sys.stderr)
        sys.exit(2)


def _go_on_as(uid: int, gid: int) -> None:
    """Execute this program again as a user.

    Raises:
        UserError: The user cannot read it (one line).
    """
    try:
        known = pwd.getpwuid(uid)
        name, home, groups = known.pw_name, known.pw_dir, os.getgrouplist(known.pw_name, gid)
    except KeyError:
        name, home, groups = str(uid), "/nonexistent", [gid]
    environment = {k: v for k, v in os.environ.items() if k not in _OF_SUDO}
    environment |= {"HOME": home, "USER": name, "LOGNAME": name}
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the new program unblocks them
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if not (os.access(sys.executable, os.X_OK) and os.access(__file__, os.R_OK)):
        raise UserError(
            f"{name}, who called sudo, cannot read {Path(__file__).parents[2]}: use no sudo, which "
            "no command needs; to run as root, unset SUDO_UID"
        )
    at = sys.orig_argv.index("-m")
    options = [option for option in sys.orig_argv[1:at] if option != "-B"]
    os.execve(sys.executable, [sys.executable, *options, *sys.orig_argv[at:]], environment)


def _id(name: str, text: str) -> int:
    """Return a user or group ID from the environment."""
    if not text.isdecimal() or int(text) >= 2**32 - 1:
        raise UserError(f"{name}={text} in the environment is no ID: unset it, or use no sudo")
    return int(text)
