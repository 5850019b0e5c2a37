# SPDX-License-Identifier: Apache-2.0
"""Generated traffic: Poisson flow arrivals in steady state, sent in trains.

Every host sends ``load`` of its line rate on average from time 0 on: flows arrive as a Poisson
process, and those that arrived before the run and still have bytes to send are drawn from the
process's stationary distribution (the size a random byte sees, a uniform share of it left).

A flow sends at its own rate, in trains of 16 to 30 back-to-back full frames, as segmentation
offload makes them. The trains of a host are serialised by its NIC, so its frames never overlap.

Cost: 0.2 us a packet, when it is sent; 16 bytes a train, and about 100 while all are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from testbed.arrays import LongArray
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.schedules import Packets, block_ends
from testbed.traffic.distributions import FlowSizes, flow_sizes
from testbed.traffic.flows import MAX_FRAME, MIN_FRAME, TCP, UDP, Traffic, make_distinct

Pattern = Literal["uniform", "skewed"]

PAYLOAD = 1460  # bytes of a full frame
FRAME_HEADERS = MAX_FRAME - PAYLOAD
_WIRE_EXTRA = 24  # preamble, FCS and inter-frame gap
WIRE_BITS = 8 * (MAX_FRAME + _WIRE_EXTRA)  # of a full frame
# TSO takes 64 KB, which is 44 frames; with less, a flow of `PACKETS_AN_EPOCH` sends in each epoch
_TRAIN_FRAMES = (16, 30)
FAST_FLOWS = (0.02, 0.08)  # rates of flows as shares of the line rate: 20 to 80 Mb/s at 1 Gb/s
_UDP_SHARE = 0.05
_SERVICE_PORTS = np.array([80, 443, 2049, 3306, 6379, 8080, 9092, 11211, 50010], np.uint16)
_HOT_RACKS = 0.05
_HOT_TRAFFIC = 0.5
_MAX_UTILISATION = 0.95


class TrafficError(UserError):
    """The requested traffic cannot be generated. The message is one line."""


@dataclass(frozen=True)
class FlowArrivals:
    """Flows that are not yet cut into packets; all arrays are [F].

    Attributes:
        src, dst: Hosts, int32.
        start_s: The start of each flow in seconds, float64.
        payload: Its payload in bytes, float64.
        rate_bps: Its payload rate in bits per second, float64.
    """

    src: npt.NDArray[np.int32]
    dst: npt.NDArray[np.int32]
    start_s: npt.NDArray[np.float64]
    payload: npt.NDArray[np.float64]
    rate_bps: npt.NDArray[np.float64]

    @property
    def frames(self) -> npt.NDArray[np.float64]:
        """Return the number of frames of each whole flow, float64[F], as it may exceed an int64."""
        return np.ceil(self.payload / PAYLOAD)


@dataclass(frozen=True)
class FlowProcess:
    """Poisson arrivals of flows between the racks of a fabric, in steady state.

    Attributes:
        topology: The fabric whose hosts send.
        sizes: The distribution of flow sizes in payload bytes.
        arrivals: The number of new flows a second.
        rate_bps: The least and the greatest payload rate of a flow (log-uniform), bits a second.
        hot: The racks that exchange half of the traffic, int64[]; empty if there are none.
        locality: The share of the other traffic that goes to racks of the sender's pod; None if it
            goes to all other racks alike.
    """

    topology: Fabric
    sizes: FlowSizes
    arrivals: float
    rate_bps: tuple[float, float]
    hot: npt.NDArray[np.int64]
    locality: float | None = None

    @property
    def mean_duration_s(self) -> float:
        """Return the mean duration of a flow in seconds, 8 E[size] E[1/rate]."""
        low, high = self.rate_bps
        mean_of_inverse = (1 / low - 1 / high) / np.log(high / low) if high > low else 1 / low
        return float(8 * self.sizes.mean * mean_of_inverse)

    def rates(self, n: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Return random rates of ``n`` arriving flows in bits a second, float64[n]."""
        low, high = self.rate_bps
        return low * (high / low) ** rng.random(n)

    def ongoing(
        self, n: int, rng: np.random.Generator
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return rate and remaining payload of ``n`` flows that exist at a random instant.

        float64[n] each, in bits a second and bytes.
        """
        low, high = self.rate_bps
        # a flow is seen in proportion to its size and to 1/rate
        rate = 1 / (1 / high + (1 / low - 1 / high) * rng.random(n))
        return rate, self.sizes.quantile_by_bytes(rng.random(n)) * rng.random(n)

    def recorded(self, duration_s: float, most: float) -> float:
        """Return the share of a run's flows that `draw` draws to get ``most`` on average."""
        return min(1.0, most / (self.arrivals * (duration_s + self.mean_duration_s)))

    def draw(
        self, duration_s: float, rng: np.random.Generator, most: float = float("inf")
    ) -> FlowArrivals:
        """Return the flows of a run, or a uniform sample if more than ``most`` are expected."""
        arrivals = self.arrivals * self.recorded(duration_s, most)
        new = rng.poisson(arrivals * duration_s)
        rate = self.rates(new, rng)
        start = rng.random(new) * duration_s
        payload = self.sizes.quantile(rng.random(new))
        old = rng.poisson(arrivals * self.mean_duration_s)
        old_rate, left = self.ongoing(old, rng)
        src, dst = _end_points(self, new + old, rng)
        return FlowArrivals(
            src,
            dst,
            np.concatenate((np.zeros(old), start)),
            np.concatenate((left, payload)),
            np.concatenate((old_rate, rate)),
        )

    def pair_share(self) -> npt.NDArray[np.float64]:
        """Return the share of flows from each ToR to each ToR, float64[n_tors, n_tors], sum 1."""
        n, hot = self.topology.n_tors, self.hot
        share = np.full((n, n), 1 / (n * (n - 1)))
        if self.locality is not None:
            pods = _Pods.of(self.topology, self.locality)
            pod = pods.pod
            near, far = (each[pod] / n for each in pods.share_of_each_rack())
            share = np.where(pod[:, None] == pod, near[:, None], far[:, None])
        if len(hot):
            share *= 1 - _HOT_TRAFFIC
            share[np.ix_(hot, hot)] += _HOT_TRAFFIC / (len(hot) * (len(hot) - 1))
        np.fill_diagonal(share, 0.0)
        return share


def generate(
    topology: PacketFabric,
    workload: str,
    load: float,
    duration_s: float,
    seed: int,
    pattern: Pattern = "uniform",
    *,
    host_rate_bps: float = 1e9,
    flow_rate: tuple[float, float] = FAST_FLOWS,
    locality: float | None = None,
) -> Traffic:
    """Generate the packets of a run.

    Args:
        topology: The fabric. Hosts do not send within their rack, as that crosses no fabric link.
        workload: Flow-size distribution (`testbed.traffic.distributions.flow_sizes`).
        load: Mean share of the line rate that hosts send, above 0 and at most 0.95.
        duration_s: Length of the run; flows are cut there.
        seed: Equal arguments and seeds give equal traffic.
        pattern: ``uniform`` over hosts of other racks, or ``skewed``: 50 % of the traffic is among
            5 % of the racks (at least two), as in Flock's section 6.3.
        host_rate_bps: Line rate of the hosts' links.
        flow_rate: The lowest and the highest rate of a flow, as shares of the line rate.
        locality: The share of the traffic, but for that of hot racks, which goes to other racks of
            the sender's pod. Without, it goes to all other racks alike.

    Raises:
        TrafficError: An argument is out of range, or skewed traffic exceeds the hot hosts' links.
    """
    if not 0 < duration_s < 3600:
        raise TrafficError(
            f"a run of {duration_s:g} s is out of range: use more than 0 s, under 1 h"
        )
    rng = np.random.default_rng([seed, 0x7AF1C])
    process = flow_process(
        topology, workload, load, rng, pattern, host_rate_bps, flow_rate, locality
    )
    return send(process.draw(duration_s, rng), duration_s, host_rate_bps, rng)


def flow_process(
    topology: Fabric,
    workload: str,
    load: float,
    rng: np.random.Generator,
    pattern: Pattern = "uniform",
    host_rate_bps: float = 1e9,
    flow_rate: tuple[float, float] = FAST_FLOWS,
    locality: float | None = None,
) -> FlowProcess:
    """Return the process that `generate` draws flows from; arguments and errors are the same."""
    if not 0 < load <= _MAX_UTILISATION:
        raise TrafficError(
            f"LOAD={load:g} is out of range: use 0 to {_MAX_UTILISATION}, such as 0.5"
        )
    if topology.n_tors < 2:
        raise TrafficError(f"{topology.title} has no two racks to send between")
    sizes = flow_sizes(workload)
    # headers and gaps count as load: what a link carries, not what applications hand over
    wire_bytes = sizes.mean * (MAX_FRAME + _WIRE_EXTRA) / PAYLOAD
    return FlowProcess(
        topology,
        sizes,
        arrivals=topology.n_hosts * load * host_rate_bps / 8 / wire_bytes,
        rate_bps=payload_rates(flow_rate, host_rate_bps),
        hot=_hot_racks(topology, load, rng) if pattern == "skewed" else np.empty(0, np.int64),
        locality=locality,
    )


def payload_rates(shares: tuple[float, float], host_rate_bps: float) -> tuple[float, float]:
    """Return the rates at which flows send payload, bits a second, from their shares of the line
    rate."""
    low, high = (share * host_rate_bps * PAYLOAD / (MAX_FRAME + _WIRE_EXTRA) for share in shares)
    return low, high


def _hot_racks(topology: Fabric, load: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    racks = max(2, round(_HOT_RACKS * topology.n_tors))
    share = racks / topology.n_tors
    busiest = load * ((1 - _HOT_TRAFFIC) + _HOT_TRAFFIC / share)
    if busiest > _MAX_UTILISATION:
        most = np.floor(100 * load * _MAX_UTILISATION / busiest) / 100
        raise TrafficError(
            f"LOAD={load:g} with skewed traffic makes the {racks} hot racks' hosts send "
            f"{busiest:.2f} of their line rate: use at most {most:g}"
        )
    return np.sort(rng.choice(topology.n_tors, racks, replace=False))


@dataclass(frozen=True)
class _Pods:
    """The racks of each pod.

    Attributes:
        pod: The pod of each rack, int32[n_tors].
        racks: The number of racks in each pod, int64[pods].
        near: The probability that a flow from a rack of each pod stays in the pod, float64[pods]:
            0 where a pod has one rack, 1 where there is one pod.
    """

    pod: npt.NDArray[np.int32]
    racks: npt.NDArray[np.int64]
    near: npt.NDArray[np.float64]

    @classmethod
    def of(cls, topology: Fabric, locality: float) -> _Pods:
        """Return the pods of a fabric, for a share of traffic that stays within them."""
        pod = topology.pod[: topology.n_tors]
        racks = np.bincount(pod)
        near = np.where(racks == 1, 0.0, np.where(racks == len(pod), 1.0, locality))
        return cls(pod, racks, near)

    def share_of_each_rack(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the share of a rack's traffic that each other rack of its pod gets, and each rack
        of another pod, float64[pods] each."""
        others = len(self.pod) - self.racks
        return self.near / np.maximum(self.racks - 1, 1), (1 - self.near) / np.maximum(others, 1)

    def receivers(
        self, src: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        """Return a random rack other than ``src``, int64[n], for each of these racks."""
        by_pod = np.argsort(self.pod, kind="stable")
        place = np.argsort(by_pod)  # of each rack in this order
        first = np.cumsum(self.racks) - self.racks
        pod = self.pod[src]
        begin, racks = first[pod], self.racks[pod]
        near = rng.random(len(src)) < self.near[pod]
        drawn = rng.integers(np.where(near, racks - 1, len(self.pod) - racks))
        inside = begin + drawn + (drawn >= place[src] - begin)
        outside = drawn + np.where(drawn >= begin, racks, 0)
        return by_pod[np.where(near, inside, outside)]


def _end_points(
    process: FlowProcess, n: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return random senders and receivers in different racks, int32[n] each.

    They are uniform, except that a share of the flows stays in its pod, if the process says so, and
    that hot racks exchange half of the traffic.
    """
    topology, hot = process.topology, process.hot
    rack = topology.hosts_per_tor

    def among(hosts: int, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return random senders and receivers among the first ``hosts`` hosts, int64[count] each.

        The two hosts of a pair are in different racks.
        """
        src = rng.integers(hosts, size=count)
        dst = rng.integers(hosts - rack, size=count)
        rack_start = src // rack * rack
        return src, np.where(dst >= rack_start, dst + rack, dst)

    if process.locality is None:
        src, dst = among(topology.n_hosts, n)
    else:
        src = rng.integers(topology.n_hosts, size=n)
        to = _Pods.of(topology, process.locality).receivers(src // rack, rng)
        dst = to * rack + rng.integers(rack, size=n)
    if len(hot):
        hosts = (hot[:, None] * rack + np.arange(rack)).ravel()
        chosen = np.flatnonzero(rng.random(n) < _HOT_TRAFFIC)
        hot_src, hot_dst = among(len(hosts), len(chosen))
        src[chosen], dst[chosen] = hosts[hot_src], hosts[hot_dst]
    return src.astype(np.int32), dst.astype(np.int32)


def send(
    flows: FlowArrivals, duration_s: float, host_rate_bps: float, rng: np.random.Generator
) -> Traffic:
    """Return the traffic of flows, cut into trains of frames that the hosts' NICs serialise.

    Args:
        flows: The flows.
        duration_s: The length of the run in seconds; flows are cut there.
        host_rate_bps: The line rate of the hosts' links in bits a second.
        rng: Draws the trains' sizes and phases, ports and protocols.
    """
    n_flows = len(flows.src)
    full = rng.integers(_TRAIN_FRAMES[0], _TRAIN_FRAMES[1] + 1, n_flows)
    interval_s = full * PAYLOAD * 8 / flows.rate_bps
    # what does not fit into the run is never made: some flows are longer than memory
    fitting = np.ceil((duration_s - flows.start_s) / interval_s) * full
    wanted = flows.frames
    frames = np.minimum(wanted, fitting).astype(np.int64)
    whole = wanted <= fitting
    tail = np.where(whole, flows.payload - (frames - 1) * PAYLOAD, PAYLOAD)
    tail_size = np.maximum(np.ceil(tail) + FRAME_HEADERS, MIN_FRAME).astype(np.uint16)

    train_flow, nth = expand(-(-frames // full))
    phase = nth + rng.random(len(nth))
    ready_ns = ((flows.start_s[train_flow] + phase * interval_s[train_flow]) * 1e9).astype(np.int64)
    length = np.minimum(full[train_flow], frames[train_flow] - nth * full[train_flow])
    last = nth * full[train_flow] + length == frames[train_flow]

    frame_ns = (MAX_FRAME + _WIRE_EXTRA) * 8e9 / host_rate_bps
    start_ns = serialise(
        flows.src[train_flow], ready_ns, np.ceil(length * frame_ns).astype(np.int64)
    )

    sent = frames_before(int(duration_s * 1e9) - start_ns, length, frame_ns)
    last_size = np.where(last & (sent == length), tail_size[train_flow], np.uint16(MAX_FRAME))
    kept = np.flatnonzero(sent)
    kept = kept[np.argsort(start_ns[kept], kind="stable")]

    sending = np.zeros(n_flows, bool)
    sending[train_flow[kept]] = True
    number = np.cumsum(sending, dtype=np.uint32) - np.uint32(1)
    n_sending = int(sending.sum())
    src, dst = flows.src[sending], flows.dst[sending]
    src_port = rng.integers(16384, 65536, n_sending).astype(np.uint16)
    dst_port = rng.choice(_SERVICE_PORTS, n_sending)
    protocol = np.where(rng.random(n_sending) < _UDP_SHARE, UDP, TCP).astype(np.uint8)
    make_distinct(rng, src, dst, src_port, dst_port, protocol)
    return Traffic(
        src_host=src,
        dst_host=dst,
        src_port=src_port,
        dst_port=dst_port,
        protocol=protocol,
        packets=Trains(
            start_ns[kept],
            number[train_flow[kept]],
            sent[kept].astype(np.uint16),
            last_size[kept],
            frame_ns,
        ),
    )


@dataclass(frozen=True)
class Trains:
    """The packets of T trains, a schedule (`testbed.network.schedules`) of 16 bytes a train.

    Attributes:
        start_ns: When the first frame of each train is sent, int64[T], sorted.
        flow: The flow of each train, uint32[T].
        frames: The number of frames of each train, uint16[T], at least 1.
        last_size: The bytes of its last frame, uint16[T]; the others have `MAX_FRAME`.
        frame_ns: The time from frame to frame in ns.
    """

    start_ns: LongArray
    flow: npt.NDArray[np.uint32]
    frames: npt.NDArray[np.uint16]
    last_size: npt.NDArray[np.uint16]
    frame_ns: float

    def __len__(self) -> int:
        return int(self.frames.sum(dtype=np.int64))

    def blocks(self) -> Iterator[Packets]:
        """Yield the frames of all trains in blocks, in the order of time."""
        longest = int(self.frames.max(initial=1) * self.frame_ns) + 1
        end = int(self.start_ns.max(initial=0)) + longest
        begin = 0
        for until in block_ends(len(self), end):
            first, last = np.searchsorted(self.start_ns, (begin - longest, min(until, end)))
            yield self._block(slice(first, last), begin, min(until, end), until)
            begin = until

    def _block(self, some: slice, begin: int, end: int, until: int) -> Packets:
        """Return the frames of some trains that are sent from ``begin`` to before ``end`` (ns)."""
        start, frames = self.start_ns[some], self.frames[some]
        gone = frames_before(begin - start, frames, self.frame_ns)
        left = frames_before(end - start, frames, self.frame_ns)
        train, position = expand(left - gone)
        position += gone[train]
        time = start[train] + (position * self.frame_ns).astype(np.int64)
        size = np.full(len(time), MAX_FRAME, np.uint16)
        over = (left == frames) & (left > gone)
        size[np.cumsum(left - gone)[over] - 1] = self.last_size[some][over]
        order = _in_order(time, begin)
        return Packets(
            time[order].view(np.uint64), self.flow[some][train[order]], size[order], None, until
        )


def _in_order(time: LongArray, begin: int) -> LongArray:
    """Return the indices that sort ``time``, whose values are at least ``begin``, stably.

    It is a radix sort by 16 bits at a time, which takes a third of the time of a merge sort.
    """
    passed = (time - begin).view(np.uint64)
    order = np.argsort(passed.astype(np.uint16), kind="stable")
    for shift in range(16, int(passed.max(initial=0)).bit_length(), 16):
        digits = (passed >> np.uint64(shift)).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
    return order


def frames_before(
    passed_ns: LongArray, frames: npt.NDArray[np.integer], frame_ns: float
) -> LongArray:
    """Return how many frames of each train are sent within a time after its start, int64[T].

    Frame ``p`` is sent ``int(p * frame_ns)`` ns after the first.
    """
    n = np.ceil(passed_ns / frame_ns).astype(np.int64)
    n += (n * frame_ns).astype(np.int64) < passed_ns  # the quotient was rounded
    n -= ((n - 1) * frame_ns).astype(np.int64) >= passed_ns
    return np.clip(n, 0, frames)


def expand(counts: LongArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the owner, and the position within it, of each of ``counts.sum()`` items, int32[]."""
    owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    first = (np.cumsum(counts) - counts).astype(np.int32)
    return owner, np.arange(len(owner), dtype=np.int32) - first[owner]


def serialise(host: npt.NDArray[np.int32], ready_ns: LongArray, busy_ns: LongArray) -> LongArray:
    """Return when each train starts if a host sends one at a time, as they become ready, int64[T].

    This is Lindley's recursion without a loop: a train ends at the maximum, over the trains i up to
    it, of ready_i plus all work from i on. Hosts are placed one after another on one time axis, so
    far apart that they do not interact.

    Args:
        host: The host of each train, int32[T].
        ready_ns: When each train is ready, int64[T].
        busy_ns: How long it occupies the NIC, int64[T].
    """
    order = np.lexsort((ready_ns, host))
    apart = int(ready_ns.max(initial=0)) + int(busy_ns.sum()) + 1
    offset = host[order].astype(np.int64) * apart
    busy = busy_ns[order]
    before = np.cumsum(busy) - busy
    start = np.maximum.accumulate(ready_ns[order] + offset - before) + before - offset
    result = np.empty_like(start)
    result[order] = start
    return result
