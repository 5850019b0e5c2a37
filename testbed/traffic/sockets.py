# SPDX-License-Identifier: Apache-2.0
"""Reads how many packets the TCP connections of hosts have sent and retransmitted.

The kernel's sock_diag is asked over netlink, as by ``ss``. It also reports a connection's final
counters when it ends, so that even a short one is not missed.

What messages look like is pyroute2's; they are read here, because its sockets take some 15 times as
long (0.28 s for 400 connections), and the controller asks while the clock runs.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink import (
    NETLINK_ADD_MEMBERSHIP,
    NETLINK_SOCK_DIAG,
    NLM_F_DUMP,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    SOL_NETLINK,
)
from pyroute2.netlink.diag import (
    SKNLGRP_INET_TCP_DESTROY,
    SOCK_DIAG_BY_FAMILY,
    SS_ALL,
    SS_LISTEN,
    SS_SYN_RECV,
    SS_TIME_WAIT,
    inet_diag_msg,
    inet_diag_req,
)

from testbed.network.namespaces import inside

_LISTENING = 1 << SS_LISTEN
_STATES = SS_ALL & ~(_LISTENING | 1 << SS_TIME_WAIT | 1 << SS_SYN_RECV)  # those have no figures


def _offsets(fields: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the byte offset of each field of a packed structure, and under "" its length."""
    offsets, at = {}, 0
    for name, kind in fields:
        offsets[name] = at
        at += struct.calcsize("=" + kind.lstrip(">"))
    return offsets | {"": at}


_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_MESSAGE = _offsets(inet_diag_msg.fields)
_ENDS = struct.Struct(">HHI12xI")  # ports and IPv4 addresses, from idiag_sport on
_INFO = [name for name, _ in inet_diag_msg.nla_map].index("INET_DIAG_INFO")
_RETRANSMITTED, _SENT = (
    _offsets(inet_diag_msg.tcp_info.fields)[name]
    for name in ("tcpi_total_retrans", "tcpi_segs_out")
)
_COUNT = struct.Struct("=I")


class SocketError(OSError):
    """The kernel does not report its sockets. The message is one line."""


@dataclass(frozen=True)
class Connection:
    """One end of a TCP connection: addresses and ports as integers, packets sent and resent.

    ``sent`` counts all packets to the other end, including the ``retransmitted`` ones.
    """

    src_ip: int
    dst_ip: int
    src_port: int
    dst_port: int
    sent: int
    retransmitted: int


class TcpSockets:
    """The TCP sockets of several hosts.

    Args:
        pids: For each host, the id of a process in its network namespace.

    Raises:
        SocketError: The kernel has no sock_diag.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._asking: list[socket.socket] = []
        self._ended: list[socket.socket] = []
        self._overflows = 0
        try:
            for pid in pids:
                with inside(pid):
                    self._asking.append(_netlink())
                    self._ended.append(_netlink())
                # else a crowd that ends at once would not fit
                self._ended[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                self._ended[-1].setsockopt(
                    SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, SKNLGRP_INET_TCP_DESTROY
                )
                self._ended[-1].setblocking(False)
        except OSError as e:
            self.close()
            raise SocketError(f"this kernel does not report its sockets: {e.strerror}") from None

    def close(self) -> None:
        """Close the netlink sockets of all hosts."""
        for s in (*self._asking, *self._ended):
            s.close()

    @property
    def overflows(self) -> int:
        """Return the number of times a kernel lost reports, as too many connections ended."""
        return self._overflows

    def ended(self) -> list[Connection]:
        """Return the connections that have ended since the last call, with their final counters.

        Raises:
            OSError: The sockets are closed, or broken.
        """
        return [connection for s in self._ended for connection in self._read_ended(s)]

    def open(self) -> list[Connection]:
        """Return all existing connections, including those that no process owns any more."""
        return [
            connection
            for s in self._asking
            for message in _dump(s, _STATES)
            if (connection := _connection(message)) is not None
        ]

    def listening(self, host: int) -> set[int]:
        """Return the numbers of the TCP ports on which the host with this number listens."""
        messages = _dump(self._asking[host], _LISTENING)
        return {_ENDS.unpack_from(message, _MESSAGE["idiag_sport"])[0] for message in messages}

    def _read_ended(self, s: socket.socket) -> Iterator[Connection]:
        while True:
            try:
                data = s.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError as e:
                if e.errno != errno.ENOBUFS:
                    raise
                self._overflows += 1
                continue
            for _, message in _messages(data):
                connection = _connection(message)
                if connection is not None:
                    yield connection


def _netlink() -> socket.socket:
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG)
    s.bind((0, 0))
    s.settimeout(5)
    return s


def _dump(s: socket.socket, states: int) -> Iterator[bytes]:
    """Yield the inet_diag messages of all IPv4 TCP sockets in the states of a bit mask."""
    request: Any = inet_diag_req()
    request["header"]["type"] = SOCK_DIAG_BY_FAMILY
    request["header"]["flags"] = NLM_F_REQUEST | NLM_F_DUMP
    request["sdiag_family"] = socket.AF_INET
    request["sdiag_protocol"] = socket.IPPROTO_TCP
    request["idiag_ext"] = 1 << (_INFO - 1)
    request["idiag_states"] = states
    request.encode()
    s.send(request.data)
    while True:
        for kind, message in _messages(s.recv(1 << 16)):
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                raise SocketError("this kernel does not report its TCP sockets: modprobe tcp_diag")
            yield message


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the body of each netlink message in a datagram."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        yield kind, data[at + _HEADER.size : at + length]
        at += (max(length, _HEADER.size) + 3) & ~3


def _connection(message: bytes) -> Connection | None:
    """Return the connection of an inet_diag message; None if it is not IPv4 or has no counters."""
    if message[_MESSAGE["idiag_family"]] != socket.AF_INET:
        return None
    src_port, dst_port, src_ip, dst_ip = _ENDS.unpack_from(message, _MESSAGE["idiag_sport"])
    at = _MESSAGE[""]
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        info = message[at + _ATTRIBUTE.size : at + length]
        if kind == _INFO and len(info) >= _SENT + _COUNT.size:
            (sent,), (resent,) = (_COUNT.unpack_from(info, o) for o in (_SENT, _RETRANSMITTED))
            return Connection(src_ip, dst_ip, src_port, dst_port, sent, resent)
        at += (max(length, _ATTRIBUTE.size) + 3) & ~3
    return None
