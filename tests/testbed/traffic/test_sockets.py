# SPDX-License-Identifier: Apache-2.0
"""What kernels tell of TCP connections, and what is made of their not telling."""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import Any

import pytest

from testbed.traffic.sockets import Connection, TcpSockets


class Kernel:
    """A netlink socket whose reads end as it is told."""

    def __init__(self, *ends: int) -> None:
        self._ends = list(ends)

    def recv(self, _: int) -> bytes:
        raise OSError(self._ends.pop(0), "as told")


def sockets(kernel: Any) -> TcpSockets:
    made = TcpSockets([])
    made._ended.append(kernel)
    return made


def test_a_closed_socket_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(OSError, match="as told") as caught:
        sockets(Kernel(errno.EBADF)).ended()
    assert caught.value.errno == errno.EBADF


def test_connections_that_ended_unread_are_counted() -> None:
    told = sockets(Kernel(errno.ENOBUFS, errno.ENOBUFS, errno.EAGAIN))
    assert told.ended() == []
    assert told.overflows == 2


@pytest.mark.root
def test_a_connection_is_known_while_it_lives_and_once_it_has_ended() -> None:
    told = TcpSockets([os.getpid()])
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port))
    peer, _ = server.accept()
    own = client.getsockname()[1]

    def between(connections: list[Connection]) -> list[tuple[int, int]]:
        return sorted(
            (one.src_port, one.dst_port)
            for one in connections
            if {one.src_port, one.dst_port} == {own, port}
        )

    assert port in told.listening(0)
    assert own not in told.listening(0)
    assert between(told.open()) == sorted([(own, port), (port, own)])
    assert between(told.ended()) == []
    client.sendall(b"hello")
    client.close()
    peer.close()
    server.close()
    ended: list[Connection] = []
    deadline = time.monotonic() + 10
    while not ended and time.monotonic() < deadline:  # a busy kernel takes its time
        ended = [one for one in told.ended() if (one.src_port, one.dst_port) == (own, port)]
    told.close()
    assert [(one.src_ip, one.dst_ip) for one in ended] == [(0x7F000001, 0x7F000001)]
    assert ended[0].sent >= 3  # SYN, ACK, data
    assert ended[0].retransmitted == 0
    with pytest.raises(OSError, match="Bad file"):
        told.ended()
