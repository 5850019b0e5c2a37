"""007's agents: traceroutes for the connections that lose packets (007, section 4).

An agent notices a loss when the connection retransmits. The hosts' kernels report that for real
connections (`testbed.traffic.retransmissions`). Flows of given packets do not retransmit; for them
a loss is a packet that has not arrived after the longest time that any packet takes. The agent
then sends one traceroute with the connection's own 5-tuple, at most once an epoch and connection
and C_t times a second and host. The switches' data plane answers, at no more than T_max messages a
second (section 4.1). The settings ``TRACES_PER_S`` and ``ICMP_PER_S`` are these two limits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from testbed.network.network import Network
from testbed.network.schedules import Packets
from testbed.network.sources import Source
from testbed.probes.traceroute import MAX_HOPS, traceroute_frames
from testbed.traffic.flows import TCP, Traffic


@dataclass
class PathDiscovery:
    """All hosts' agents, as arrays over the flows of a run.

    ``traffic_source`` is the network's number of the data traffic and ``source`` the traceroutes';
    the network sets TTL and IP ID of each frame. ``per_s`` is C_t, and a host may be one epoch
    ahead of it.
    """

    network: Network
    traffic: Traffic
    traffic_source: int
    epoch_ns: int
    per_s: float
    source: int = -1
    packets: int = 0
    _templates: npt.NDArray[np.uint8] = field(init=False)
    _template_length: npt.NDArray[np.uint16] = field(init=False)
    _known: npt.NDArray[np.int64] = field(init=False)
    _sent_before: npt.NDArray[np.integer] = field(init=False)
    _traced_epoch: npt.NDArray[np.int64] = field(init=False)
    _spent: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        flows = self.traffic.n_flows
        every = np.arange(flows)
        frames = traceroute_frames(self.traffic, every, self.network.topology, max_hops=1)
        self._templates = frames[:, 0, :]
        self._template_length = np.full(flows, frames.shape[2], np.uint16)
        self._known = np.zeros(flows, np.int64)
        self._sent_before = np.zeros(flows, np.int64)
        self._traced_epoch = np.full(flows, -1, np.int64)
        self._spent = np.zeros(self.network.topology.n_hosts, np.int64)
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
        to_trace = to_trace[self._traced_epoch[to_trace] < now_ns // self.epoch_ns]
        chosen = self._within_budget(to_trace, now_ns)
        if len(chosen):
            self._traced_epoch[chosen] = now_ns // self.epoch_ns
            self.packets += len(chosen) * MAX_HOPS
            self.network.feed(self.source, self._frames(chosen, now_ns))

    @property
    def traced(self) -> npt.NDArray[np.bool_]:
        """Return which flows were traced at least once, bool[F]."""
        return self._traced_epoch >= 0

    def _within_budget(self, flows: npt.NDArray[np.int64], now_ns: int) -> npt.NDArray[np.int64]:
        """Return the first flows of each host that its budget C_t allows to trace by now."""
        budget = np.int64(self.per_s * (now_ns + self.epoch_ns) / 1e9) - self._spent
        host = self.traffic.src_host[flows]
        order = np.argsort(host, kind="stable")
        flows, host = flows[order], host[order]
        first = np.searchsorted(host, host, side="left")
        chosen = np.arange(len(host)) - first < budget[host]
        np.add.at(self._spent, host[chosen], 1)
        return np.sort(flows[chosen])

    def _frames(self, flows: npt.NDArray[np.int64], now_ns: int) -> Source:
        ttl = np.tile(np.arange(1, MAX_HOPS + 1, dtype=np.uint8), len(flows))
        # A host sends its traceroute packets back to back; 10 us apart keeps their order.
        time = now_ns + np.arange(len(ttl), dtype=np.uint64) % MAX_HOPS * 10_000
        order = np.argsort(time, kind="stable")
        return Source(
            packets=Packets(
                time[order].astype(np.uint64),
                np.repeat(flows, MAX_HOPS).astype(np.uint32)[order],
                ttl=ttl[order],
            ),
            templates=self._templates,
            template_length=self._template_length,
            src_host=self.traffic.src_host,
            dst_host=self.traffic.dst_host,
        )
