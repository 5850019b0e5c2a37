"""Replay of a capture: pcap or pcapng, gzipped or not, mapped onto the hosts of a fat-tree.

Scapy reads the file's records; packets are parsed here, from their first bytes and many at a time.
Cost: 3 us a packet for pcap and 8 us for pcapng, 60 bytes of memory a packet.
"""

from __future__ import annotations

import gzip
import logging
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from testbed.fabric.fat_tree import FatTree
from testbed.traffic.flows import MAX_FRAME, MIN_FRAME, TCP, UDP, Traffic, make_distinct

__all__ = ["Capture", "CaptureError", "onto_hosts", "read_capture", "replay"]

log = logging.getLogger(__name__)

_SNAP = 96  # Ethernet, two VLAN tags, the longest IPv4 header or IPv6, and ports
_CHUNK = 1 << 17
_ETHERNET, _RAW, _COOKED, _COOKED2 = 1, 101, 113, 276
_RAW_LIKE = (12, 14, _RAW, 228, 229)
_LINK_TYPES = (_ETHERNET, _COOKED, _COOKED2, *_RAW_LIKE)
_VLAN = (0x8100, 0x88A8, 0x9100)
_GZIP_MAGIC = b"\x1f\x8b"


class CaptureError(ValueError):
    """The capture cannot be replayed. One line: what is wrong and what to do."""


@dataclass(frozen=True)
class Capture:
    """The TCP and UDP packets of a capture, in the order of time; all arrays [P].

    Attributes:
        time_ns: Since the first packet, uint64.
        src, dst: Addresses, uint64: IPv4 as it is, IPv6 as a hash with the top bit set.
        src_port, dst_port: uint16; 0 in later fragments and where the capture is too short.
        protocol: 6 or 17, uint8.
        size: Bytes of the IP packet behind an untagged Ethernet header, 64 to 1514, uint16.
        skipped: Packets left out, by reason.
    """

    time_ns: npt.NDArray[np.uint64]
    src: npt.NDArray[np.uint64]
    dst: npt.NDArray[np.uint64]
    src_port: npt.NDArray[np.uint16]
    dst_port: npt.NDArray[np.uint16]
    protocol: npt.NDArray[np.uint8]
    size: npt.NDArray[np.uint16]
    skipped: dict[str, int]


def replay(
    path: str | Path,
    topology: FatTree,
    seed: int,
    time_scale: float = 1.0,
    duration_s: float | None = None,
) -> Traffic:
    """Read a capture and map it onto the hosts.

    Args:
        path: pcap or pcapng, optionally gzipped, of Ethernet (VLAN tags too), raw IP or Linux
            cooked packets, with microseconds or nanoseconds.
        topology: The fat-tree.
        seed: Draws which address becomes which host.
        time_scale: Gaps between packets are multiplied by this: 0.1 replays ten times as fast.
        duration_s: Use only what is sent within this time, after scaling.

    Raises:
        CaptureError: The file is missing, truncated, empty or no capture, or holds no TCP or UDP.
    """
    if not 0 < time_scale < float("inf"):
        raise CaptureError(f"a time scale of {time_scale:g} is out of range: use a number above 0")
    capture = read_capture(path, None if duration_s is None else duration_s / time_scale)
    if capture.skipped:
        reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(capture.skipped.items()))
        log.info("%s: left out %s", path, reasons)
    return onto_hosts(capture, topology, seed, time_scale)


def read_capture(path: str | Path, duration_s: float | None = None) -> Capture:
    """The TCP and UDP packets of a file, those of the first ``duration_s`` seconds if given.

    Raises:
        CaptureError: See ``replay``.
    """
    path = Path(path)
    skipped: Counter[str] = Counter()
    limit_ns = None if duration_s is None else int(duration_s * 1e9)
    chunks: list[_Packets] = []
    first = None
    for chunk in _chunks(path):
        first = int(chunk.time_ns[0]) if first is None else first
        chunks.append(_parse(chunk, skipped))
        # a second of grace, as captures are not strictly in order
        if limit_ns is not None and int(chunk.time_ns[-1]) > first + limit_ns + 10**9:
            break
    if first is None:
        raise CaptureError(f"{path} holds no packet: capture again, or use another file")
    fields = [np.concatenate(parts) for parts in zip(*chunks, strict=True)]
    time_ns = fields[0]
    if not len(time_ns):
        found = ", ".join(f"{n} {reason}" for reason, n in sorted(skipped.items()))
        raise CaptureError(
            f"{path} holds no TCP or UDP packet over IP ({found}): use a capture of IP traffic"
        )
    time_ns = time_ns - time_ns.min()
    order = np.argsort(time_ns, kind="stable")
    if limit_ns is not None:
        order = order[time_ns[order] < max(limit_ns, 1)]
    time_ns, *rest = (field[order] for field in fields)
    time_ns = (time_ns - time_ns[0]).astype(np.uint64)
    return Capture(time_ns, *rest, skipped=dict(skipped))


def onto_hosts(capture: Capture, topology: FatTree, seed: int, time_scale: float = 1.0) -> Traffic:
    """Map addresses onto hosts.

    Addresses are dealt to hosts in the order of their packets, rack after rack, so that the busiest
    are spread. Where two that talk fall into one rack, the larger address of the pair moves to
    another rack for this pair, in both directions. If two flows become one 5-tuple, one gets
    another source port.
    """
    rng = np.random.default_rng([seed, 0xCA97])
    keys = np.zeros(len(capture.src), np.uint64)
    for field in (
        capture.src,
        capture.dst,
        capture.src_port,
        capture.dst_port,
        capture.protocol,
    ):
        keys = _mix(keys ^ field.astype(np.uint64))
    _, first, flow = np.unique(keys, return_index=True, return_inverse=True)
    src, dst = capture.src[first], capture.dst[first]

    packets = np.bincount(flow, minlength=len(first))
    address, index = np.unique(np.concatenate((src, dst)), return_inverse=True)
    busy = np.bincount(index, weights=np.tile(packets, 2))
    racks = rng.permutation(topology.n_tors)
    seats = racks * topology.half + np.arange(topology.half)[:, None]
    host_of = np.empty(len(address), np.int64)
    dealt = np.argsort(-busy, kind="stable")
    host_of[dealt] = seats.ravel()[np.arange(len(address)) % topology.n_hosts]
    src_host, dst_host = host_of[index[: len(src)]], host_of[index[len(src) :]]

    together = src_host // topology.half == dst_host // topology.half
    moved = np.maximum(src, dst)
    hop = 1 + (_mix(moved) % np.uint64(topology.n_tors - 1)).astype(np.int64)
    for host, is_moved in ((dst_host, dst == moved), (src_host, (src == moved) & (src != dst))):
        now = together & is_moved
        host[now] = (host[now] + topology.half * hop[now]) % topology.n_hosts

    flows = (
        src_host.astype(np.int32),
        dst_host.astype(np.int32),
        capture.src_port[first],
        capture.dst_port[first],
        capture.protocol[first],
    )
    make_distinct(rng, *flows)
    time_ns = capture.time_ns
    if time_scale != 1.0:
        time_ns = (time_ns * time_scale).astype(np.uint64)
    return Traffic(*flows, time_ns, flow.astype(np.uint32), capture.size)


# ---- records ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Records:
    """Captured packets: link type, time, original and captured length, first bytes; all [N]."""

    link_type: npt.NDArray[np.int64]
    time_ns: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    captured: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]


def _chunks(path: Path) -> Iterator[_Records]:
    """The packets of a file, some 100,000 at a time."""
    rows: list[tuple[int, int, int, int]] = []
    data: list[bytes] = []

    def flush() -> _Records:
        link_type, time_ns, length, captured = np.array(rows, np.int64).T
        snaps = np.frombuffer(b"".join(data), np.uint8).reshape(-1, _SNAP)
        return _Records(link_type, time_ns, length, captured, snaps)

    for link_type, time_ns, length, packet in _packets(path):
        rows.append((link_type, time_ns, length, len(packet)))
        data.append(packet[:_SNAP].ljust(_SNAP, b"\0"))
        if len(rows) == _CHUNK:
            yield flush()
            rows.clear()
            data.clear()
    if rows:
        yield flush()


def _packets(path: Path) -> Iterator[tuple[int, int, int, bytes]]:
    """Link type, time in ns, original length and captured bytes of each packet.

    Scapy ends silently where a file is cut off, so the end is looked for before each record.
    """
    # its import takes longer than most captures, and only replays need it
    from scapy.data import MTU
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapNgReader

    count = 0
    with _open(path) as file, _quiet_scapy():
        try:
            if not file.peek(1):
                raise CaptureError(f"{path} is empty: capture again, or use another file")
            reader: Any = _reader(RawPcapNgReader, file, path)
            ng = isinstance(reader, RawPcapNgReader)
            time_ns = 0
            while file.peek(1):
                record = reader._read_block(MTU) if ng else reader._read_packet(MTU)
                if record is None:
                    continue
                packet: bytes = record[0]
                about: Any = record[1]
                if ng:
                    link_type = about.linktype
                    if about.tshigh is not None:
                        ticks = (about.tshigh << 32) + about.tslow
                        time_ns = ticks * 10**9 // about.tsresol
                else:
                    link_type = reader.linktype & 0xFFFF
                    time_ns = about.sec * 10**9 + about.usec * (1 if reader.nano else 1000)
                    if len(packet) < min(about.caplen, MTU):
                        raise EOFError
                if time_ns >= 1 << 63:
                    raise EOFError
                yield link_type, time_ns, about.wirelen, packet
                count += 1
        except (EOFError, OSError, zlib.error, struct.error, MemoryError, Scapy_Exception) as error:
            if isinstance(error, OSError) and error.errno:
                raise CaptureError(f"cannot read {path}: {error.strerror}") from None
            intact = f", or keep its intact part with editcap -r {path.name} good.pcap 1-{count}"
            raise CaptureError(
                f"{path} is truncated or damaged after {count} packets: copy it again"
                f"{intact if count else ''}"
            ) from None


def _reader(reader: Any, file: Any, path: Path) -> Any:
    from scapy.error import Scapy_Exception

    try:
        return reader(file)
    except Scapy_Exception:
        raise CaptureError(
            f"{path} is no capture: pcap and pcapng are understood, gzipped or not"
        ) from None


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as raw:
            if raw.peek(2)[:2] == _GZIP_MAGIC:
                with gzip.open(cast(BinaryIO, raw)) as unzipped:
                    yield unzipped
            else:
                yield raw
    except FileNotFoundError:
        raise CaptureError(f"no capture {path}: check TRAFFIC") from None
    except OSError as error:
        raise CaptureError(f"cannot read {path}: {error.strerror or error}") from None


@contextmanager
def _quiet_scapy() -> Iterator[None]:
    """Scapy warns of damage on the terminal; here damage is an error."""
    logger = logging.getLogger("scapy")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


# ---- packets ---------------------------------------------------------------------------------

_Packets = tuple[
    npt.NDArray[np.int64],
    npt.NDArray[np.uint64],
    npt.NDArray[np.uint64],
    npt.NDArray[np.uint16],
    npt.NDArray[np.uint16],
    npt.NDArray[np.uint8],
    npt.NDArray[np.uint16],
]


def _parse(records: _Records, skipped: Counter[str]) -> _Packets:
    """Time, addresses, ports, protocol and frame size of the TCP and UDP packets."""
    data, captured = records.data, records.captured
    rows = np.arange(len(data))
    at, ether_type, known = _network_layer(records)

    def byte(offset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return data[rows, np.minimum(offset, _SNAP - 1)].astype(np.int64)

    def word(offset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return byte(offset) << 8 | byte(offset + 1)

    def long(offset: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        return (word(offset) << 16 | word(offset + 2)).astype(np.uint64)

    first = byte(at)
    v4 = known & (ether_type == 0x0800) & (first >= 0x45) & (first < 0x50) & (captured >= at + 20)
    v6 = known & (ether_type == 0x86DD) & (first >> 4 == 6) & (captured >= at + 40)
    protocol = np.where(v4, byte(at + 9), byte(at + 6))
    l4 = at + np.where(v4, (first & 15) * 4, 40)
    transport = (protocol == TCP) | (protocol == UDP)
    use = (v4 | v6) & transport
    skipped.update(
        {
            reason: int(n)
            for reason, n in (
                ("not IP", np.count_nonzero(known & ~v4 & ~v6)),
                ("neither TCP nor UDP", np.count_nonzero((v4 | v6) & ~transport)),
                ("of an unknown link type", np.count_nonzero(~known)),
            )
            if n
        }
    )
    has_ports = (captured >= l4 + 4) & ~(v4 & (word(at + 6) & 0x1FFF != 0))
    src_port, dst_port = (
        np.where(has_ports, word(l4 + skip), 0).astype(np.uint16) for skip in (0, 2)
    )
    src, dst = (
        np.where(v4, long(at + in_v4), _v6_key([long(at + in_v6 + 4 * i) for i in range(4)]))
        for in_v4, in_v6 in ((12, 8), (16, 24))
    )
    size = np.clip(records.length - at + 14, MIN_FRAME, MAX_FRAME).astype(np.uint16)
    return (
        records.time_ns[use],
        src[use],
        dst[use],
        src_port[use],
        dst_port[use],
        protocol[use].astype(np.uint8),
        size[use],
    )


def _network_layer(
    records: _Records,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Offset of the network header, its Ethernet type, and whether the link type is known."""
    link_type, data = records.link_type, records.data
    rows = np.arange(len(data))
    raw = np.isin(link_type, _RAW_LIKE)
    at = np.select(
        [link_type == _ETHERNET, link_type == _COOKED, link_type == _COOKED2], [14, 16, 20], 0
    ).astype(np.int64)
    type_at = np.select([link_type == _ETHERNET, link_type == _COOKED], [12, 14], 0)
    ether_type = data[rows, type_at].astype(np.int64) << 8 | data[rows, type_at + 1]
    version = data[:, 0] >> 4
    ether_type[raw] = np.select([version == 4, version == 6], [0x0800, 0x86DD], 0)[raw]
    for _ in range(2):
        tagged = ~raw & np.isin(ether_type, _VLAN)
        inner = data[rows, at + 2].astype(np.int64) << 8 | data[rows, at + 3]
        ether_type = np.where(tagged, inner, ether_type)
        at = np.where(tagged, at + 4, at)
    return at, ether_type, np.isin(link_type, _LINK_TYPES)


def _v6_key(words: list[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    key = np.zeros_like(words[0])
    for word in words:
        key = _mix(key ^ word)
    return key | np.uint64(1 << 63)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Splitmix64's finaliser: a bijection that spreads every bit."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
