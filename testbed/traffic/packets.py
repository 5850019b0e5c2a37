# SPDX-License-Identifier: Apache-2.0
"""Frame bytes, for all flows at once: Ethernet, IPv4 and TCP or UDP headers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.ranks import BTH
from testbed.traffic.flows import TCP, Traffic

Bytes = npt.NDArray[np.uint8]
Field = npt.NDArray[np.integer] | int

ETHERNET = 14
IPV4 = 20
UDP_FRAME = ETHERNET + IPV4 + 8
TCP_FRAME = ETHERNET + IPV4 + 20
HEADER_BYTES = TCP_FRAME

TTL = 64


def headers(traffic: Traffic, topology: PacketFabric) -> tuple[Bytes, npt.NDArray[np.uint16]]:
    """Return the header bytes of each flow's frames.

    IP total length, ID and header checksum are zero, and so are the L4 checksum and UDP length:
    they differ between packets and are written by the sender.

    Returns:
        uint8[F, 54] templates, zero from the length on, and their lengths uint16[F]: 54 for TCP and
        42 for UDP.
    """
    src, dst = traffic.src_host, traffic.dst_host
    frames = np.zeros((traffic.n_flows, HEADER_BYTES), np.uint8)
    put_ethernet(frames, topology, src)
    put_ipv4(
        frames, ETHERNET, topology.host_ip[src], topology.host_ip[dst], traffic.protocol, ttl=TTL
    )
    put_tcp(frames, ETHERNET + IPV4, traffic.src_port, traffic.dst_port)
    tcp = traffic.protocol == TCP
    frames[~tcp, ETHERNET + IPV4 + 4 :] = 0  # the ports lie where TCP's do
    return frames, np.where(tcp, TCP_FRAME, UDP_FRAME).astype(np.uint16)


def with_roce(
    templates: Bytes, lengths: npt.NDArray[np.uint16], answers: npt.NDArray[np.bool_]
) -> tuple[Bytes, npt.NDArray[np.uint16]]:
    """Return templates of UDP frames and their lengths with RoCEv2's headers behind UDP's: those of
    `answers` acknowledge, the others carry data. Senders write the sequence numbers."""
    longer = np.zeros((len(templates), UDP_FRAME + BTH), np.uint8)
    longer[:, :UDP_FRAME] = templates[:, :UDP_FRAME]
    longer[:, UDP_FRAME] = np.where(answers, 0x11, 0x04)
    return longer, np.full_like(lengths, UDP_FRAME + BTH)


def put(frames: Bytes, at: int, value: Field, width: int) -> None:
    """Write integers big-endian into ``width`` bytes of uint8[..., L] frames."""
    wide = np.asarray(value).astype(">u8")[..., None].view(np.uint8)
    frames[..., at : at + width] = wide[..., 8 - width :]


def put_ethernet(frames: Bytes, topology: PacketFabric, host: npt.NDArray[np.integer]) -> None:
    """Write the Ethernet headers of IPv4 frames from each host to its ToR."""
    put(frames, 0, topology.switch_mac[topology.host_tor[host]], 6)
    put(frames, 6, topology.host_mac[host], 6)
    put(frames, 12, 0x0800, 2)


def put_ipv4(
    frames: Bytes,
    at: int,
    src_ip: Field,
    dst_ip: Field,
    protocol: Field,
    ttl: Field,
    length: int = 0,
) -> None:
    """Write an IPv4 header without options at byte ``at`` of each frame.

    If ``length`` (bytes) is given, it is complete, checksum included.
    """
    frames[..., at] = 0x45
    put(frames, at + 2, length, 2)
    put(frames, at + 4, 0, 2)
    put(frames, at + 8, ttl, 1)
    put(frames, at + 9, protocol, 1)
    put(frames, at + 12, src_ip, 4)
    put(frames, at + 16, dst_ip, 4)
    if length:
        put(frames, at + 10, internet_checksum(frames[..., at : at + IPV4]), 2)


def put_udp(frames: Bytes, at: int, src_port: Field, dst_port: Field, length: int) -> None:
    """Write a UDP header without a checksum at byte ``at`` of each frame."""
    put(frames, at, src_port, 2)
    put(frames, at + 2, dst_port, 2)
    put(frames, at + 4, length, 2)


def put_tcp(frames: Bytes, at: int, src_port: Field, dst_port: Field) -> None:
    """Write a TCP header of a bare ACK, checksum zero, at byte ``at`` of each frame."""
    put(frames, at, src_port, 2)
    put(frames, at + 2, dst_port, 2)
    frames[..., at + 12] = 5 << 4
    frames[..., at + 13] = 0x10
    frames[..., at + 14 : at + 16] = 0xFF


def internet_checksum(data: Bytes) -> npt.NDArray[np.uint16]:
    """Return the Internet checksum (RFC 1071) over the last axis of bytes, uint8[..., even]."""
    words = data[..., 0::2].astype(np.uint32) << 8 | data[..., 1::2]
    total = words.sum(axis=-1, dtype=np.uint32)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).astype(np.uint16)
