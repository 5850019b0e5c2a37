# SPDX-License-Identifier: Apache-2.0
"""Lets a command that sudo started continue as the user who called sudo.

This happens before the command line is read: the program is executed again, and the new process has
never been root. This module imports only what it needs for that.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from scenarios.process.root_server import ADDRESS, start_root_server
from scenarios.process.signals import SIGNALS
from scenarios.process.user import User, be_root_alone, sudo_user
from testbed.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

STAYS_ROOT = ("net", "shell", "clean-net", "doctor")
"""Commands that work on root's networks and read no files of the user."""

HAS_NETWORKS = ("run", "compare")

_OF_SUDO = ("SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "SUDO_HOME")
_OF_ROOT = ("XDG_RUNTIME_DIR", "PYTHONDONTWRITEBYTECODE")


def leave_root() -> None:
    """Continue as the user who called sudo, if this command was started by sudo.

    The function returns if this process is not root, if root itself started it, or if the command
    needs root; else it executes the program again as the user.
    """
    try:
        user = sudo_user()
        if user is None:
            return
        if (sys.argv[1:] or [""])[0] in STAYS_ROOT:
            be_root_alone()
            return
        _go_on_as(user, networks=(sys.argv[1:] or [""])[0] in HAS_NETWORKS)
    except (UserError, OSError) as error:
        print(f"canary: {error}", file=sys.stderr)
        sys.exit(2)


def go_through_sudo(from_environment: Mapping[str, str]) -> NoReturn:
    """Start this command again through sudo; the new process leaves root, and uses root for its
    networks only.

    Args:
        from_environment: Options that came from the environment, which sudo does not pass on.

    Raises:
        ValueError: There is no sudo (one line).
    """
    words = [
        f"{option}={value}" for option, value in from_environment.items() if option != "--sudo"
    ]
    program = [sys.executable, "-P", "-B", "-m", "scenarios", *sys.argv[1:], *words]
    sys.stdout.flush()
    try:
        os.execvp("sudo", ["sudo", "--", *program])
    except OSError as error:
        raise UserError(f"SUDO=1 needs sudo: {error.strerror}") from None


def _go_on_as(user: User, networks: bool) -> NoReturn:
    """Execute this program again as a user; ``networks`` says whether to start a root server first.

    Raises:
        ValueError: The user cannot read it (one line).
    """
    environment = {k: v for k, v in os.environ.items() if k not in (*_OF_SUDO, *_OF_ROOT)}
    environment |= {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the new program unblocks them
    if networks:
        environment[ADDRESS] = start_root_server(user.uid)
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    if not (os.access(sys.executable, os.X_OK) and os.access(__file__, os.R_OK)):
        raise UserError(
            f"{user.name}, who called sudo, cannot read "
            f"{Path(__file__).parents[2]}: only networks run as root; to run everything as root, "
            "unset SUDO_UID"
        )
    os.execve(sys.executable, _same_program(), environment)


def _same_program() -> list[str]:
    """Return the arguments that start this program again, without Python's option ``-B``."""
    at = sys.orig_argv.index("-m")
    options = [option for option in sys.orig_argv[1:at] if option != "-B"]
    return [sys.executable, *options, *sys.orig_argv[at:]]
