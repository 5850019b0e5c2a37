# SPDX-License-Identifier: Apache-2.0
"""Work inside other processes' network namespaces."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed.network.network import NetworkError
from testbed.rootless import search_path

_OFFLOADS = (
    "rx-checksumming",
    "tx-checksumming",
    "scatter-gather",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
)


_SIOCGIFFLAGS, _IFF_UP = 0x8913, 1  # netdevice(7)

_BURST = 16_384  # bytes: more than ten frames
_TICK_S = 0.01  # of the slowest kernels' clock
_WAITING = 1 << 20  # bytes, which a socket's buffer does not hold


class NamespaceError(NetworkError):
    """A namespace could not be entered or set up. The message is one line."""


@contextmanager
def inside(pid: int) -> Iterator[None]:
    """Run the block in the network namespace of a process; sockets opened in it stay there.

    Only this thread changes its namespace. (pyroute2's pushns and popns have one stack for all
    threads.)
    """
    try:
        there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as e:
        raise NamespaceError(f"no network namespace of process {pid}: {e.strerror}") from None
    try:
        with entered(there):
            yield
    finally:
        os.close(there)


@contextmanager
def entered(there: int) -> Iterator[None]:
    """Run the block in a network namespace, in this thread only.

    ``there`` is the number of a file descriptor of the namespace. The block gets no value.
    """
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(there)
        try:
            yield
        finally:
            _enter(here)
    finally:
        os.close(here)


def _enter(fd: int) -> None:
    from pyroute2 import netns  # a tenth of the time in which a command starts

    try:
        netns.setns(fd)
    except OSError as e:
        reason = os.strerror(e.errno or 0)
        raise NamespaceError(f"cannot enter a network namespace: {reason}") from None


def ip_batch(commands: Sequence[str]) -> None:
    """Run many ``ip`` commands in one process, in this thread's namespace.

    pyroute2's IPRoute takes three times as long for the fat-tree of K=4 (0.5 s instead of 0.17 s).
    """
    result = subprocess.run(
        ["ip", "-batch", "-"],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise NamespaceError(f"ip: {' '.join(result.stderr.split())}")


def limit_rate(interfaces: Sequence[str], mbps: float) -> None:
    """Let interfaces of this thread's namespace send at most ``mbps`` megabits a second.

    What waits is more than a sender's socket holds, so that it waits there, and nothing is lost.

    Raises:
        NamespaceError: The kernel cannot do it.
    """
    burst = max(_BURST, round(mbps * 1e6 / 8 * _TICK_S))
    how = f"root tbf rate {mbps * 1e6:.0f}bit burst {burst} limit {_WAITING + burst}"
    result = subprocess.run(
        ["tc", "-batch", "-"],
        input="".join(f"qdisc replace dev {interface} {how}\n" for interface in interfaces),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise NamespaceError(f"BW needs tc and the kernel's tbf: {' '.join(result.stderr.split())}")


def no_ipv6() -> None:
    """Disable IPv6 for all present and future interfaces of this thread's namespace."""
    for which in ("all", "default"):
        setting = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
        if setting.exists():
            setting.write_text("1")


def no_tail_loss_probes() -> None:
    """Disable TCP's tail loss probes in this thread's namespace, so that it resends only losses.

    A tail loss probe is sent after two round-trip times of silence. Software switches delay packets
    for longer than that, so that every such probe would count as a loss.
    """
    Path("/proc/sys/net/ipv4/tcp_early_retrans").write_text("0")


def patient_connections() -> None:
    """Let TCP in this thread's namespace try to connect for 15 minutes, as it does to resend.

    A fault may lose every packet for minutes.
    """
    Path("/proc/sys/net/ipv4/tcp_syn_retries").write_text("12")


def no_offloads(interfaces: Sequence[str]) -> None:
    """Disable checksum and segmentation offloads of interfaces in this thread's namespace.

    Checksums are then computed and verified, and frames are sent as they are given.
    """
    from pyroute2.ethtool.ioctl import EthtoolError, IoctlEthtool

    ethtool = IoctlEthtool()
    try:
        for interface in interfaces:
            ethtool.change_ifname(interface)
            for offload in _OFFLOADS:
                try:
                    ethtool.set_offload_flag(offload, False)
                except (OSError, EthtoolError):
                    raise NamespaceError(f"{interface}: {offload} cannot be switched off") from None
    finally:
        ethtool.close()


def interfaces_down() -> set[str]:
    """Return the names of the interfaces of this thread's namespace that are down."""
    down = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
        for _, name in socket.if_nameindex():
            request = struct.pack("16s24x", name.encode())
            (flags,) = struct.unpack_from("h", fcntl.ioctl(kernel, _SIOCGIFFLAGS, request), 16)
            if not flags & _IFF_UP:
                down.add(name)
    return down


def has_routes() -> bool:
    """Return True if this thread's namespace has an IPv4 route, besides those of its addresses."""
    return len(Path("/proc/thread-self/net/route").read_text().splitlines()) > 1


def interface_counters() -> dict[str, tuple[int, int]]:
    """Return, by interface of this thread's namespace, the packets sent and the packets dropped.

    The latter were refused by the other end of the cable.
    """
    counts: dict[str, tuple[int, int]] = {}
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]:
        name, numbers = line.split(":", 1)
        columns = numbers.split()
        counts[name.strip()] = int(columns[9]), int(columns[11])
    return counts


_CUT = "canary_cut"  # a table of nftables, with a counter and a chain for each interface


def cut_off(port: int, interface: str, cut: bool) -> None:
    """Let this thread's namespace drop and count what is sent from an interface, or no longer.

    Args:
        port: A number of the interface's own.
        interface: Its name.
        cut: Whether to drop.

    Raises:
        NamespaceError: nft is missing, or the kernel has no netdev egress hook.
    """
    hook = f'{{ type filter hook egress device "{interface}" priority -300; }}'
    _nft(
        ["-f", "-"],
        [
            f"add table netdev {_CUT}",
            f"add counter netdev {_CUT} port{port}",
            f"add chain netdev {_CUT} port{port} {hook}",
            f"flush chain netdev {_CUT} port{port}",
            f"add rule netdev {_CUT} port{port} counter name port{port} drop"
            if cut
            else f"delete chain netdev {_CUT} port{port}",
        ],
    )


def dropped_by_cuts() -> dict[int, int]:
    """Return, by port, the packets that `cut_off` has dropped in this thread's namespace."""
    found = json.loads(_nft(["-j", "list", "counters", "table", "netdev", _CUT]))["nftables"]
    counters = [entry["counter"] for entry in found if "counter" in entry]
    return {int(each["name"].removeprefix("port")): int(each["packets"]) for each in counters}


def _nft(arguments: Sequence[str], commands: Sequence[str] = ()) -> str:
    """Run nft in this thread's namespace and return what it prints; ``commands`` are its input, of
    which it carries out all or none."""
    try:
        result = subprocess.run(
            ["nft", *arguments],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": search_path()},
            check=False,
        )
    except OSError as e:
        raise NamespaceError(
            f"nft: {e.strerror}: to switch a link of BMv2 off, apt install nftables, or use "
            "BACKEND=softswitch"
        ) from None
    if result.returncode:
        raise NamespaceError(f"nft: {' '.join(result.stderr.split())}")
    return result.stdout
