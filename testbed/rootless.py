# SPDX-License-Identifier: Apache-2.0
"""Networks without root: a user and a network namespace, in which an ordinary user may make
interfaces and more namespaces.

Inside, the user has number 0 and all capabilities (user_namespaces(7)), but over nothing outside;
files belong to the user as always. The process keeps its sockets: one that listens was opened
outside, and browsers there reach it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

UNSHARE = ("unshare", "--user", "--map-root-user", "--net")
"""The command of util-linux, without the program that it starts in the new namespaces."""

SYSTEM_FOLDERS = ":/usr/local/sbin:/usr/sbin:/sbin"
"""What an ordinary user's PATH lacks on Debian: there are ``tc``, ``nft`` and ``ifconfig``."""

_IN_A_NAMESPACE = f'export PATH="$PATH{SYSTEM_FOLDERS}"; ip link set lo up && exec "$@"'
LOOPBACK_UP = ("sh", "-c", _IN_A_NAMESPACE, "sh")
"""A command, without the program that it starts in a namespace whose loopback interface is down;
the program finds those of `SYSTEM_FOLDERS`."""

_CAPABILITIES = sum(1 << number for number in (12, 13, 21))  # NET_ADMIN, NET_RAW, SYS_ADMIN

_SYSCTL = Path("/proc/sys")
_SETTINGS = (
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),  # Ubuntu, since 23.10
    ("kernel.unprivileged_userns_clone", "0", "1"),  # Debian, where an administrator chose so
    ("user.max_user_namespaces", "0", "15000"),  # RHEL 7, hardened systems
)
"""Settings of kernels, the value with which users can make no namespaces, and one with which they
can."""


def search_path() -> str:
    """Return the PATH on which programs of the system are found: this process's own, then
    `SYSTEM_FOLDERS`."""
    return os.environ.get("PATH", os.defpath) + SYSTEM_FOLDERS


def find_program(name: str) -> str | None:
    """Return the path of a program on `search_path`, or None if it is not there."""
    return shutil.which(name, path=search_path())


def may_make_networks() -> bool:
    """Return True if this process may make networks: it is root's, or in namespaces of its own."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return int(effective, 16) & _CAPABILITIES == _CAPABILITIES


def unshare() -> tuple[str, ...]:
    """Return the command that starts a program in a new network namespace, from this process."""
    return ("unshare", "--net") if may_make_networks() else UNSHARE


@cache
def forbidden() -> str:
    """Return why this user can have no network of real packets, and the command that allows it, in
    one line; "" if the user can have one."""
    if may_make_networks():
        return ""
    try:
        done = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"{UNSHARE[0]} does not run ({error.strerror}): apt install util-linux"
    if done.returncode == 0:
        return ""
    for name, forbids, allows in _SETTINGS:
        file = _SYSCTL.joinpath(*name.split("."))
        if file.exists() and file.read_text().strip() == forbids:
            return (
                f"this kernel lets no user make namespaces: `sudo sysctl {name}={allows}` allows "
                "it, or use SUDO=1"
            )
    reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
    return f"no namespaces can be made here ({reason}): use SUDO=1, or BACKEND=virtual"


def user_outside() -> int:
    """Return this process's user ID as the namespace around its own has it; its own if it is in
    none."""
    uid = os.geteuid()
    try:
        for line in Path("/proc/self/uid_map").read_text().splitlines():
            inside, outside, length = (int(number) for number in line.split())
            if inside <= uid < inside + length:
                return outside + uid - inside
    except (OSError, ValueError):
        pass
    return uid
