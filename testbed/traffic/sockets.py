"""What a host's kernel knows of its TCP connections: the packets sent, and sent again.

Asked over netlink's sock_diag, which is where ``ss`` has its figures from. A kernel tells a
connection's last figures when it ends, so none is missed however short it was.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.network.namespaces import inside

__all__ = ["Connection", "SocketError", "TcpSockets"]

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_SOL_NETLINK = 270
_NETLINK_ADD_MEMBERSHIP = 1
_TCP_DESTROYED = 1  # SKNLGRP_INET_TCP_DESTROY
_INET_DIAG_INFO = 2
_LISTEN = 10
_STATES = 0xFFF & ~(1 << _LISTEN | 1 << 6 | 1 << 3)  # not TIME_WAIT, SYN_RECV: no figures there

_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI48x")
_MESSAGE = struct.Struct("=BBBB2s2s4s12x4s12x32x")  # inet_diag_msg
_ATTRIBUTE = struct.Struct("=HH")
# of struct tcp_info
_TOTAL_RETRANS, _SEGS_OUT = 100, 136


class SocketError(OSError):
    """The kernel does not tell about its sockets. One line."""


@dataclass(frozen=True)
class Connection:
    """One end of a TCP connection: addresses and ports as integers, packets sent and resent.

    ``sent`` counts everything that left towards the other end, ``retransmitted`` is a part of it.
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
        try:
            for pid in pids:
                with inside(pid):
                    self._asking.append(_netlink())
                    self._ended.append(_netlink())
                # else a crowd that ends at once would not fit
                self._ended[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                self._ended[-1].setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, _TCP_DESTROYED)
                self._ended[-1].setblocking(False)
        except OSError as e:
            self.close()
            raise SocketError(f"this kernel tells nothing of its sockets: {e.strerror}") from None

    def close(self) -> None:
        for s in (*self._asking, *self._ended):
            s.close()

    def ended(self) -> list[Connection]:
        """Connections that have ended since the last call, with their last figures."""
        return [connection for s in self._ended for connection in _read_ended(s)]

    def open(self) -> list[Connection]:
        """Connections that exist now, orphans included."""
        return [
            connection
            for s in self._asking
            for message in _dump(s, _STATES)
            if (connection := _connection(message)) is not None
        ]

    def listening(self, host: int) -> set[int]:
        """Ports on which a host accepts connections."""
        messages = _dump(self._asking[host], 1 << _LISTEN)
        return {int.from_bytes(_MESSAGE.unpack_from(message)[4], "big") for message in messages}


def _netlink() -> socket.socket:
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
    s.bind((0, 0))
    s.settimeout(5)
    return s


def _dump(s: socket.socket, states: int) -> Iterator[bytes]:
    """The inet_diag messages of all IPv4 TCP sockets in some states."""
    body = _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 0, states)
    length = _HEADER.size + len(body)
    s.send(_HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 0, 0) + body)
    while True:
        for kind, message in _messages(s.recv(1 << 16)):
            if kind == _NLMSG_DONE:
                return
            if kind == _NLMSG_ERROR:
                raise SocketError("this kernel tells nothing of its TCP sockets: modprobe tcp_diag")
            yield message


def _read_ended(s: socket.socket) -> Iterator[Connection]:
    while True:
        try:
            data = s.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:  # more ended at once than the socket holds: those are lost
            continue
        for _, message in _messages(data):
            connection = _connection(message)
            if connection is not None:
                yield connection


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Types and bodies of the netlink messages in a datagram."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        yield kind, data[at + _HEADER.size : at + length]
        at += (max(length, _HEADER.size) + 3) & ~3


def _connection(message: bytes) -> Connection | None:
    """What an inet_diag message says; None if it is not of IPv4 or has no figures."""
    family, _, _, _, src_port, dst_port, src_ip, dst_ip = _MESSAGE.unpack_from(message)
    if family != socket.AF_INET:
        return None
    at = _MESSAGE.size
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        info = message[at + _ATTRIBUTE.size : at + length]
        if kind == _INET_DIAG_INFO and len(info) >= _SEGS_OUT + 4:
            big = (int.from_bytes(field, "big") for field in (src_ip, dst_ip, src_port, dst_port))
            sent = int.from_bytes(info[_SEGS_OUT : _SEGS_OUT + 4], _NATIVE)
            resent = int.from_bytes(info[_TOTAL_RETRANS : _TOTAL_RETRANS + 4], _NATIVE)
            return Connection(*big, sent=sent, retransmitted=resent)
        at += (max(length, _ATTRIBUTE.size) + 3) & ~3
    return None


_NATIVE = "little" if struct.pack("=H", 1) == b"\1\0" else "big"
