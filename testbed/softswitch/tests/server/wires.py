# SPDX-License-Identifier: Apache-2.0
"""Veth pairs between a switch process and the test."""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import struct
import subprocess
from contextlib import suppress

import numpy as np
import pytest

NUMBERS = itertools.count()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def offloads_off(interface: str) -> None:
    """No checksum, segmentation or VLAN offload, as the network has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for command in (0x17, 0x15, 0x1F, 0x24, 0x2C):  # tx and rx sums, tso, gso, gro
            value = np.array([command, 0], dtype=np.uint32)
            try:
                fcntl.ioctl(s, 0x8946, struct.pack("16sP", interface.encode(), value.ctypes.data))
            except OSError as e:
                if command != 0x15:
                    pytest.skip(f"cannot switch offloads off: {e}")


class Wire:
    """A veth pair: ``port`` is the switch's end, a raw socket sits at the other."""

    def __init__(self) -> None:
        name = f"sp{os.getpid() % 10**6}x{next(NUMBERS)}"
        self.port, self.host = name + "s", name + "h"
        self.socket: socket.socket | None = None
        try:
            ip(
                "link",
                "add",
                self.port,
                "mtu",
                "1600",
                "type",
                "veth",
                "peer",
                "name",
                self.host,
                "mtu",
                "1600",
            )
        except (OSError, subprocess.CalledProcessError) as e:
            pytest.skip(f"veth pairs cannot be made: {e}")
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    def _set_up(self) -> None:
        for end in (self.port, self.host):
            with open(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6", "w") as f:
                f.write("1")
            offloads_off(end)
            ip("link", "set", end, "up")

    def open(self) -> socket.socket:
        if self.socket is None:
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)  # hears nothing until bound
            with suppress(PermissionError):  # not in a user namespace
                s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
            s.setsockopt(263, 23, 1)  # PACKET_IGNORE_OUTGOING
            s.bind((self.host, 3))
            s.settimeout(5)
            self.socket = s
        return self.socket

    def close(self) -> None:
        if self.socket:
            self.socket.close()
        subprocess.run(["ip", "link", "del", self.port], capture_output=True)  # may be gone


def attach(wires: list[Wire]) -> list[str]:
    return [x for i, w in enumerate(wires, 1) for x in ("-i", f"{i}@{w.port}")]
