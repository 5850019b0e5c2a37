# SPDX-License-Identifier: Apache-2.0
"""Starts a command again in namespaces of its own, where it can have a network of real packets.

Without root, as an ordinary user (`testbed.rootless`). Only where the kernel forbids that,
and the user said SUDO=1, sudo starts the program that makes the namespaces: the command itself is
the user's in any case.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import UserError
from testbed.rootless import LOOPBACK_UP, UNSHARE, forbidden, may_make_networks, search_path

if TYPE_CHECKING:
    from testbed.network.kinds import NetworkKind

PAGE = "PAGE_OF_CANARY"  # not CANARY_*, which names options of the command line
"""The variable with the number of the socket on which the live page is served."""

_NEW_USER, _NEW_NET = 0x1000_0000, 0x4000_0000  # sched.h

_ALLOWED_TO_UNSHARE = ("--inh-caps=+sys_admin", "--ambient-caps=+sys_admin")


def enter(
    network: NetworkKind,
    sudo: bool = False,
    watch: bool = False,
    from_environment: Mapping[str, str] | None = None,
) -> None:
    """Return if this process can make such a network. Else start this command again in namespaces
    of its own, in this process; the call then does not return.

    Args:
        network: The network that the command needs.
        sudo: Whether SUDO=1 was given.
        watch: Whether the command serves a live page: its socket is opened first, and stays
            reachable from outside.
        from_environment: Options that came from the environment, which sudo does not pass on.

    Raises:
        UserError: The kernel lets users make no namespaces, and SUDO=1 was not given or does not
            do (one line).
    """
    if not network.real_time:
        return
    from testbed.network.requirements import no_namespaces  # which imports NumPy

    if no_namespaces() or may_make_networks():  # the former is told where the network is made
        return
    program = [*LOOPBACK_UP, sys.executable, "-P", "-m", "scenarios", *sys.argv[1:]]
    reason = forbidden()
    if reason and not sudo:
        raise UserError(reason)
    if reason and watch:
        raise UserError(f"WATCH=1 does not go with SUDO=1: {reason.rpartition(',')[0]}")
    if reason:
        words = [f"{o}={v}" for o, v in (from_environment or {}).items() if o != "--sudo"]
        command = [*_through_sudo(), *UNSHARE, "--", *_environment(), *program, *words]
    else:
        command = [*UNSHARE, "--", *program]
    if watch:
        listening = socket.create_server(("127.0.0.1", 0))
        os.environ[PAGE] = str(listening.detach())
        os.set_inheritable(int(os.environ[PAGE]), True)
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise UserError(f"{command[0]} does not run: {error.strerror}") from None


def call_inside(work: Callable[[], object], network: NetworkKind) -> None:
    """Call a function where it can have a network of this kind, and wait until it has returned: in
    this process, or in a child of it in namespaces of its own.

    Raises:
        UserError: The kernel lets users make no namespaces, or the child ended early (one line).
        Exception: Whatever the function raises.
    """
    if not network.real_time or may_make_networks():
        work()
        return
    if reason := forbidden():
        raise UserError(reason)
    here, there = Pipe(duplex=False)
    child = os.fork()
    if not child:
        ended: BaseException | None = None
        try:
            _unshare()
            work()
        except BaseException as error:
            ended = error
        there.send(ended)
        os._exit(0)  # nothing of the parent's is cleaned up here
    there.close()
    try:
        error = here.recv()
    except EOFError:
        raise UserError("the process that runs the network has ended") from None
    finally:
        os.waitpid(child, 0)
    if error is not None:
        raise error


def _unshare() -> None:
    """Put this process, which has one thread, into a user and a network namespace of its own."""
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_USER | _NEW_NET):
        raise UserError(f"no namespaces can be made here ({os.strerror(ctypes.get_errno())})")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    subprocess.run([*LOOPBACK_UP, "true"], check=False)
    os.environ["PATH"] = search_path()


def _through_sudo() -> list[str]:
    """Return the words that start a program through sudo as this user, who may make namespaces in
    it."""
    user = [f"--reuid={os.getuid()}", f"--regid={os.getgid()}", "--init-groups"]
    return ["sudo", "--", "setpriv", *user, *_ALLOWED_TO_UNSHARE, "--"]


def _environment() -> list[str]:
    """Return the words that give a program the variables of this user that sudo takes away."""
    names = ("HOME", "USER", "LOGNAME", "PATH", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "CC")
    return ["env", *(f"{name}={os.environ[name]}" for name in names if name in os.environ)]
