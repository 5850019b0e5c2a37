# SPDX-License-Identifier: Apache-2.0
"""The user who called sudo, and which of that user's files and variables a root process may use."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from testbed.errors import UserError

_THEIRS = ("XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "PYTHONPATH", "TMPDIR")
"""Variables that name folders in which a user could place code or replace files."""


@dataclass(frozen=True)
class User:
    """The user who called sudo.

    Attributes:
        uid, gid: Numeric user and group ID.
        groups: The IDs of all groups of the user.
        name, home: Name and home folder from the user database; for a user that is not in it, the
            user ID and a folder that does not exist.
    """

    uid: int
    gid: int
    groups: Sequence[int]
    name: str
    home: str

    def started_as(self) -> dict[str, Any]:
        """Return the arguments with which `subprocess.Popen` starts a process as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": list(self.groups)}


def sudo_user() -> User | None:
    """Return the user who called sudo; None if this process is not root, or root itself started it.

    Raises:
        ValueError: ``SUDO_UID`` or ``SUDO_GID`` is not a number.
    """
    number = os.environ.get("SUDO_UID", "")
    if os.geteuid() != 0 or number in ("", "0"):
        return None
    uid, gid = _number("SUDO_UID", number), os.environ.get("SUDO_GID", "")
    try:
        known = pwd.getpwuid(uid)
    except KeyError:
        group = _number("SUDO_GID", gid) if gid else uid
        return User(uid, group, [group], number, "/nonexistent")
    group = _number("SUDO_GID", gid) if gid else known.pw_gid
    return User(uid, group, os.getgrouplist(known.pw_name, group), known.pw_name, known.pw_dir)


def be_root_alone() -> None:
    """Make this root process use root's own folders only, and write no bytecode into the user's
    copy of this program."""
    for name in _THEIRS:
        os.environ.pop(name, None)
    os.environ["HOME"] = pwd.getpwuid(0).pw_dir
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True


def create_file(path: Path) -> BinaryIO:
    """Open a file for writing with the rights of the user who called sudo, and return it; an old
    file is replaced.

    Raises:
        OSError: The user cannot write the file.
    """
    user = sudo_user()
    if user is None:
        return path.open("wb")
    here, there = socket.socketpair()
    with here, there:
        opened = subprocess.run(
            [sys.executable, "-I", "-B", "-c", _CREATE, str(path), str(there.fileno())],
            pass_fds=(there.fileno(),),
            check=False,
            **user.started_as(),
        )
        if opened.returncode:
            raise OSError(opened.returncode, os.strerror(opened.returncode), str(path))
        _, (descriptor,), _, _ = socket.recv_fds(here, 1, 1)
    return os.fdopen(descriptor, "wb")


_CREATE = """
import socket, sys
try:
    with open(sys.argv[1], "wb") as file, socket.socket(fileno=int(sys.argv[2])) as there:
        socket.send_fds(there, [b"."], [file.fileno()])
except OSError as error:
    sys.exit(error.errno)
"""
"""A program that opens a file and sends it over a socket; its exit code is the errno."""


def _number(name: str, text: str) -> int:
    """Return a user or group ID from the environment."""
    if not text.isdecimal() or int(text) >= 2**32 - 1:
        raise UserError(f"{name}={text} in the environment is no ID: unset it, or use sudo")
    return int(text)
