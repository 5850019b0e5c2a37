# SPDX-License-Identifier: Apache-2.0
"""007's agents: traceroutes for the connections that lose packets (007, section 4).

An agent notices a loss when the connection retransmits. The hosts' kernels report that for real
connections (`testbed.traffic.retransmissions`). Flows of given packets do not retransmit; for them
a loss is a packet that has not arrived after the longest time that any packet takes. The agent
then sends one traceroute with the connection's own 5-tuple, at most once in 30 s (007's epoch,
which is not Canary's) and C_t times a second and host; other connections wait. The switches' data
plane answers, at no more than T_max messages a second (section 4.1). The settings ``TRACES_PER_S``
and ``ICMP_PER_S`` are these two limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from testbed.fabric.clos import Fabric
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.paths import Paths
from testbed.network.network import Network
from testbed.network.schedules import Packets
from testbed.network.sources import Source
from testbed.traffic.flows import TCP, Traffic
from testbed.traffic.packets import (
    ETHERNET,
    HEADER_BYTES,
    IPV4,
    headers,
    internet_checksum,
    put,
)

EPOCH_NS = 30_000_000_000
"""An epoch of 007, in which a connection is traced at most once."""


@dataclass
class PathDiscovery:
    """All hosts' agents, as arrays over the flows of a run.

    ``traffic_source`` is the network's number of the data traffic and ``source`` the traceroutes';
    the network sets TTL and IP ID of each frame. ``per_s`` is C_t; what a host does
    not use between two polls expires, as more at once would meet the limits of the switches.
    """

    network: Network
    traffic: Traffic
    traffic_source: int
    per_s: float
    source: int = -1
    packets: int = 0
    _most: int = field(init=False)
    _templates: npt.NDArray[np.uint8] = field(init=False)
    _template_length: npt.NDArray[np.uint16] = field(init=False)
    _known: npt.NDArray[np.int64] = field(init=False)
    _sent_before: npt.NDArray[np.integer] = field(init=False)
    _traced_epoch: npt.NDArray[np.int64] = field(init=False)
    _spent: npt.NDArray[np.int64] = field(init=False)
    _waiting: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        flows = self.traffic.n_flows
        every = np.arange(flows)
        self._most = max_hops(self.network.topology)
        frames = traceroute_frames(self.traffic, every, self.network.topology, most=1)
        self._templates = frames[:, 0, :]
        self._template_length = np.full(flows, frames.shape[2], np.uint16)
        self._known = np.zeros(flows, np.int64)
        self._sent_before = np.zeros(flows, np.int64)
        self._traced_epoch = np.full(flows, -1, np.int64)
        self._spent = np.zeros(self.network.topology.n_hosts, np.int64)
        self._waiting = np.empty(0, np.int64)
        self.source = self.network.add_source(self._frames(np.empty(0, np.int64), 0))

    def poll(self, now_ns: int, retransmitted: npt.NDArray[np.int64] | None = None) -> None:
        """Trace the connections that lost packets sent before the last poll.

        The interval between two calls must be longer than any packet is in the network.

        Args:
            now_ns: The time of the run in ns.
            retransmitted: Flows whose hosts' kernels have retransmitted since the last poll.
        """
        sent, delivered = self._sent_before, self.network.delivered(self.traffic_source)
        behind = np.flatnonzero(delivered < sent)
        lost = sent[behind].astype(np.int64) - delivered[behind]
        self._sent_before = self.network.sent(self.traffic_source).copy()
        to_trace = behind[(lost > self._known[behind]) & (self.traffic.protocol[behind] == TCP)]
        self._known[behind] = np.maximum(self._known[behind], lost)
        if retransmitted is not None:
            to_trace = np.union1d(to_trace, retransmitted)
        to_trace = to_trace[self._traced_epoch[to_trace] < now_ns // EPOCH_NS]
        to_trace = to_trace[~np.isin(to_trace, self._waiting)]
        chosen = self._within_budget(np.concatenate((self._waiting, to_trace)), now_ns)
        if len(chosen):
            self._traced_epoch[chosen] = now_ns // EPOCH_NS
            self.packets += len(chosen) * self._most
            self.network.feed(self.source, self._frames(chosen, now_ns))

    @property
    def traced(self) -> npt.NDArray[np.bool_]:
        """Return which flows were traced at least once, bool[F]."""
        return self._traced_epoch >= 0

    def _within_budget(self, flows: npt.NDArray[np.int64], now_ns: int) -> npt.NDArray[np.int64]:
        """Return the first flows of each host that its budget C_t allows to trace by now.

        The others wait."""
        granted = int(self.per_s * now_ns / 1e9) + 1
        budget = granted - self._spent
        host = self.traffic.src_host[flows]
        order = np.argsort(host, kind="stable")
        flows, host = flows[order], host[order]
        first = np.searchsorted(host, host, side="left")
        chosen = np.arange(len(host)) - first < budget[host]
        np.add.at(self._spent, host[chosen], 1)
        self._spent = np.maximum(self._spent, granted - 1)  # what is not used by now expires
        self._waiting = flows[~chosen]
        return np.sort(flows[chosen])

    def _frames(self, flows: npt.NDArray[np.int64], now_ns: int) -> Source:
        ttl = np.tile(np.arange(1, self._most + 1, dtype=np.uint8), len(flows))
        # A host sends its traceroute packets back to back; 10 us apart keeps their order.
        time = now_ns + np.arange(len(ttl), dtype=np.uint64) % self._most * 10_000
        order = np.argsort(time, kind="stable")
        return Source(
            packets=Packets(
                time[order].astype(np.uint64),
                np.repeat(flows, self._most).astype(np.uint32)[order],
                ttl=ttl[order],
            ),
            templates=self._templates,
            template_length=self._template_length,
            src_host=self.traffic.src_host,
            dst_host=self.traffic.dst_host,
        )


def max_hops(topology: Fabric) -> int:
    """Return the most switches on a path: 5 with core switches, 3 without."""
    return 2 * int(topology.tier.max()) + 1


_ICMP = 1
_QUOTED = ETHERNET + IPV4 + 8
_REPLY = _QUOTED + IPV4 + 8


def traceroute_frames(
    traffic: Traffic,
    flows: npt.NDArray[np.integer],
    topology: PacketFabric,
    most: int | None = None,
) -> npt.NDArray[np.uint8]:
    """Return a traceroute frame for each flow and TTL.

    The TTL is also in the IP ID, so that a reply identifies its hop. The TCP checksum is wrong, so
    that the receiving host ignores a frame that arrives. A UDP flow's frames keep its protocol,
    which ECMP hashes, and are 12 bytes longer than its headers.

    Args:
        traffic: The run's flows.
        flows: Which of them to trace, int[N].
        topology: The fabric.
        most: The highest TTL, by default that of the longest path; the first is 1.

    Returns:
        uint8[N, most, 54], complete with IP checksum.
    """
    some = replace(
        traffic,
        src_host=traffic.src_host[flows],
        dst_host=traffic.dst_host[flows],
        src_port=traffic.src_port[flows],
        dst_port=traffic.dst_port[flows],
        protocol=traffic.protocol[flows],
    )
    l4 = ETHERNET + IPV4
    length = HEADER_BYTES - ETHERNET
    tcp = some.protocol == TCP
    template, _ = headers(some, topology)
    template[~tcp, l4 + 5] = length - IPV4  # UDP's length

    pseudo = np.zeros((len(template), 12 + HEADER_BYTES - l4), np.uint8)
    pseudo[:, :8] = template[:, ETHERNET + 12 : l4]
    pseudo[:, 9] = some.protocol
    pseudo[:, 11] = length - IPV4
    pseudo[:, 12:] = template[:, l4:]
    wrong = internet_checksum(pseudo) ^ 0x5555
    put(template, l4 + 16, np.where(tcp, wrong, 0), 2)
    put(template, l4 + 6, np.where(tcp, 0, wrong), 2)  # in TCP half of a zero sequence number

    frames = np.repeat(template[:, None, :], most or max_hops(topology), axis=1)
    ttl = np.arange(1, frames.shape[1] + 1)
    put(frames, ETHERNET + 2, length, 2)
    put(frames, ETHERNET + 4, ttl, 2)
    put(frames, ETHERNET + 8, ttl, 1)
    put(frames, ETHERNET + 10, internet_checksum(frames[..., ETHERNET:l4]), 2)
    return frames


@dataclass(frozen=True)
class HopReplies:
    """ICMP time-exceeded messages, as parallel arrays [M].

    Attributes:
        switch: The switch that sent each message, int32.
        src_ip, dst_ip: The addresses of the quoted packet, uint32.
        src_port, dst_port: Its ports, uint16.
        protocol: Its IP protocol, uint8.
        ttl: The TTL that the quoted packet started with, int32.
    """

    switch: npt.NDArray[np.int32]
    src_ip: npt.NDArray[np.uint32]
    dst_ip: npt.NDArray[np.uint32]
    src_port: npt.NDArray[np.uint16]
    dst_port: npt.NDArray[np.uint16]
    protocol: npt.NDArray[np.uint8]
    ttl: npt.NDArray[np.int32]


def parse_time_exceeded(
    frames: Sequence[bytes] | npt.NDArray[np.uint8], topology: PacketFabric
) -> HopReplies:
    """Return the time-exceeded messages among received frames, skipping every other frame.

    Args:
        frames: Whole frames, as a list of bytes or as uint8[M, L]; shorter rows zero-padded.
        topology: The fabric, which gives the addresses of switches.
    """
    if isinstance(frames, np.ndarray):
        data = frames[:, :_REPLY]
        if data.shape[1] < _REPLY:
            data = np.zeros((0, _REPLY), np.uint8)
    else:
        whole = [frame[:_REPLY] for frame in frames if len(frame) >= _REPLY]
        data = np.frombuffer(b"".join(whole), np.uint8).reshape(-1, _REPLY)
    sender = _integer(data, ETHERNET + 12, 4).astype(np.uint32)
    order = np.argsort(topology.switch_ip)
    at = np.minimum(
        np.searchsorted(topology.switch_ip, sender, sorter=order), topology.n_switches - 1
    )
    switch = order[at].astype(np.int32)
    good = (
        (_integer(data, 12, 2) == 0x0800)
        & (data[:, ETHERNET] == 0x45)
        & (data[:, ETHERNET + 9] == _ICMP)
        & (data[:, ETHERNET + IPV4] == 11)
        & (data[:, ETHERNET + IPV4 + 1] == 0)
        & (data[:, _QUOTED] == 0x45)
        & (topology.switch_ip[switch] == sender)
    )
    data, switch = data[good], switch[good]
    l4 = _QUOTED + IPV4
    return HopReplies(
        switch=switch,
        src_ip=_integer(data, _QUOTED + 12, 4).astype(np.uint32),
        dst_ip=_integer(data, _QUOTED + 16, 4).astype(np.uint32),
        src_port=_integer(data, l4, 2).astype(np.uint16),
        dst_port=_integer(data, l4 + 2, 2).astype(np.uint16),
        protocol=data[:, _QUOTED + 9].copy(),
        ttl=_integer(data, _QUOTED + 4, 2).astype(np.int32),
    )


def assemble_paths(
    topology: PacketFabric, traffic: Traffic, flows: npt.NDArray[np.integer], replies: HopReplies
) -> Paths:
    """Return the directed links that, by the replies, each flow takes.

    The sender's ToR is known without a reply. Of a flow's equal-cost paths those stay that agree
    with its replies, in the order of hops; a link that they share is the flow's, up to the link
    where the trace ended. So in a fat-tree any one of the three upper switches gives the position
    of the aggregation switches on both sides, but only its own reply names a core switch. A reply
    of a switch that is on none of the paths, as after a change of routes, makes its hop unknown.
    Where there is but one path, no reply is needed.

    Returns:
        One path for each of ``flows``; a whole one has as many links as each of its equal-cost
        paths.
    """
    src = topology.host_tor[traffic.src_host[flows]]
    dst = topology.host_tor[traffic.dst_host[flows]]
    width = topology.path_counts(src, dst)
    part = np.cumsum(width) // _MOST_PATHS
    found = [
        _agreeing(topology, traffic, flows[part == i], replies, src[part == i], dst[part == i])
        for i in range(int(part.max(initial=0)) + 1)
    ]
    return Paths.from_padded(np.concatenate(found))


_MOST_PATHS = 2_000_000
"""Of flows whose traces are put together at a time: some 100 MB."""


def _agreeing(
    topology: PacketFabric,
    traffic: Traffic,
    flows: npt.NDArray[np.integer],
    replies: HopReplies,
    src: npt.NDArray[np.int32],
    dst: npt.NDArray[np.int32],
) -> npt.NDArray[np.int64]:
    """Return the links of each flow that are known, -1 for the others, int64[N, most links]."""
    most = max_hops(topology)
    sets = topology.path_sets(src, dst)
    first, owner, single = sets.ptr[:-1], sets.owner, sets.width == 1
    links = np.full((len(sets.paths), most - 1), -1, np.int32)
    padded = sets.paths.padded()
    links[:, : padded.shape[1]] = padded
    switches = np.full((len(links), most), -1, np.int32)
    switches[:, 0] = src[owner]
    switches[:, 1:] = np.where(links >= 0, topology.link_dst[links], -1)

    hops = _hops(topology, traffic, flows, replies, switches[first])
    reached = np.where(hops >= 0, np.arange(1, most + 1), 1).max(axis=1, initial=1)
    agrees = np.ones(len(links), np.bool_)
    contradicts = np.zeros(hops.shape, np.bool_)
    for hop in range(most):
        answered = hops[:, hop] >= 0
        still = agrees & (~answered[owner] | (switches[:, hop] == hops[owner, hop]))
        some = np.logical_or.reduceat(still, first) if len(first) else answered
        contradicts[:, hop] = ~some
        agrees = np.where(some[owner], still, agrees)

    largest = np.iinfo(np.int32).max
    if not len(first):
        return np.zeros((0, most - 1), np.int64)
    low = np.minimum.reduceat(np.where(agrees[:, None], links, largest), first)
    high = np.maximum.reduceat(np.where(agrees[:, None], links, -1), first)
    asked = np.arange(1, most) <= reached[:, None]
    sure = asked & ~contradicts[:, :-1] & ~contradicts[:, 1:] | single[:, None]
    return np.where((low == high) & sure, low, -1).astype(np.int64)


def host_rate_limit(topology: Fabric, t_max: float) -> float:
    """Return C_t, the number of traceroutes a second that a host may start (007, theorem 1).

    With the theorem's n0 ToRs and n1 aggregation switches a pod, n2 core switches, pods and H hosts
    a ToR; where there are two tiers, all are one pod and n1 alone counts. It is a bound for the way
    up to uniformly drawn destinations; the switches' own limit of ``t_max`` ICMP messages a second
    holds in any case.
    """
    tiers = np.bincount(topology.tier).tolist()
    if len(tiers) < 3:
        return t_max / (tiers[0] * topology.hosts_per_tor) * tiers[1]
    pods = len(np.unique(topology.pod[: topology.n_tors]))
    n0, n1, n2 = tiers[0] / pods, tiers[1] / pods, tiers[2]
    upper = n2 * (n0 * pods - 1) / (n0 * (pods - 1)) if pods > 1 else n1
    return t_max / (n0 * topology.hosts_per_tor) * min(n1, upper)


def _integer(data: npt.NDArray[np.uint8], at: int, width: int) -> npt.NDArray[np.int64]:
    """Return the big-endian integer at byte ``at`` of each row of uint8[M, L], int64[M]."""
    weights = 1 << np.arange(8 * (width - 1), -1, -8, dtype=np.int64)
    return data[:, at : at + width].astype(np.int64) @ weights


def _hops(
    topology: PacketFabric,
    traffic: Traffic,
    flows: npt.NDArray[np.integer],
    replies: HopReplies,
    some_path: npt.NDArray[np.int32],
) -> npt.NDArray[np.int32]:
    """Return the switch that answered for each flow and TTL, int32[N, hops]; -1 if none.

    ``some_path`` int32[N, hops] has the switches of one path of each flow, padded with -1: a reply
    of another tier than the switch at its hop is none.
    """
    most = some_path.shape[1]
    hops = np.full(some_path.shape, -1, np.int32)
    wanted = _flow_keys(
        topology.host_ip[traffic.src_host[flows]],
        topology.host_ip[traffic.dst_host[flows]],
        traffic.src_port[flows],
        traffic.dst_port[flows],
        traffic.protocol[flows],
    )
    found = _flow_keys(
        replies.src_ip, replies.dst_ip, replies.src_port, replies.dst_port, replies.protocol
    )
    if not len(wanted):
        return hops
    order = np.argsort(wanted, kind="stable")
    at = np.minimum(np.searchsorted(wanted, found, sorter=order), len(wanted) - 1)
    row = order[at]
    ttl = np.clip(replies.ttl, 1, most)
    there = some_path[row, ttl - 1]
    alike = (there >= 0) & (topology.tier[replies.switch] == topology.tier[there])
    good = (wanted[row] == found) & (ttl == replies.ttl) & alike
    hops[row[good], replies.ttl[good] - 1] = replies.switch[good]
    return hops


def _flow_keys(
    src_ip: npt.NDArray[np.uint32],
    dst_ip: npt.NDArray[np.uint32],
    src_port: npt.NDArray[np.uint16],
    dst_port: npt.NDArray[np.uint16],
    protocol: npt.NDArray[np.uint8],
) -> npt.NDArray[np.bytes_]:
    """Return 5-tuples as byte strings of 14 bytes, which can be sorted and compared."""
    rows = np.empty((len(src_ip), 14), np.uint8)
    for at, column, width in ((0, src_ip, 4), (4, dst_ip, 4), (8, src_port, 2), (10, dst_port, 2)):
        put(rows, at, column, width)
    rows[:, 12] = protocol
    rows[:, 13] = 1  # NumPy's byte strings ignore zeros at the end
    return rows.view("S14").ravel()
