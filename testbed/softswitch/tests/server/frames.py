# SPDX-License-Identifier: Apache-2.0
"""Frames for the tests."""

from __future__ import annotations

import struct


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp(
    dst: int = 0x0A000002,
    sport: int = 1000,
    path_bf: int | None = None,
    size: int = 40,
    ttl: int = 64,
    src: int = 0x0A000001,
) -> bytes:
    """Ethernet, the shim when there is a pathBF, IPv4, UDP; ``size`` bytes after Ethernet."""
    head = struct.pack(">BBHHHBBHII", 0x45, 0, size, 0, 0, ttl, 17, 0, src, dst)
    ip = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    l4 = struct.pack(">HHHH", sport, 2000, size - 20, 0) + bytes(size - 28)
    macs = bytes.fromhex("02000000000902000000000a")
    if path_bf is None:
        return macs + b"\x08\x00" + ip + l4
    return macs + b"\x88\xb5" + struct.pack(">IBH", path_bf, 0, 0x0800) + ip + l4
