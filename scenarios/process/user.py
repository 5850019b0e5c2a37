# SPDX-License-Identifier: Apache-2.0
"""The user who called sudo, and which of that user's files and variables a root process may use."""

from __future__ import annotations

import errno
import inspect
import os
import pwd
import socket
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from canary_softswitch.caches import distrust
from testbed.errors import UserError

_THEIRS = (
    *("XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE"),
    *("CC", "CPATH", "C_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH"),
    *("LD_AUDIT", "LD_LIBRARY_PATH", "LD_PRELOAD", "BASH_ENV", "ENV"),
)
"""Variables that name programs, or folders in which a user could place code or replace files."""


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
    """Make this root process use root's own folders only, start no program of the user's, and write
    no bytecode into the user's copy of this program.

    sudo replaces ``PATH`` only where ``secure_path`` is set. Here it keeps the folders in which
    nobody can put programs but root and the owner of this program.
    """
    for name in _THEIRS:
        os.environ.pop(name, None)
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(filter(_safe, folders)) or os.defpath
    os.environ["HOME"] = pwd.getpwuid(0).pw_dir
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True


def _safe(folder: str) -> bool:
    try:
        return os.path.isabs(folder) and not distrust(Path(folder))
    except OSError:
        return False


def open_output(path: str, head: bytes) -> int:
    """Open a file for writing, empty, and return its descriptor.

    Only a file that begins with ``head``, and so is of the kind that will be written, is emptied.

    Raises:
        OSError: It cannot be opened; EEXIST: it is no regular file, or of another kind.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        if regular and os.pread(descriptor, len(head), 0) in (b"", head):
            os.ftruncate(descriptor, 0)
            return descriptor
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link; a pipe or socket
            raise
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def create_file(path: Path, head: bytes) -> BinaryIO:
    """Open a file for writing, empty, with the rights of the user who called sudo, and return it.

    Raises:
        OSError: The user cannot write the file; EEXIST: it exists, and does not begin with
            ``head`` as files of its kind do, see `open_output`.
    """
    user = sudo_user()
    if user is None:
        return os.fdopen(open_output(str(path), head), "wb")
    here, there = socket.socketpair()
    with here, there:
        opened = subprocess.run(
            [sys.executable, "-I", "-B", "-c", _CREATE, str(path), str(there.fileno()), head.hex()],
            pass_fds=(there.fileno(),),
            check=False,
            **user.started_as(),
        )
        if opened.returncode:
            raise OSError(opened.returncode, os.strerror(opened.returncode), str(path))
        _, (descriptor,), _, _ = socket.recv_fds(here, 1, 1)
    return os.fdopen(descriptor, "wb")


_CREATE = f"""
import errno, os, socket, stat, sys
{inspect.getsource(open_output)}
try:
    file = open_output(sys.argv[1], bytes.fromhex(sys.argv[3]))
    with socket.socket(fileno=int(sys.argv[2])) as there:
        socket.send_fds(there, [b"."], [file])
except OSError as error:
    sys.exit(error.errno)
"""
"""A program that opens a file and sends it over a socket; its exit code is the errno."""


def _number(name: str, text: str) -> int:
    """Return a user or group ID from the environment."""
    if not text.isdecimal() or int(text) >= 2**32 - 1:
        raise UserError(f"{name}={text} in the environment is no ID: unset it, or use sudo")
    return int(text)
