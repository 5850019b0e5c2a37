# SPDX-License-Identifier: Apache-2.0
"""The protocol of all networks, virtual or real, and the records that they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from testbed.errors import UserError
from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.sources import Source

DROP = np.dtype(
    [
        ("time_ns", "<u8"),
        ("tag", "<u4"),
        ("link", "<i4"),
        ("switch", "<u4"),
        ("cause", "u1"),
        ("counted", "u1"),
        ("parity", "u1"),
        ("source", "u1"),
    ]
)
"""A lost packet: ``tag`` is the number of its flow in ``source``; ``counted`` and ``parity`` are
its marks in the shim. ``link`` is -1 where no link is at fault."""


class NetworkError(UserError):
    """The network cannot be brought up. The message is one line that says what to do."""


def switch_seed(seed: int, switch: int) -> int:
    """Return the seed of a soft switch's random numbers in a run with ``seed``, on any backend."""
    return int(np.random.SeedSequence([seed, switch]).generate_state(1, np.uint64)[0])


@dataclass(frozen=True)
class Statistics:
    """Packet totals of a network at one moment.

    ``sent`` counts the hosts' packets and the ICMP messages switches originate; it equals
    ``delivered + fault_drops + queue_drops + ttl_drops + other_drops + in_flight``.
    """

    sent: int
    delivered: int
    fault_drops: int
    queue_drops: int
    ttl_drops: int
    other_drops: int
    misdelivered: int
    packet_hops: int
    in_flight: int


@dataclass(frozen=True)
class EmulatorDrops:
    """Packets that were lost without a fault, a row for each place that lost some.

    Attributes:
        link: The directed link, int32[N]; -1 where it is a host's cable, or not known.
        place: The cable's name, ``agg0_1->core2`` or ``h0_0_0->tor0_0``, or a switch's.
        where: ``cable``: its other end refused them; ``socket``: they did not fit into the buffer
            of the switch there; ``host``: of the host; ``port``: the switch where the link begins
            could not send them; ``dead``: the switch there had died; ``restart``: a switch lost
            them while it restarted, until its entries were restored. Nobody counted the others:
            ``switch``: they were sent on this cable, and the switch there did not begin to process
            them; ``queues``: a switch began to, and neither sent them nor dropped them for a cause.
        packets: int64[N].
    """

    link: npt.NDArray[np.int32]
    place: list[str]
    where: list[str]
    packets: npt.NDArray[np.int64]


@runtime_checkable
class OwnLosses(Protocol):
    """A real network, which loses packets by itself and whose switches count corrupted packets
    where they arrive."""

    def corrupted(self) -> npt.NDArray[np.uint64]:
        """Return the packets that arrived corrupted on each directed link, uint64[n_links]."""
        ...


@runtime_checkable
class CountsQueues(Protocol):
    """A network that knows how much waits in the queues of its links, and how long packets take."""

    def queue_depths(self) -> npt.NDArray[np.uint64] | None:
        """Return the most bytes that a packet found waiting on each directed fabric link since the
        last call, and their sum over all packets so far, uint64[2, n_links]; None if links have no
        rate."""
        ...

    def travel_us(self, number: int) -> npt.NDArray[np.float64] | None:
        """Return the mean time in us from a packet's sending to its arrival of each flow of a
        source, float64[F], nan for a flow without arrivals; None if links have no rate."""
        ...


@runtime_checkable
class Switchable(Protocol):
    """A real network, whose links, switches and hosts can be switched off and on."""

    def set_cable(self, a: str, b: str, up: bool) -> None:
        """Switch the cables between two nodes on or off."""
        ...

    def stop_switch(self, switch: int) -> None:
        """End a switch, until `start_switch`."""
        ...

    def start_switch(self, switch: int) -> None:
        """Start a switch that was stopped; `Network.answers` tells when it is up."""
        ...

    def stop_host(self, host: int) -> None:
        """Cut a host off, until `start_host`."""
        ...

    def start_host(self, host: int) -> None:
        """Let a host that was stopped reach the network again."""
        ...

    def switched_off(self) -> tuple[set[int], set[int]]:
        """Return the directed links that are switched off now, and the hosts that are cut off."""
        ...


class Network(Protocol):
    """The methods of every network; `testbed.network.virtual.VirtualNetwork` describes them."""

    @property
    def topology(self) -> PacketFabric:
        """Return the fabric that the network emulates."""
        ...

    @property
    def statistics(self) -> Statistics:
        """Return the packet totals at this moment."""
        ...

    @property
    def degraded(self) -> list[str]:
        """Return a line for each switch or node that died."""
        ...

    @property
    def now_ns(self) -> int:
        """Return the time since the run's start in nanoseconds."""
        ...

    def start(self) -> None:
        """Begin the run: the clock, `now_ns`, counts nanoseconds from here."""
        ...

    def add_source(self, source: Source) -> int:
        """Let hosts send a source's frames and return the source's number."""
        ...

    def feed(self, number: int, source: Source) -> None:
        """Give a source its next frames, of the same flows."""
        ...

    def run_until(self, time_ns: int) -> None:
        """Run, or wait, until a time in ns since `start`."""
        ...

    def drain(self) -> None:
        """Run, or wait, until all packets were sent and none is in flight."""
        ...

    def restart(self, switch: int) -> None:
        """Restart the switch with this number, which loses its entries and counters."""
        ...

    def answers(self, switch: int) -> bool:
        """Return True if the restarted switch with this number can be used again."""
        ...

    def sent(self, number: int) -> npt.NDArray[np.uint32]:
        """Return the packets that each flow of a source has sent, uint32[F]."""
        ...

    def delivered(self, number: int) -> npt.NDArray[np.uint32]:
        """Return the packets of each flow of a source that arrived, uint32[F]."""
        ...

    def lost(self, number: int, sent: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the packets that each flow of a source has lost of those that it had ``sent``,
        int64[F]; those under way are not lost."""
        ...

    def withheld(self) -> int | None:
        """Return the answers to traceroutes that switches withheld; None if they do not tell."""
        ...

    def replies(self) -> npt.NDArray[Any]:
        """Return the ICMP messages that hosts received, `REPLY` [n]."""
        ...

    def drops(self) -> npt.NDArray[Any]:
        """Return every lost packet that the network knows of, with the dtype `DROP`."""
        ...

    def link_packets(self) -> npt.NDArray[np.uint64]:
        """Return the packets sent on each directed fabric link, uint64[n_links]."""
        ...

    def fault_drops(self) -> npt.NDArray[np.uint64]:
        """Return the packets lost to faults of each fabric link, uint64[n_links]."""
        ...

    def queue_drops(self) -> npt.NDArray[np.uint64]:
        """Return the packets that full queues of each link dropped, uint64[n_links]."""
        ...

    def host_link_counts(self) -> npt.NDArray[np.uint64]:
        """Return the packets sent, dropped by faults and dropped by queues so far on each directed
        link of a host, uint64[3, 2 * n_hosts], in the order of `testbed.fabric.host_links`. What a
        fault drops at a host's ToR was sent on the link to it."""
        ...

    def emulator_drops(self, taken: npt.NDArray[np.uint64]) -> EmulatorDrops | None:
        """Return the packets that the emulator itself lost; None if it loses none."""
        ...
