"""Work inside other processes' network namespaces."""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "NamespaceError",
    "inside",
    "ip_batch",
    "no_ipv6",
    "no_offloads",
    "no_tail_loss_probes",
    "transmitted",
]

_CLONE_NEWNET = 0x40000000
_SIOCETHTOOL = 0x8946
# ETHTOOL_S{RXCSUM,TXCSUM,SG,TSO,GSO,GRO}: rx and tx checksums, scatter-gather, TSO, GSO, GRO
_OFFLOADS = (0x15, 0x17, 0x19, 0x1F, 0x24, 0x2C)


class NamespaceError(RuntimeError):
    """A namespace could not be entered or set up. One line."""


_libc = ctypes.CDLL(None, use_errno=True)


def _setns(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET):
        raise NamespaceError(f"cannot enter a network namespace: {os.strerror(ctypes.get_errno())}")


@contextmanager
def inside(pid: int) -> Iterator[None]:
    """Put this thread into the network namespace of a process; sockets opened here stay in it."""
    try:
        there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as e:
        raise NamespaceError(f"no network namespace of process {pid}: {e.strerror}") from None
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(there)
        try:
            yield
        finally:
            _setns(here)
    finally:
        os.close(there)
        os.close(here)


def ip_batch(commands: Sequence[str]) -> None:
    """Run many ``ip`` commands in one process, in this thread's namespace."""
    result = subprocess.run(
        ["ip", "-batch", "-"],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise NamespaceError(f"ip: {' '.join(result.stderr.split())}")


def no_ipv6() -> None:
    """Switch IPv6 off for every interface that this namespace will get."""
    for which in ("all", "default"):
        setting = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
        if setting.exists():
            setting.write_text("1")


def no_tail_loss_probes() -> None:
    """TCP in this namespace retransmits what is lost, and nothing else.

    A tail loss probe follows two round-trip times of silence; software switches hold packets back
    for longer than that, and every such probe would pass for a loss.
    """
    Path("/proc/sys/net/ipv4/tcp_early_retrans").write_text("0")


def no_offloads(interfaces: Sequence[str]) -> None:
    """Interfaces of this namespace compute and verify checksums and send what they are given."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for interface in interfaces:
            for command in _OFFLOADS:
                value = array.array("B", struct.pack("=II", command, 0))
                request = struct.pack("16sP", interface.encode(), value.buffer_info()[0])
                try:
                    fcntl.ioctl(s, _SIOCETHTOOL, request.ljust(40, b"\0"))
                except OSError as e:
                    raise NamespaceError(f"offloads of {interface}: {e.strerror}") from None


def transmitted(pid: int) -> dict[str, int]:
    """Packets that each interface in the namespace of a process has sent."""
    counts: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]:
        name, numbers = line.split(":", 1)
        counts[name.strip()] = int(numbers.split()[9])
    return counts
