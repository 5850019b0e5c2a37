# SPDX-License-Identifier: Apache-2.0
"""Reads the TCP and UDP packets of a capture, and counts its other frames by reason.

Frames are parsed from their first bytes, many at a time, and take 60 bytes of memory a packet.

Wrong times and long pauses are found before times are used. One packet with the time 0, as a
damaged clock writes it, makes a capture of one second last for 50 years. A capture that was
interrupted for an hour is mostly silence. Scaled to the length of a run, both would send all their
packets at almost the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.traffic.flows import TCP, UDP
from testbed.traffic.frames import SNAP, TIMELESS, UNDEFINED, CaptureError, Frames, read_frames
from testbed.traffic.headers import IPV4, IPV6, Layers

BEYOND = "beyond the run's end"

_NEVER = (1 << 63) - 1  # in nanoseconds: no packet of the file has a time

MOST_PACKETS = 50_000_000
"""The most packets that are read; each takes 60 bytes of memory, twice that while sorting."""

_NULL, _ETHERNET, _LOOP, _COOKED, _COOKED2 = 0, 1, 108, 113, 276
_RAW = (12, 14, 101, 228, 229)
_HEADER = {_NULL: 4, _LOOP: 4, _ETHERNET: 14, _COOKED: 16, _COOKED2: 20} | dict.fromkeys(_RAW, 0)
"""Bytes before the network header, by link type."""
_TYPE_AT = {_ETHERNET: 12, _COOKED: 14, _COOKED2: 0}
"""Where the Ethernet type stands, in link headers that have one."""

_IPV4, _IPV6, _ARP, _MPLS = IPV4, IPV6, (0x0806, 0x8035), (0x8847, 0x8848)
_FAMILY4, _FAMILY6 = 2, (10, 24, 28, 30)  # AF_INET; AF_INET6 of Linux, the BSDs and macOS
_ICMP, _ICMP6 = 1, 58
_ESP = 50

TUNNEL = "tunnels of GRE or IP in IP (:inner replays what is in them)"
_CUT, _MALFORMED = "cut off by the snap length", "malformed"


@dataclass(frozen=True)
class Capture:
    """The TCP and UDP packets of a capture, in the order of time; all arrays [P].

    Attributes:
        time_ns: Since the first packet, uint64.
        src, dst: Addresses, uint64: IPv4 as it is, IPv6 as a hash with the top bit set.
        src_port, dst_port: uint16.
        protocol: 6 or 17, uint8.
        length: Bytes of the IP packet behind an untagged Ethernet header, int64.
        timeless: How many frames had no time of their own, and took that of their neighbour.
        pauses_ns: The pauses of the capture (`testbed.traffic.capture`), int64 [N]. They take
            no time in ``time_ns`` if the reader asked for that.
        frames: How many frames were read.
        refused: The number of frames that are not among the P packets, by reason.
        share: The share of the file that was read, less than 1 if it goes on long after
            ``duration_s``.
        seconds: The time from the first packet to the last that was read.
        tunnels: How many of the packets are, or were, within another one.
    """

    time_ns: npt.NDArray[np.uint64]
    src: npt.NDArray[np.uint64]
    dst: npt.NDArray[np.uint64]
    src_port: npt.NDArray[np.uint16]
    dst_port: npt.NDArray[np.uint16]
    protocol: npt.NDArray[np.uint8]
    length: npt.NDArray[np.int64]
    timeless: int
    pauses_ns: npt.NDArray[np.int64]
    frames: int
    refused: Mapping[str, int]
    share: float
    seconds: float
    tunnels: int = 0


def read_capture(
    path: str | Path,
    duration_s: float | None = None,
    progress: Callable[[float], None] = lambda share: None,
    *,
    inner: bool = False,
) -> Capture:
    """Read the TCP and UDP packets of a file.

    Packets that are far from all other frames in time are refused (`testbed.traffic.capture`).

    Args:
        path: The file.
        duration_s: Read the packets of so many first seconds. None: all, without pauses.
        progress: Receives the share of the file that was read, from 0 to 1.
        inner: Whether to read the packets within tunnels (`testbed.traffic.headers`).

    Raises:
        CaptureError: The file is missing, damaged, empty or no capture, holds no TCP or UDP, or
            more than `MOST_PACKETS` packets.
    """
    path = Path(path)
    refused: Counter[str] = Counter()
    limit_ns = None if duration_s is None else int(duration_s * 1e9)
    chunks: list[_Packets] = []
    frames, timeless, tunnels, share, first = 0, 0, 0, 1.0, None
    for chunk in read_frames(path, refused):
        if first is None:
            timed = chunk.time_ns[chunk.time_ns != TIMELESS]
            first = int(timed[~judge_times(timed).stray].min(initial=_NEVER))
        packets, several = _parse(chunk, refused, inner)
        chunks.append(packets)
        tunnels += several
        timeless += chunk.timeless
        frames, share = frames + len(chunk.time_ns), chunk.share
        progress(share)
        if frames > MOST_PACKETS:
            raise CaptureError(
                f"{path} holds more than {MOST_PACKETS:,} packets: keep its first ones with "
                f"editcap -r {path.name} part.pcap 1-{MOST_PACKETS}"
            )
        # a second of grace, as captures are not strictly in order; single times may be wrong
        if limit_ns is not None and int(np.median(chunk.time_ns)) - first > limit_ns + 10**9:
            break
    frames += refused[UNDEFINED]
    if not frames:
        raise CaptureError(f"{path} holds no packet: capture again, or use another file")
    if not any(len(chunk.time_ns) for chunk in chunks):
        raise CaptureError(
            f"{path} holds no TCP or UDP packet over IP ({listed(refused)}): "
            "use a capture of IP traffic"
        )
    time_ns, *fields = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    time_ns[time_ns == TIMELESS] = time_ns[time_ns != TIMELESS].min(initial=_NEVER)
    times = judge_times(time_ns)
    refused[STRAY] = int(np.count_nonzero(times.stray))
    begin, end = time_ns[~times.stray].min(), time_ns[~times.stray].max()
    if limit_ns is None:
        time_ns = times.without_pauses(time_ns)
    time_ns = time_ns - begin
    order = np.argsort(time_ns, kind="stable")
    order = order[~times.stray[order]]
    if limit_ns is not None:
        sound = len(order)
        order = order[time_ns[order] < max(limit_ns, 1)]
        refused[BEYOND] = sound - len(order)
    time_ns, *fields = (field[order] for field in (time_ns, *fields))
    found = {reason: n for reason, n in refused.items() if n}
    return Capture(
        time_ns.astype(np.uint64),
        *fields,
        timeless=timeless,
        pauses_ns=times.pauses_ns,
        frames=frames,
        refused=found,
        share=share,
        seconds=float(end - begin) / 1e9,
        tunnels=tunnels,
    )


def listed(counts: Mapping[str, int]) -> str:
    """Return numbers and what they count in words, the largest first: ``12 ARP, 3 ICMP``."""
    order = sorted((-n, what) for what, n in counts.items() if n)
    return ", ".join(f"{-n:,} {what}" for n, what in order)


class _Packets(NamedTuple):
    time_ns: npt.NDArray[np.int64]
    src: npt.NDArray[np.uint64]
    dst: npt.NDArray[np.uint64]
    src_port: npt.NDArray[np.uint16]
    dst_port: npt.NDArray[np.uint16]
    protocol: npt.NDArray[np.uint8]
    length: npt.NDArray[np.int64]


def _parse(frames: Frames, refused: Counter[str], inner: bool) -> tuple[_Packets, int]:
    """Return the TCP and UDP packets among frames, those within tunnels if ``inner``, and how many
    came in a tunnel; count the other frames in ``refused`` by reason."""
    data, captured = frames.data, frames.captured
    at, ether_type, known = _network_layer(frames)
    _count_link_types(frames.link_type[~known], refused)
    outer_at = at
    layers = Layers(data, at, ether_type)
    layers.find(inner)
    at, ether_type, l4, protocol = layers.at, layers.ether_type, layers.l4, layers.protocol
    word = layers.word

    def long(offset: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Return the 32-bit big-endian number at an offset in each frame, uint64[n]."""
        return (word(offset) << 16 | word(offset + 2)).astype(np.uint64)

    first = layers.byte(at)
    v4, v6 = layers.v4, layers.v6
    sound = np.where(v4, (first >= 0x45) & (first < 0x50), first >> 4 == 6)
    whole_ip = captured >= at + np.where(v4, 20, 40)
    cut = captured < frames.length
    rules = (  # the first that holds counts
        ("", ~known),  # counted above
        (_CUT, (captured < outer_at) & cut),
        (_MALFORMED, captured < outer_at),
        ("ARP", np.isin(ether_type, _ARP)),
        ("MPLS without IP", np.isin(ether_type, _MPLS)),
        ("not IP", ~v4 & ~v6),
        (_CUT, ~whole_ip & cut),
        (_MALFORMED, ~whole_ip | ~sound),
        ("encrypted (ESP)", protocol == _ESP),
        ("ICMP", protocol == np.where(v4, _ICMP, _ICMP6)),
        (TUNNEL, layers.tunnel & (protocol != UDP) & (not inner)),
        ("neither TCP nor UDP", (protocol != TCP) & (protocol != UDP)),
        ("later fragment", layers.later),
        (_CUT, (captured < l4 + 4) & cut),
        (_MALFORMED, captured < l4 + 4),
        (f"with headers of more than {SNAP} bytes", l4 + 4 > SNAP),
    )
    use = np.ones(len(data), np.bool_)
    for reason, holds in rules:
        if reason:
            refused[reason] += int(np.count_nonzero(use & holds))
        use &= ~holds
    tunnels = int(np.count_nonzero(use & layers.tunnel))
    src, dst = (
        np.where(v4, long(at + in_v4), _v6_key([long(at + in_v6 + 4 * i) for i in range(4)]))
        for in_v4, in_v6 in ((12, 8), (16, 24))
    )
    packets = _Packets(
        frames.time_ns[use],
        src[use],
        dst[use],
        word(l4)[use].astype(np.uint16),
        word(l4 + 2)[use].astype(np.uint16),
        protocol[use].astype(np.uint8),
        (frames.length - at + _HEADER[_ETHERNET])[use],
    )
    return packets, tunnels


def _count_link_types(unknown: npt.NDArray[np.int64], refused: Counter[str]) -> None:
    for link_type, n in zip(*np.unique(unknown, return_counts=True), strict=True):
        refused[f"of link type {link_type}"] += int(n)


def _network_layer(
    frames: Frames,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return each frame's offset of the network header, Ethernet type, and if its link is known.

    The Ethernet type is 0 if there is none; the last is whether the link type is supported.
    """
    link_type, data = frames.link_type, frames.data
    at, ether_type = np.zeros((2, len(data)), np.int64)
    for kind, header in _HEADER.items():
        at[link_type == kind] = header
    for kind, where in _TYPE_AT.items():
        those = link_type == kind
        ether_type[those] = data[those, where].astype(np.int64) << 8 | data[those, where + 1]
    version, raw = data[:, 0] >> 4, np.isin(link_type, _RAW)
    # the capturing machine's byte order: the family is in the first or in the last byte
    family = np.where(data[:, 1:3].any(axis=1), 0, data[:, 0] | data[:, 3])
    null = np.isin(link_type, (_NULL, _LOOP))
    ether_type[(raw & (version == 4)) | (null & (family == _FAMILY4))] = _IPV4
    ether_type[(raw & (version == 6)) | (null & np.isin(family, _FAMILY6))] = _IPV6
    return at, ether_type, np.isin(link_type, list(_HEADER))


def _v6_key(words: list[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    key = np.zeros_like(words[0])
    for word in words:
        key = mix(key ^ word)
    return key | np.uint64(1 << 63)


def mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return splitmix64's finaliser of each number, a bijection in which every bit affects all."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


STRAY = "far from all other frames in time"
"""The reason for refusing a packet whose time is far from those of all others."""

_LEAST_PAUSE_NS = 10**9
_TIMES_THE_REST = 10  # a pause lasts that many times as long as all the rest of the capture
_PACKETS_A_PAUSE = 100  # traffic is bursty: among few packets, any silence looks long
_FEWEST = 10  # packets that say anything of each other's times
_SHARE = 0.01  # of the largest part's packets; what has fewer, between pauses, is stray


class JudgedTimes(NamedTuple):
    """The stray packets and the pauses among P packets.

    Attributes:
        stray: Whether each packet is far from the others in time, bool[P].
        begins_ns: The time of the last packet before each pause, int64[N], ascending.
        ends_ns: The time of the first packet after each pause, int64[N].
    """

    stray: npt.NDArray[np.bool_]
    begins_ns: npt.NDArray[np.int64]
    ends_ns: npt.NDArray[np.int64]

    @property
    def pauses_ns(self) -> npt.NDArray[np.int64]:
        """Return the length of each pause in ns, int64[N]."""
        return self.ends_ns - self.begins_ns

    def without_pauses(self, time_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the times (int64[P], ns) with all pauses removed: later packets come earlier."""
        closed = np.concatenate(([0], np.cumsum(self.pauses_ns)))
        return time_ns - closed[np.searchsorted(self.ends_ns, time_ns, side="right")]


def judge_times(time_ns: npt.NDArray[np.int64]) -> JudgedTimes:
    """Return the pauses of a capture, and the packets that are far from all others.

    A pause is a silence of at least a second that is more than ten times as long as all that is
    left of the capture without the pauses. There is at most one for every hundred packets, or one,
    and none among fewer than ten packets.
    Of the parts between pauses, one with less than a hundredth of the largest part's packets is
    stray: its packets have wrong times.

    Args:
        time_ns: Times of the packets, not negative, in any order, int64 [P].
    """
    order = np.argsort(time_ns, kind="stable")
    ordered = time_ns[order]
    silence = np.diff(ordered)
    most = max(1, len(time_ns) // _PACKETS_A_PAUSE) if len(time_ns) >= _FEWEST else 0
    cuts = _longest(silence, most)
    parts = np.diff(np.concatenate(([0], cuts + 1, [len(ordered)])))
    is_stray = parts < _SHARE * parts.max(initial=0)
    stray = np.empty(len(time_ns), np.bool_)
    stray[order] = np.repeat(is_stray, parts)
    kept = np.flatnonzero(~is_stray)
    first = np.cumsum(parts) - parts
    before = first[kept[:-1]] + parts[kept[:-1]] - 1
    after = first[kept[1:]]
    return JudgedTimes(stray, ordered[before], ordered[after])


def _longest(silence: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Return the indices of the silences that are pauses, ascending."""
    most = min(most, len(silence))
    if not most:
        return np.zeros(0, np.int64)
    longest = np.argpartition(-silence, most - 1)[:most]
    longest = longest[np.argsort(-silence[longest], kind="stable")]
    length = silence[longest].astype(np.float64)
    rest = silence.sum(dtype=np.float64) - np.cumsum(length)
    pauses = (length >= _LEAST_PAUSE_NS) & (length > _TIMES_THE_REST * rest)
    n = int(np.flatnonzero(pauses).max(initial=-1)) + 1
    return np.sort(longest[:n])
