"""Generated traffic: Poisson flow arrivals in steady state, sent in trains.

Every host sends ``load`` of its line rate on average from time 0 on: flows arrive as a Poisson
process, and those that arrived before the run and still have bytes to send are drawn from the
process's stationary distribution (the size a random byte sees, a uniform share of it left).

A flow of some tens of Mb/s leaves as trains of 16 to 44 back-to-back full frames, as segmentation
offload makes them. The trains of a host are serialised by its NIC, so its frames never overlap.

Cost: 0.2 us a packet and about 60 bytes a packet at the peak, whatever the topology.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from testbed.topology import FatTree
from testbed.traffic.distributions import WORKLOADS, Workload, flow_sizes
from testbed.traffic.flows import MAX_FRAME, MIN_FRAME, TCP, UDP, Traffic, make_distinct

__all__ = ["Pattern", "TrafficError", "generate"]

Pattern = Literal["uniform", "skewed"]

_PAYLOAD = 1460
_HEADERS = MAX_FRAME - _PAYLOAD
_WIRE_EXTRA = 24  # preamble, FCS and inter-frame gap
_TRAIN_FRAMES = (16, 44)  # 44 * 1460 is the 64 KB that TSO takes
_FLOW_RATE = (0.02, 0.08)  # of the line rate, log-uniform: 20 to 80 Mb/s at 1 Gb/s
_UDP_SHARE = 0.05
_SERVICE_PORTS = np.array([80, 443, 2049, 3306, 6379, 8080, 9092, 11211, 50010], np.uint16)
_HOT_RACKS = 0.05
_HOT_TRAFFIC = 0.5
_MAX_UTILISATION = 0.95


class TrafficError(ValueError):
    """The traffic asked for cannot be generated. One line."""


@dataclass(frozen=True)
class _Flows:
    """Flows before packets: source and destination, first second, bytes, bits a second. [F]."""

    src: npt.NDArray[np.int32]
    dst: npt.NDArray[np.int32]
    start_s: npt.NDArray[np.float64]
    payload: npt.NDArray[np.float64]
    rate_bps: npt.NDArray[np.float64]


def generate(
    topology: FatTree,
    workload: Workload,
    load: float,
    duration_s: float,
    seed: int,
    pattern: Pattern = "uniform",
    host_rate_bps: float = 1e9,
) -> Traffic:
    """Generate the packets of a run.

    Args:
        topology: Its hosts send; nobody sends into its own rack, as that crosses no fabric link.
        workload: Flow-size distribution, see ``distributions``.
        load: Mean share of the line rate that hosts send, above 0 and at most 0.95.
        duration_s: Length of the run; flows are cut there.
        seed: Same arguments and seed, same traffic.
        pattern: ``uniform`` over hosts of other racks, or ``skewed``: 50 % of the traffic is among
            5 % of the racks (at least two), as in Flock's section 6.3.
        host_rate_bps: Line rate of the hosts' links.

    Raises:
        TrafficError: An argument is out of range, or skewed traffic exceeds the hot hosts' links.
    """
    if workload not in WORKLOADS:
        raise TrafficError(f"TRAFFIC={workload} is unknown: use {', '.join(WORKLOADS)}")
    if not 0 < load <= _MAX_UTILISATION:
        raise TrafficError(f"LOAD={load:g} is out of range: use 0 to {_MAX_UTILISATION}, as 0.5")
    if not 0 < duration_s < 3600:
        raise TrafficError(
            f"a run of {duration_s:g} s is out of range: use more than 0 s, under 1 h"
        )
    rng = np.random.default_rng([seed, 0x7AF1C])
    hot = _hot_hosts(topology, load, rng) if pattern == "skewed" else None
    flows = _draw_flows(topology, workload, load, duration_s, host_rate_bps, hot, rng)
    return _send(flows, duration_s, host_rate_bps, rng)


def _hot_hosts(topology: FatTree, load: float, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """Hosts of the hot racks, in rack order."""
    racks = max(2, round(_HOT_RACKS * topology.n_tors))
    share = racks / topology.n_tors
    busiest = load * ((1 - _HOT_TRAFFIC) + _HOT_TRAFFIC / share)
    if busiest > _MAX_UTILISATION:
        most = np.floor(100 * load * _MAX_UTILISATION / busiest) / 100
        raise TrafficError(
            f"LOAD={load:g} with skewed traffic makes the {racks} hot racks' hosts send "
            f"{busiest:.2f} of their line rate: use at most {most:g}"
        )
    hot = np.sort(rng.choice(topology.n_tors, racks, replace=False))
    return (hot[:, None] * topology.half + np.arange(topology.half)).ravel().astype(np.int32)


def _draw_flows(
    topology: FatTree,
    workload: Workload,
    load: float,
    duration_s: float,
    host_rate_bps: float,
    hot: npt.NDArray[np.int32] | None,
    rng: np.random.Generator,
) -> _Flows:
    sizes = flow_sizes(workload)
    # headers and gaps count as load: what a link carries, not what applications hand over
    wire_bytes = sizes.mean * (MAX_FRAME + _WIRE_EXTRA) / _PAYLOAD
    arrivals = topology.n_hosts * load * host_rate_bps / 8 / wire_bytes
    low, high = (
        share * host_rate_bps * _PAYLOAD / (MAX_FRAME + _WIRE_EXTRA) for share in _FLOW_RATE
    )

    new = rng.poisson(arrivals * duration_s)
    rate = low * (high / low) ** rng.random(new)
    start = rng.random(new) * duration_s
    payload = sizes.quantile(rng.random(new))

    # E[duration] = 8 E[size] E[1/rate]; a flow is seen in proportion to its size and to 1/rate
    mean_duration = 8 * sizes.mean * (1 / low - 1 / high) / np.log(high / low)
    old = rng.poisson(arrivals * mean_duration)
    old_rate = 1 / (1 / high + (1 / low - 1 / high) * rng.random(old))
    left = sizes.quantile_by_bytes(rng.random(old)) * rng.random(old)

    src, dst = _end_points(topology, new + old, hot, rng)
    return _Flows(
        src,
        dst,
        np.concatenate((np.zeros(old), start)),
        np.concatenate((left, payload)),
        np.concatenate((old_rate, rate)),
    )


def _end_points(
    topology: FatTree, n: int, hot: npt.NDArray[np.int32] | None, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Uniform over hosts of different racks: int32[n] each."""

    def among(hosts: int, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        src = rng.integers(hosts, size=count)
        dst = rng.integers(hosts - topology.half, size=count)
        rack_start = src // topology.half * topology.half
        return src, np.where(dst >= rack_start, dst + topology.half, dst)

    src, dst = among(topology.n_hosts, n)
    if hot is not None:
        chosen = np.flatnonzero(rng.random(n) < _HOT_TRAFFIC)
        hot_src, hot_dst = among(len(hot), len(chosen))
        src[chosen], dst[chosen] = hot[hot_src], hot[hot_dst]
    return src.astype(np.int32), dst.astype(np.int32)


def _send(
    flows: _Flows, duration_s: float, host_rate_bps: float, rng: np.random.Generator
) -> Traffic:
    """Cut flows into trains, serialise those on the NICs, and cut them into frames."""
    n_flows = len(flows.src)
    full = rng.integers(_TRAIN_FRAMES[0], _TRAIN_FRAMES[1] + 1, n_flows)
    interval_s = full * _PAYLOAD * 8 / flows.rate_bps
    # what does not fit into the run is never made: some flows are longer than memory
    fitting = np.ceil((duration_s - flows.start_s) / interval_s) * full
    wanted = np.ceil(flows.payload / _PAYLOAD)
    frames = np.minimum(wanted, fitting).astype(np.int64)
    whole = wanted <= fitting
    tail = np.where(whole, flows.payload - (frames - 1) * _PAYLOAD, _PAYLOAD)
    tail_size = np.maximum(np.ceil(tail) + _HEADERS, MIN_FRAME).astype(np.uint16)

    train_flow, nth = _expand(-(-frames // full))
    phase = nth + rng.random(len(nth))
    ready_ns = ((flows.start_s[train_flow] + phase * interval_s[train_flow]) * 1e9).astype(np.int64)
    length = np.minimum(full[train_flow], frames[train_flow] - nth * full[train_flow])
    last = nth * full[train_flow] + length == frames[train_flow]

    frame_ns = (MAX_FRAME + _WIRE_EXTRA) * 8e9 / host_rate_bps
    start_ns = _serialise(
        flows.src[train_flow], ready_ns, np.ceil(length * frame_ns).astype(np.int64)
    )

    packet_train, position = _expand(length)
    time_ns = start_ns[packet_train] + (position * frame_ns).astype(np.int64)
    size = np.full(len(packet_train), MAX_FRAME, np.uint16)
    final = (np.cumsum(length) - 1)[last]
    size[final] = tail_size[train_flow[last]]
    kept = np.flatnonzero(time_ns < int(duration_s * 1e9))
    kept = kept[np.argsort(time_ns[kept], kind="stable")]
    flow = train_flow[packet_train[kept]]

    sending = np.zeros(n_flows, bool)
    sending[flow] = True
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
        time_ns=time_ns[kept].astype(np.uint64),
        flow=number[flow].astype(np.uint32),
        size=size[kept],
    )


def _expand(
    counts: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Owner and position within the owner of each of ``counts.sum()`` items."""
    owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    first = (np.cumsum(counts) - counts).astype(np.int32)
    return owner, np.arange(len(owner), dtype=np.int32) - first[owner]


def _serialise(
    host: npt.NDArray[np.int32],
    ready_ns: npt.NDArray[np.int64],
    busy_ns: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """When each train starts, if a host sends one at a time in the order they become ready.

    Lindley's recursion without a loop: a train ends at max over the trains i before it of (ready_i
    + all work from i on). Hosts are laid one after another on one time axis, too far apart to meet.
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
