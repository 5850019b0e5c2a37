# SPDX-License-Identifier: Apache-2.0
"""Replay of a capture: maps its packets onto hosts of a fabric and counts what is left out."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import LongArray, WordArray
from testbed.fabric.names import plain
from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.schedules import Packets
from testbed.traffic.capture import Capture, mix, read_capture
from testbed.traffic.flows import MAX_FRAME, MIN_FRAME, Traffic, make_distinct

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Account:
    """Counts of a capture's frames: ``frames`` is ``replayed`` plus the sum of ``refused``.

    Attributes:
        file: The capture's name.
        sha256: The hash of the file, in hexadecimal.
        fit: Whether its timing was stretched or squeezed to the run's length.
        frames: Frames read.
        replayed: Those that became packets of the run.
        refused: The others, by reason.
        as_ipv4: Of the replayed, how many were IPv6 and are sent as IPv4.
        shortened: Of the replayed, how many were longer than a frame here may be.
        share: The share of the file that was read.
        seconds: From its first packet to the last that was read, before any squeezing.
        timeless: Of the frames, how many had no time and took that of their neighbour.
        pauses: How many pauses the capture has (`testbed.traffic.capture`).
        pauses_s: How long they last together. With ``fit`` they are left out.
        factor: By how much the time between packets was stretched, or squeezed if less than 1.
    """

    file: str
    sha256: str
    fit: bool
    frames: int
    replayed: int
    refused: Mapping[str, int]
    as_ipv4: int
    shortened: int
    share: float
    seconds: float
    timeless: int
    pauses: int
    pauses_s: float
    factor: float

    def as_dict(self) -> dict[str, Any]:
        """Return the content of ``capture.json``: every field of the account by name."""
        return asdict(self)


def replay(
    path: str | Path,
    topology: PacketFabric,
    seed: int,
    duration_s: float,
    fit: bool = False,
    progress: Callable[[float], None] = lambda share: None,
    *,
    inner: bool = False,
) -> tuple[Traffic, Account]:
    """Read a capture and return it as traffic of the hosts, with an account of its frames.

    Args:
        path: pcap or pcapng, optionally gzipped, with microseconds or nanoseconds, of Ethernet, raw
            IP, BSD loopback or Linux cooked frames, with VLAN tags, MPLS labels, PPPoE or none.
        topology: The fabric.
        seed: Draws which address becomes which host.
        duration_s: The run's length.
        fit: Stretch or squeeze the capture to that, instead of using what fits into it.
        progress: Receives the share of the file that was read, from 0 to 1.
        inner: Whether to replay the packets within tunnels in place of the outer ones.

    Raises:
        testbed.traffic.capture.CaptureError: The file is missing, truncated, empty, no capture or
            too large, or holds no TCP or UDP.
    """
    path = Path(path)
    capture = read_capture(path, None if fit else duration_s, progress, inner=inner)
    time_ns, factor = _fitted(capture.time_ns, duration_s) if fit else (capture.time_ns, 1.0)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    account = Account(
        file=path.name,
        sha256=digest,
        fit=fit,
        frames=capture.frames,
        replayed=len(capture.time_ns),
        refused=capture.refused,
        as_ipv4=int(np.count_nonzero(capture.src >> np.uint64(63))),
        shortened=int(np.count_nonzero(capture.length > MAX_FRAME)),
        share=round(capture.share, 4),
        seconds=round(capture.seconds, 6),
        timeless=capture.timeless,
        pauses=len(capture.pauses_ns),
        pauses_s=round(float(capture.pauses_ns.sum(dtype=np.float64)) / 1e9, 6),
        factor=factor,
    )
    if capture.tunnels and not inner:
        log.warning(
            "%s of the packets of %s are tunnels (VXLAN, Geneve, ...) and are replayed as such: "
            "add :inner to the name for the packets within",
            f"{capture.tunnels:,}",
            plain(path.name),
        )
    if account.seconds == 0 and account.replayed > 1:
        log.warning(
            "all %s packets of %s have the same time: they are sent at once, and meters see one "
            "burst; capture with time stamps, or merge the times in with editcap -t",
            f"{account.replayed:,}",
            plain(path.name),
        )
    return onto_hosts(capture, time_ns, topology, seed), account


def _fitted(
    time_ns: npt.NDArray[np.uint64], duration_s: float
) -> tuple[npt.NDArray[np.uint64], float]:
    """Return the times scaled to the length of the run, and the factor.

    The last packet leaves at the latest in the last nanosecond.
    """
    length = float(time_ns[-1]) / 1e9
    if not length:
        return time_ns, 1.0
    factor = duration_s / length
    scaled = (time_ns * factor).astype(np.uint64)
    return np.minimum(scaled, np.uint64(int(duration_s * 1e9) - 1)), factor


def onto_hosts(
    capture: Capture, time_ns: npt.NDArray[np.uint64], topology: PacketFabric, seed: int
) -> Traffic:
    """Return the capture as traffic of hosts, with packets that are sent at ``time_ns``.

    `seats` says which address is which host. If two flows get the same 5-tuple, one gets another
    source port.
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
        keys = mix(keys ^ field.astype(np.uint64))
    _, first, flow = np.unique(keys, return_index=True, return_inverse=True)
    src, dst = capture.src[first], capture.dst[first]

    src_host, dst_host = seats(src, dst, np.bincount(flow, minlength=len(first)), topology, rng)
    flows = (
        src_host.astype(np.int32),
        dst_host.astype(np.int32),
        capture.src_port[first],
        capture.dst_port[first],
        capture.protocol[first],
    )
    make_distinct(rng, *flows)
    size = np.clip(capture.length, MIN_FRAME, MAX_FRAME).astype(np.uint16)
    return Traffic(*flows, Packets(time_ns, flow.astype(np.uint32), size))


def seats(
    src: WordArray,
    dst: WordArray,
    amount: npt.NDArray[Any],
    topology: PacketFabric,
    rng: np.random.Generator,
) -> tuple[LongArray, LongArray]:
    """Return the hosts that stand for the addresses of flows, int64[F] each.

    Addresses are assigned to hosts by falling amount of traffic, rack after rack, so that the
    busiest are spread. If two communicating addresses are in the same rack, the larger one moves to
    another rack for this pair, in both directions.

    Args:
        src, dst: The addresses of each flow as numbers, uint64[F].
        amount: The traffic of each flow, [F].
        topology: The fabric of the hosts.
        rng: Draws the order of the racks.
    """
    address, index = np.unique(np.concatenate((src, dst)), return_inverse=True)
    busy = np.bincount(index, weights=np.tile(amount, 2))
    racks = rng.permutation(topology.n_tors)
    rack = topology.hosts_per_tor
    places = racks * rack + np.arange(rack)[:, None]
    host_of = np.empty(len(address), np.int64)
    dealt = np.argsort(-busy, kind="stable")
    host_of[dealt] = places.ravel()[np.arange(len(address)) % topology.n_hosts]
    src_host, dst_host = host_of[index[: len(src)]], host_of[index[len(src) :]]

    together = src_host // rack == dst_host // rack
    moved = np.maximum(src, dst)
    hop = 1 + (mix(moved) % np.uint64(topology.n_tors - 1)).astype(np.int64)
    for host, is_moved in ((dst_host, dst == moved), (src_host, (src == moved) & (src != dst))):
        now = together & is_moved
        host[now] = (host[now] + rack * hop[now]) % topology.n_hosts
    return src_host, dst_host
