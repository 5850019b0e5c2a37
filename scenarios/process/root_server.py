# SPDX-License-Identifier: Apache-2.0
"""The root server: a process that stays root while a command started by sudo runs as the user.

It listens on a Unix socket whose name only the command knows, and accepts only processes of the
user. For each connection it starts `scenarios.live.root_worker`, because a comparison makes many
networks in turn. It ends with the command, and reads no data from the socket.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys

from scenarios.process.signals import SIGNALS
from scenarios.process.user import be_root_alone

ADDRESS = "ROOT_OF_CANARY"  # not CANARY_*, which names options of the command line
"""The variable with the name of the server's socket, in the environment of the user's processes."""

_CREDENTIALS = struct.Struct("3i")  # process, user and group ID of a Unix socket's peer


def root_available() -> bool:
    """Return True if this process can have a network: it runs as root, or sudo started its
    command."""
    return os.geteuid() == 0 or ADDRESS in os.environ


def start_root_server(uid: int) -> str:
    """Start a server for processes of the user with the id ``uid``; it ends with this process.

    Returns:
        The name of its socket.
    """
    name = f"canary-{secrets.token_hex(16)}"
    command = os.pidfd_open(os.getpid())
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")  # an abstract name, which disappears with the last process
        listening.listen()
        arguments = [str(number) for number in (listening.fileno(), command, uid)]
        _start(
            "scenarios.process.root_server",
            arguments,
            subprocess.DEVNULL,
            (listening.fileno(), command),
        )
    os.close(command)
    return name


def connect() -> socket.socket:
    """Return a socket that is connected to the root server of this command.

    Raises:
        OSError: The command has no server, or the server has ended.
    """
    peer = socket.socket(socket.AF_UNIX)
    try:
        peer.connect(f"\0{os.environ.get(ADDRESS, '')}")
        if _user_of(peer) != 0:
            raise ConnectionRefusedError("not root's")
    except OSError:
        peer.close()
        raise
    return peer


def _user_of(peer: socket.socket) -> int:
    """Return the user ID of the process at the other end of a socket, as reported by the kernel."""
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(found)[1]


def _start(
    module: str, arguments: list[str], stdin: int, passed: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a module as root, detached from the terminal and the current folder."""
    return subprocess.Popen(
        [sys.executable, "-I", "-B", "-m", module, *arguments],
        cwd="/",
        stdin=stdin,
        stdout=subprocess.DEVNULL,  # so that readers of the command's output see its end
        pass_fds=passed,
        start_new_session=True,
    )


def _keep(listening: socket.socket, command: int, uid: int) -> None:
    """Start a process for each connection of a user until the command has ended."""
    serving: list[subprocess.Popen[bytes]] = []
    waiting = select.poll()
    for descriptor in (listening.fileno(), command):
        waiting.register(descriptor, select.POLLIN)
    while command not in dict(waiting.poll()):
        peer, _ = listening.accept()
        with peer:
            if _user_of(peer) == uid:
                serving.append(_start("scenarios.live.root_worker", [], peer.fileno()))
        serving = [process for process in serving if process.poll() is None]


if __name__ == "__main__":
    be_root_alone()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    _listening, _command, _uid = (int(number) for number in sys.argv[1:])
    _keep(socket.socket(fileno=_listening), _command, _uid)
