# SPDX-License-Identifier: Apache-2.0
"""Frames built byte by byte, without any code of the testbed, and what the tests read in them."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from scapy.layers.inet import ICMP as ScapyICMP
from scapy.layers.inet import IP

ETHERNET = 14
SHIM = 7
SHIM_TYPE = 0x88B5
IPV4_TYPE = 0x0800
ICMP, IPIP, TCP, UDP = 1, 4, 6, 17

WINDOW_US = 1 << 17
ICMP_PER_WINDOW = 13

FAULT, CORRUPT, EXPIRED, NO_ROUTE, MALFORMED, LOCAL = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True)
class Flow:
    """A TCP or UDP 5-tuple."""

    src: int
    dst: int
    src_port: int
    dst_port: int
    protocol: int = UDP

    @property
    def key(self) -> bytes:
        return struct.pack(
            ">IIHHB", self.src, self.dst, self.src_port, self.dst_port, self.protocol
        )

    @property
    def id(self) -> int:
        return int.from_bytes(self.key, "big")

    def bucket(self, row: int, parity: int = 0) -> int:
        """Its bucket in a meter row: bits 10 row .. 10 row + 9 of the CRC32 of its ID."""
        return parity << 10 | zlib.crc32(self.key) >> 10 * row & 0x3FF


FLOW = Flow(0x0A000002, 0x0A030103, 4000, 80, TCP)


def checksum(data: bytes) -> int:
    """RFC 1071."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def crc16_of_byte(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ 0xA001 * (value & 1)
    return value


OF_BYTES = [crc16_of_byte(byte) for byte in range(256)]


def crc16(key: bytes) -> int:
    """CRC-16/ARC, which v1model and TNA both call crc16."""
    value = 0
    for byte in key:
        value = value >> 8 ^ OF_BYTES[value & 0xFF ^ byte]
    return value


def ipv4(
    src: int,
    dst: int,
    protocol: int,
    payload: bytes = b"",
    ttl: int = 64,
    fragment: int = 0,
    *,
    options: bytes = b"",
    version: int = 4,
    ihl: int | None = None,
    identification: int = 7,
    tos: int = 0,
) -> bytes:
    """An IPv4 packet with a right checksum, whatever else is wrong with it."""
    words = 5 + len(options) // 4 if ihl is None else ihl
    header = struct.pack(
        ">BBHHHBBHII",
        version << 4 | words,
        tos,
        20 + len(options) + len(payload),
        identification,
        fragment,
        ttl,
        protocol,
        0,
        src,
        dst,
    )
    header += options
    header = header[:10] + struct.pack(">H", checksum(header)) + header[12:]
    return header + payload


def ethernet(packet: bytes, kind: int = IPV4_TYPE) -> bytes:
    return bytes.fromhex("0200 0a000001 0200 0a000002") + struct.pack(">H", kind) + packet


def l4(flow: Flow, payload: bytes = b"data") -> bytes:
    if flow.protocol == TCP:
        head = struct.pack(">HHIIBBHHH", flow.src_port, flow.dst_port, 1, 0, 80, 16, 255, 0, 0)
    else:
        head = struct.pack(">HHHH", flow.src_port, flow.dst_port, 8 + len(payload), 0)
    return head + payload


def packet(flow: Flow, ttl: int = 64, payload: bytes = b"data") -> bytes:
    """The IPv4 packet of a flow."""
    return ipv4(flow.src, flow.dst, flow.protocol, l4(flow, payload), ttl=ttl)


def frame(flow: Flow, ttl: int = 64, payload: bytes = b"data") -> bytes:
    """What a host sends."""
    return ethernet(packet(flow, ttl, payload))


def shimmed(
    plain: bytes, path_bf: int = 0, counted: int = 0, parity: int = 0, reserved: int = 0
) -> bytes:
    """The frame as it looks on a fabric link."""
    marks = counted << 7 | parity << 6 | reserved
    return plain[:12] + struct.pack(">HIB", SHIM_TYPE, path_bf, marks) + plain[12:]


@dataclass(frozen=True)
class Shim:
    path_bf: int
    counted: int
    parity: int
    ether_type: int


def shim_of(data: bytes) -> Shim | None:
    """The shim of a frame, or None without one."""
    if struct.unpack_from(">H", data, 12)[0] != SHIM_TYPE:
        return None
    path_bf, marks, ether_type = struct.unpack_from(">IBH", data, ETHERNET)
    return Shim(path_bf, marks >> 7, marks >> 6 & 1, ether_type)


def ip_of(data: bytes) -> bytes:
    """What follows Ethernet and the shim."""
    return data[ETHERNET + (SHIM if shim_of(data) else 0) :]


def is_right(ip: bytes) -> bool:
    """Whether scapy computes the same IPv4 (and ICMP) checksum."""
    parsed = IP(ip)
    given = parsed.chksum, parsed[ScapyICMP].chksum if ScapyICMP in parsed else 0
    del parsed.chksum
    if ScapyICMP in parsed:
        del parsed[ScapyICMP].chksum
    again = IP(bytes(parsed))
    return given == (again.chksum, again[ScapyICMP].chksum if ScapyICMP in again else 0)
