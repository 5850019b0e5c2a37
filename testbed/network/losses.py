# SPDX-License-Identifier: Apache-2.0
"""Packets that the emulator itself lost, as opposed to those lost to injected faults.

On a busy machine a network of processes drops packets: sockets overflow, processes stall. A link
that lost packets in this way has really lost them, and a method that blames it is right, although
no fault was injected. Most are counted where they are lost: by a socket, a cable's interface, a
port of a soft switch. The others are found by conservation: on each cable, the packets that its
interface sent minus those that the switch at its other end began to process, and in each switch,
what it began to process minus what it sent or dropped for a cause. A switch counts what it began to
process, and what ended in it by cause (`testbed.dataplane.endings`). No packet of a run is without
a place.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from testbed.arrays import LongArray
from testbed.control.switch import for_each
from testbed.dataplane import INGRESS_FAULT
from testbed.dataplane.endings import ANSWERED, ARRIVED, ENDINGS
from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.network import EmulatorDrops
from testbed.network.nodes import Nodes
from testbed.network.packet_sockets import PacketSockets

if TYPE_CHECKING:
    from testbed.control.remote.switch import RemoteSwitch


_COUNTERS = ENDINGS | {"fault": INGRESS_FAULT.dropped}
"""The counters of packets that end in a switch, by cause; faults at its egress ports end packets on
a link."""

_BEFORE_ARRIVAL = ("corrupt", "malformed")
"""Causes for which a packet ends before a switch counts that it arrived."""

_AFTER_ARRIVAL = [cause for cause in _COUNTERS if cause not in (ANSWERED, *_BEFORE_ARRIVAL)]


@dataclass(frozen=True)
class _Cables:
    """Every directed cable: the fabric's links in order, then hosts to ToRs, then ToRs to hosts.

    ``sender`` is a node's name and ``interface`` where its cable begins; ``switch`` and ``port``
    are where it ends, -1 at a host.
    """

    sender: list[str]
    interface: list[str]
    switch: list[int]
    port: list[int]
    name: list[str]


@dataclass(frozen=True)
class Ended:
    """Packets that ended in switches, and were counted there.

    Attributes:
        by_cause: Packets of each cause of `ENDINGS`; ``answered`` are those that a switch replaced
            by an ICMP message of its own.
        corrupted: Packets that arrived corrupted on each directed link, int64[n_links].
        from_hosts: Packets that P4 fault tables dropped on each host's link to its ToR, where it
            ends, int64[n_hosts].
    """

    by_cause: dict[str, int]
    corrupted: LongArray
    from_hosts: LongArray


@dataclass
class Losses:
    """Compares the packets sent on each cable with those that arrived, from `begin` on.

    Args:
        topology: The fabric.
        nodes: Its nodes.
        controls: The control of each switch.
        sockets: The packet sockets of each switch.
    """

    topology: PacketFabric
    nodes: Nodes
    controls: Sequence[RemoteSwitch]
    sockets: list[PacketSockets]
    _cables: _Cables = field(init=False)
    _at_death: dict[int, LongArray] = field(default_factory=dict)
    _inside_before: LongArray = field(init=False)  # of switches, as in `_counted_inside`
    _lost_with_restarts: LongArray = field(init=False)
    _restarted: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._cables = _cables(self.topology)
        self._begin = self._sent()
        self._arrived_before = self._arrived([{}] * self.topology.n_switches)
        self._inside_before = np.zeros(self._shape, np.int64)
        self._lost_with_restarts = np.zeros(self._shape, np.int64)

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.topology.n_switches, len(_COUNTERS) + 1, self.topology.n_ports + 1

    def begin(self) -> None:
        """Start counting now: packets lost while the network came up do not count."""
        self._begin = self._sent()
        self._arrived_before = self._arrived(self._began())
        self._inside_before = self._counted_inside()

    def died(self, switch: int) -> None:
        """Note that the switch with this number died: all packets to it are lost from now on."""
        sent, _ = self._sent()
        with self._lock:
            self._at_death[switch] = sent

    def restarted(self, switch: int) -> None:
        """Note that a switch restarts: its counters of arrived packets are lost, and it drops
        packets until its entries are restored, which it does not count."""
        self._lost_with_restarts[switch] = self._counted_inside()[switch]
        self._restarted.add(switch)

    def ended(self) -> Ended:
        """Return the packets that ended in switches so far, by cause."""
        counts = (self._counted_inside() - self._inside_before)[:, :-1]
        topology, by_cause = self.topology, counts.sum(axis=(0, 2)).tolist()
        corrupt, fault = (list(_COUNTERS).index(cause) for cause in ("corrupt", "fault"))
        corrupted = counts[topology.link_dst, corrupt, topology.link_dst_port]
        from_hosts = counts[topology.host_tor, fault, topology.host_port]
        return Ended(dict(zip(_COUNTERS, by_cause, strict=True)), corrupted, from_hosts)

    def sent_by_hosts(self) -> int:
        """Return the packets that hosts have sent so far, with those that a cable refused."""
        sent, refused = (now - then for now, then in zip(self._sent(), self._begin, strict=True))
        hosts = slice(self.topology.n_links, self.topology.n_links + self.topology.n_hosts)
        return int((sent + refused)[hosts].sum())

    def _counted_inside(self) -> LongArray:
        """Return what each switch counted of the packets that ended in it: for each cause of
        `_COUNTERS` by ingress port, then what could not be sent, by egress port; int64 of `_shape`.
        It is 0 for a switch that does not answer."""
        ports = range(1, self.topology.n_ports + 1)

        def one(control: RemoteSwitch) -> LongArray:
            """Return the counts of one switch, by cause and port."""
            counts = np.zeros(self._shape[1:], np.int64)
            if (ended := control.counts(list(_COUNTERS.values()), ports)) is not None:
                counts[:-1, 1:] = ended
            for port, packets in (control.unsent() or {}).items():
                counts[-1, port] = packets
            return counts

        return np.array(for_each(self.controls, one)) + self._lost_with_restarts

    def _began(self) -> list[dict[int, int] | None]:
        """Return the packets that each switch began to process, by ingress port; None for a switch
        that does not answer."""
        ports = range(1, self.topology.n_ports + 1)

        def one(control: RemoteSwitch) -> dict[int, int] | None:
            """Return the packets of one switch."""
            counts = control.counts([ARRIVED], ports)
            return None if counts is None else dict(zip(ports, counts[0].tolist(), strict=True))

        return for_each(self.controls, one)

    def count(
        self,
        host_drops: LongArray,
        gone: npt.NDArray[np.uint64],
        quiet: bool,
    ) -> EmulatorDrops:
        """Return the packets lost so far, a row for each place that lost some.

        Args:
            host_drops: Packets that the socket of each host's agent dropped, int64[n_hosts].
            gone: Packets that faults dropped on each directed link, uint64[n_links + 2 * n_hosts]
                in the order of `testbed.fabric.host_links`; where a switch is at the link's begin,
                it had processed them.
            quiet: Whether no packet is in flight, so that what has not arrived is lost. Otherwise
                only packets known to be dropped count.
        """
        sent, refused = (now - then for now, then in zip(self._sent(), self._begin, strict=True))
        answers = self._began()
        inside = self._counted_inside() - self._inside_before
        for switch in self._restarted:
            answers[switch] = None
        arrived = self._arrived(answers) - self._arrived_before
        dropped = self._socket_drops(host_drops)
        unprocessed = self._by_ingress(inside, _BEFORE_ARRIVAL)
        ends = np.array(self._cables.switch)
        answered = np.array(
            [switch >= 0 and answers[switch] is not None for switch in ends.tolist()]
        )
        known = np.where(answered & quiet, dropped + unprocessed, 0)
        missing = np.where(answered & quiet, np.maximum(sent - arrived - known, 0), 0)
        dead = np.zeros_like(sent)
        with self._lock:
            for switch, then in self._at_death.items():
                dead[ends == switch] += (sent + self._begin[0] - then)[ends == switch]
        unsent, lost = self._unsent(inside), np.zeros(self.topology.n_switches, np.int64)
        if quiet:
            lost = self._inside(answers, sent, dropped, gone, inside)
            # What a cable refuses the kernel may also tell the sender, which then counts it, too:
            # since Linux 6.6 or so.
            sender = self._senders
            twice = np.where((sender >= 0) & (lost[sender] < 0), np.minimum(unsent, refused), 0)
            unsent = unsent - twice
            np.add.at(lost, sender[sender >= 0], twice[sender >= 0])
        found = {
            "cable": refused,
            "socket": dropped,
            "port": unsent,
            "switch": missing,
            "dead": dead,
        }
        rows = [
            (cable, where, int(packets[cable]))
            for where, packets in found.items()
            for cable in np.flatnonzero(packets > 0).tolist()
        ]
        restarted = self._restarted - set(self._at_death)
        return self._table(
            sorted(rows),
            [
                (name, "restart" if switch in restarted else "queues", int(lost[switch]))
                for switch, name in enumerate(self.topology.switch_names)
                if lost[switch] > 0 and (answers[switch] is not None or switch in restarted)
            ],
        )

    @property
    def _senders(self) -> LongArray:
        """Return the number of the switch where each cable begins, -1 for a host."""
        number = {name: switch for switch, name in enumerate(self.topology.switch_names)}
        return np.array([number.get(name, -1) for name in self._cables.sender])

    def _by_ingress(self, inside: LongArray, causes: Sequence[str]) -> LongArray:
        """Return the packets that ended for some causes at the end of each cable."""
        rows = [list(_COUNTERS).index(cause) for cause in causes]
        counts = inside[:, rows].sum(axis=1)
        ends = zip(self._cables.switch, self._cables.port, strict=True)
        return np.array([counts[s, port] if s >= 0 else 0 for s, port in ends], np.int64)

    def _unsent(self, inside: LongArray) -> LongArray:
        """Return the packets that the switch at the begin of each cable could not send."""
        begins = zip(self._senders.tolist(), self._cables.interface, strict=True)
        ports = [(s, int(name.rpartition("eth")[2])) for s, name in begins]
        return np.array([inside[s, -1, port] if s >= 0 else 0 for s, port in ports], np.int64)

    def _table(
        self, rows: list[tuple[int, str, int]], inside: list[tuple[str, str, int]]
    ) -> EmulatorDrops:
        n_links, names = self.topology.n_links, self._cables.name
        first_host = n_links + self.topology.n_hosts
        host = {"socket": "host"}
        links = [cable if cable < n_links else -1 for cable, _, _ in rows]
        return EmulatorDrops(
            link=np.array(links + [-1] * len(inside), np.int32),
            place=[names[cable] for cable, _, _ in rows] + [name for name, _, _ in inside],
            where=[host.get(w, w) if cable >= first_host else w for cable, w, _ in rows]
            + [where for _, where, _ in inside],
            packets=np.array([packets for _, _, packets in (*rows, *inside)], np.int64),
        )

    def _sent(self) -> tuple[LongArray, LongArray]:
        """Return the packets that each cable's interface sent, and those that it could not send."""
        counts = {name: self.nodes.counters(name) for name in dict.fromkeys(self._cables.sender)}
        ends = zip(self._cables.sender, self._cables.interface, strict=True)
        both = np.array([counts[name][interface] for name, interface in ends], np.int64)
        return both[:, 0], both[:, 1]

    def _arrived(self, answers: Sequence[dict[int, int] | None]) -> LongArray:
        """Return the packets of each cable that its switch began to process, 0 if not known."""
        ends = zip(self._cables.switch, self._cables.port, strict=True)
        found = [(answers[s] or {}).get(port, 0) if s >= 0 else 0 for s, port in ends]
        return np.array(found, np.int64)

    def _socket_drops(self, host_drops: LongArray) -> LongArray:
        names = self.topology.switch_names
        counts = [sockets.dropped() for sockets in self.sockets]
        ends = zip(self._cables.switch, self._cables.port, strict=True)
        switches = [counts[s].get(f"{names[s]}-eth{port}", 0) for s, port in ends if s >= 0]
        return np.concatenate((np.array(switches, np.int64), host_drops))

    def _inside(
        self,
        answers: Sequence[dict[int, int] | None],
        sent: LongArray,
        dropped: LongArray,
        gone: npt.NDArray[np.uint64],
        inside: LongArray,
    ) -> LongArray:
        """Return the packets that came to each switch and that it neither sent nor dropped for a
        cause, int64[n_switches]; what it counted twice makes the number negative.

        What came is what the switch began to process; for one that restarted, which has lost that
        count, what was sent to it and did not overflow its sockets. A switch that died after a
        restart is left out: what was sent to it since is counted on the links to it.

        Args:
            answers: See `_began`; None for switches that restarted.
            sent: Packets that each cable's interface sent.
            dropped: Packets that the socket at each cable's end dropped.
            gone: Packets that faults dropped at each directed link.
            inside: What switches counted of the packets that ended in them, see `_counted_inside`.
        """
        restarted = self._restarted - set(self._at_death)
        receiver = np.array(self._cables.switch)
        came = self._arrived(answers) - self._arrived_before
        came = np.where(np.isin(receiver, list(restarted)), sent - dropped, came)
        left, refused = (now - then for now, then in zip(self._sent(), self._begin, strict=True))
        left += refused
        n_links, n_hosts = self.topology.n_links, self.topology.n_hosts
        left[:n_links] += gone[:n_links].astype(np.int64)
        left[n_links + n_hosts :] += gone[n_links + 1 :: 2].astype(np.int64)
        sender, size = self._senders, self.topology.n_switches
        lost = np.bincount(receiver[receiver >= 0], came[receiver >= 0], size)
        lost = lost - np.bincount(sender[sender >= 0], left[sender >= 0], size)
        after = [row for row, cause in enumerate(_COUNTERS) if cause in _AFTER_ARRIVAL]
        lost -= inside[:, [*after, -1]].sum(axis=(1, 2))
        before = [list(_COUNTERS).index(cause) for cause in _BEFORE_ARRIVAL]
        unprocessed = inside[:, before].sum(axis=(1, 2))
        return lost - np.where(np.isin(np.arange(size), list(restarted)), unprocessed, 0)


def _cables(topology: PacketFabric) -> _Cables:
    names, hosts = topology.switch_names, topology.host_names
    links = range(topology.n_links)
    tors = [names[tor] for tor in topology.host_tor]
    ports = topology.host_port.tolist()
    src = [names[int(switch)] for switch in topology.link_src]
    return _Cables(
        sender=[*src, *hosts, *tors],
        interface=[f"{src[link]}-eth{int(topology.link_src_port[link])}" for link in links]
        + [f"{host}-eth0" for host in hosts]
        + [f"{tor}-eth{port}" for tor, port in zip(tors, ports, strict=True)],
        switch=[*topology.link_dst.tolist(), *topology.host_tor.tolist(), *[-1] * len(hosts)],
        port=[*topology.link_dst_port.tolist(), *ports, *[-1] * len(hosts)],
        name=[
            *topology.link_names,
            *(f"{host}->{tor}" for host, tor in zip(hosts, tors, strict=True)),
            *(f"{tor}->{host}" for host, tor in zip(hosts, tors, strict=True)),
        ],
    )
