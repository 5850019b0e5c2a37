# SPDX-License-Identifier: Apache-2.0
"""The fat-tree of soft switches in one process and in virtual time.

The event loop is compiled C (`virtual.c`) on any number of threads; Python sets it up, feeds it
arrays and stops it when the controller has to act. A run depends on its inputs alone, not on the
clock or the number of threads.

A packet-hop costs little more than the switch program itself. Only packets in flight (bandwidth x
delay) are in memory; packets to be sent are made one block at a time.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from canary_softswitch import Program, Switch
from canary_softswitch.compiler.build import PACKETS, load_library, read_c
from testbed.dataplane import CAUSES, c_defines
from testbed.errors import UserError
from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.network import DROP, NetworkError, Statistics
from testbed.network.ranks import GivenRanks, Iterations
from testbed.network.schedules import FOREVER
from testbed.network.sources import JUMBO_MAX, REPLY, FedSource, Feed, Source

_NOWHERE = 0xFFFFFFFF

_QUEUE = 100  # no cause of the program's: the packet did not come that far
_FAULTS = [CAUSES["fault"], CAUSES["corrupt"]]
DROP_CAUSES = {number: name for name, number in CAUSES.items() if number} | {_QUEUE: "queue"}

_LINK = np.dtype(
    [
        ("dst", "<u4"),
        ("dst_port", "<u4"),
        ("to_host", "<u4"),
        ("owner", "<u4"),
        ("delay", "<u8"),
        ("rate", "<u8"),
        ("queue", "<u8"),
        ("busy_until", "<u8"),
        ("packets", "<u8"),
        ("place", "<u4"),
        ("ports", "<u4"),
    ]
)

_LONGEST_WINDOW_NS = 16_384
"""The longest window of events that is sorted at once: sorting many events of a switch is slow."""

_FRAME_BYTES = 128
"""FRAME_HEAD of `frames.h`: the bytes kept of a frame; a program must not read beyond them."""


_STATISTICS = (
    "sent",
    "delivered",
    "fault_drops",
    "queue_drops",
    "ttl_drops",
    "other_drops",
    "misdelivered",
    "packet_hops",
    "in_flight",
)


class _Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in _STATISTICS]


_POINTERS = (*("switches", "forward", "links", "port_link", "owner", "place", "boundary"),)
_NUMBERS = (
    *("n_switches", "n_links", "n_hosts", "n_parts"),
    *("host_link", "max_port", "head", "always"),
)
_ADAPTERS = ("adapters", "adapter")


class _Setup(ctypes.Structure):
    """The structure ``setup_t`` of `links.h`, which describes the network to the C code."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _POINTERS),
        ("window_ns", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in _NUMBERS),
        *((name, ctypes.c_void_p) for name in _ADAPTERS),
    ]


@dataclass(frozen=True)
class LinkModel:
    """Delay, rate and queue of every link; with ``rate_bps`` 0 a link is infinitely fast."""

    delay_ns: int = 5_000
    rate_bps: int = 0
    queue_bytes: int = 256 * 1514

    def __post_init__(self) -> None:
        if self.delay_ns < 1:
            raise UserError("the delay of a link must be at least 1 ns")

    @property
    def transit_ns(self) -> int:
        """Return the longest time in ns that a packet takes over a fabric link.

        It is the sum of waiting in a full queue, transmission and propagation.
        """
        wait = (self.queue_bytes + 2 * 1521) * 8e9 / self.rate_bps if self.rate_bps else 0
        return self.delay_ns + round(wait)


@dataclass(frozen=True)
class Adapters:
    """A soft switch in each host, on the host's end of its link: what the host sends and receives
    passes through it at once.

    Attributes:
        program: Their compiled program, loaded with its verdict as the observed field.
        switches: One for each host, in the order of the hosts.
    """

    program: Program
    switches: list[Switch]


class VirtualNetwork:
    """A fat-tree whose switches are soft switches and whose hosts send what they are given.

    Args:
        topology: The fabric.
        program: The compiled program, loaded with its verdict as the observed field.
        switches: One soft switch for each switch of the topology, in its order.
        links: Delay, rate and queue of every link.
        threads: The number of threads, at most one for each switch. While few packets are in
            flight, one of them works alone, which is faster.
        always: Whether all threads work at any time.
        adapters: The hosts' adapters; None if they have none.

    Raises:
        ValueError: A program may read more of a packet than is kept of it.
    """

    def __init__(
        self,
        topology: PacketFabric,
        program: Program,
        switches: list[Switch],
        links: LinkModel = LinkModel(),
        threads: int = 1,
        always: bool = False,
        adapters: Adapters | None = None,
    ) -> None:
        if len(switches) != topology.n_switches:
            raise ValueError(f"{len(switches)} switches for {topology.n_switches} places")
        head = _head_bytes(program)
        self.topology = topology
        self._switches, self._adapters = switches, adapters  # keeps the handles alive
        self._library = _load()
        table = _link_table(topology, links)
        handles = _handles(switches)
        in_hosts = None
        if adapters is not None:
            if len(adapters.switches) != topology.n_hosts:
                raise ValueError(f"{len(adapters.switches)} adapters for {topology.n_hosts} hosts")
            head = max(head, _head_bytes(adapters.program))
            in_hosts = _handles(adapters.switches)
        ports = _port_links(topology)
        shares = _Shares.divide(topology, threads)
        self._threads = len(shares.boundary)
        self._drops, self._replies = np.empty(0, DROP), np.empty(0, REPLY)
        self._fed: list[FedSource] = []
        self._ranks: GivenRanks | None = None
        self._now_ns = 0
        self._has_rate = links.rate_bps > 0
        setup = _Setup(
            switches=ctypes.addressof(handles),
            forward=program.address("ss_forward"),
            links=table.ctypes.data,
            port_link=ports.ctypes.data,
            owner=shares.owner.ctypes.data,
            place=shares.place.ctypes.data,
            boundary=shares.boundary.ctypes.data,
            window_ns=min(links.delay_ns, _LONGEST_WINDOW_NS),
            n_switches=len(switches),
            n_links=len(table),
            n_hosts=topology.n_hosts,
            n_parts=self._threads,
            host_link=topology.n_links,
            max_port=ports.shape[1],
            head=head,
            always=always,
            adapters=None if in_hosts is None else ctypes.addressof(in_hosts),
            adapter=None if adapters is None else adapters.program.address("ss_forward"),
        )
        self._net = self._library.net_new(ctypes.byref(setup))
        if not self._net:
            raise MemoryError("there is not enough memory for the virtual network")

    def __del__(self) -> None:
        if getattr(self, "_net", None):
            self._library.net_free(self._net)

    def add_source(self, source: Source) -> int:
        """Let hosts send a source's frames and return the source's number, as in `drops`."""
        fed = FedSource(source, self.topology.n_hosts, JUMBO_MAX, timed=self._has_rate)
        number = self._library.net_add_source(self._net, ctypes.byref(fed.feeding))
        if number < 0:
            raise ValueError("the virtual network can have at most 8 sources")
        self._fed.append(fed)
        if source.ranks is not None:
            self._ranks = GivenRanks(source.ranks, number)
            if self._library.net_add_ranks(self._net, ctypes.byref(self._ranks.structure)):
                raise MemoryError("there is not enough memory for the ranks")
        return number

    def iterations(self) -> Iterations | None:
        """Return the iterations of ranks so far; None if no source has ranks."""
        return None if self._ranks is None else self._ranks.iterations()

    def feed(self, number: int, source: Source) -> None:
        """Give a source its next frames, of the same flows; the former ones must have been sent."""
        self._give(number, self._fed[number].begin(source.packets))

    def _give(self, number: int, feed: Feed) -> None:
        self._library.net_feed_source(self._net, number, ctypes.byref(feed))
        self._fed[number].feeding = feed

    @property
    def degraded(self) -> list[str]:
        """Return an empty list: switches in virtual time do not die."""
        return []

    def start(self) -> None:
        """Do nothing: virtual time stands still until `run_until`."""

    def drain(self) -> None:
        """Send the sources' remaining packets and run until no packet is in flight."""
        self.run_until(FOREVER)

    def restart(self, switch: int) -> None:
        """Restart the switch with this number, without table entries and with all state at zero."""
        self._switches[switch].restart()
        self._library.net_replace(self._net, switch, self._switches[switch].handle)

    def answers(self, switch: int) -> bool:
        """Return True: a restarted switch, of any number, can be used at once."""
        return True

    @property
    def now_ns(self) -> int:
        """Return the virtual time in ns, at which the last `run_until` stopped."""
        return self._now_ns

    def run_until(self, time_ns: int) -> None:
        """Run every event before ``time_ns``.

        Raises:
            NetworkError: The threads cannot be started.
            MemoryError: The packets in flight do not fit into memory.
        """
        self._now_ns = time_ns
        until = 0
        while until < time_ns:
            until = min([time_ns, *(fed.until_ns for fed in self._fed)])
            self._run(until)
            for number, fed in enumerate(self._fed):
                if fed.until_ns <= until < FOREVER:
                    self._give(number, fed.next_block())

    def _run(self, time_ns: int) -> None:
        failed = self._library.net_run(self._net, time_ns)
        if failed == -2:
            raise NetworkError(f"{self._threads} threads cannot be started here: use THREADS=1")
        if failed:
            raise MemoryError("the virtual network ran out of memory")

    def sent(self, number: int) -> npt.NDArray[np.uint32]:
        """Return the packets that each flow of a source has sent, a live view, uint32[F]."""
        return self._fed[number].sent

    def delivered(self, number: int) -> npt.NDArray[np.uint32]:
        """Return the packets of each flow that reached its destination, a live view, uint32[F]."""
        return self._fed[number].delivered

    def travel_us(self, number: int) -> npt.NDArray[np.float64] | None:
        """Return the mean time in us from a packet's sending to its arrival of each flow of a
        source, float64[F], nan for a flow without arrivals; None if links have no rate."""
        fed = self._fed[number]
        if fed.travelled is None:
            return None
        return fed.travelled / np.where(fed.delivered > 0, fed.delivered * 1000.0, np.nan)

    @property
    def statistics(self) -> Statistics:
        """Return the packet totals of the network at this moment."""
        stats = self._library.net_stats(self._net).contents
        return Statistics(**{name: int(getattr(stats, name)) for name in _STATISTICS})

    def drops(self) -> npt.NDArray[Any]:
        """Return every packet lost so far, with the dtype `DROP`; the array is read-only.

        They are sorted by time, then by switch, then as the switch dropped them. ``link`` is -1
        where no link is at fault (TTL, no route); links of hosts are numbered as in
        `testbed.fabric.host_links`, and hosts' adapters behind the switches.
        """
        numbers = [self._library.net_drops(self._net, thread) for thread in range(self._threads)]
        if any(numbers):
            known = len(self._drops)
            drops = np.empty(known + sum(numbers), DROP)
            drops[:known] = self._drops
            new = drops[known:]
            for thread, part in enumerate(np.split(new, np.cumsum(numbers)[:-1])):
                self._library.net_take_drops(self._net, thread, part.ctypes.data)
            of_hosts = np.flatnonzero(new["link"].astype(np.int64) >= self.topology.n_links)
            nth = new["link"][of_hosts].astype(np.int64) - self.topology.n_links
            down, host = np.divmod(nth, self.topology.n_hosts)
            new["link"][of_hosts] = self.topology.n_links + 2 * host + down
            # a host may lose a packet that is due later than those that others lose next
            last = drops["time_ns"][known - 1] if known else 0
            begin = known if new["time_ns"].min() >= last else 0
            self._sort(drops[begin:])
            drops.flags.writeable = False
            self._drops = drops
        return self._drops

    def _sort(self, drops: npt.NDArray[Any]) -> None:
        """Sort lost packets by time and by switch, in place; those of one switch stay in order."""
        places = len(self._switches) + self.topology.n_hosts
        place = drops["time_ns"] * np.uint64(places) + drops["switch"]
        drops[:] = drops[np.argsort(place, kind="stable")]

    def lost(self, number: int, sent: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the packets that each flow of a source has lost of those ``sent``, int64[F]."""
        drops = self.drops()
        tags = drops["tag"][drops["source"] == number].astype(np.int64)
        return np.minimum(np.bincount(tags, minlength=len(sent)), sent)

    def withheld(self) -> int:
        """Return the answers to traceroutes that the switches' limit withheld."""
        return int((self.drops()["cause"] == CAUSES["ttl"]).sum())

    def replies(self) -> npt.NDArray[Any]:
        """Return the ICMP messages that hosts received, `REPLY` [n], read-only.

        They are sorted by time, then by host.
        """
        nowhere, threads = ctypes.byref(ctypes.c_void_p()), range(self._threads)
        number = sum(self._library.net_replies(self._net, each, nowhere) for each in threads)
        if number != len(self._replies):
            found = np.concatenate([self._replies_of(thread) for thread in threads])
            self._replies = found[np.lexsort((found["host"], found["time_ns"]))]
            self._replies.flags.writeable = False
        return self._replies

    def _replies_of(self, thread: int) -> npt.NDArray[Any]:
        """Return a copy of what hosts of a thread received; those of one host are in order."""
        address = ctypes.c_void_p()
        n = self._library.net_replies(self._net, thread, ctypes.byref(address))
        if not n:
            return np.empty(0, REPLY)
        buffer = (ctypes.c_char * (n * REPLY.itemsize)).from_address(address.value or 0)
        return np.frombuffer(buffer, REPLY, n).copy()

    def fault_drops(self) -> npt.NDArray[np.uint64]:
        """Return the packets lost so far to faults of each fabric link, uint64[n_links]."""
        return self._lost_on_links(*_FAULTS)[: self.topology.n_links]

    def queue_drops(self) -> npt.NDArray[np.uint64]:
        """Return the packets that full queues of each fabric link dropped, uint64[n_links]."""
        return self._lost_on_links(_QUEUE)[: self.topology.n_links]

    def _lost_on_links(self, *causes: int) -> npt.NDArray[np.uint64]:
        """Return the packets that each link lost for some causes, links of hosts numbered as in
        `testbed.fabric.host_links`."""
        drops, n = self.drops(), self.topology.n_links + 2 * self.topology.n_hosts
        link = drops["link"][np.isin(drops["cause"], causes)]
        return np.bincount(link[(link >= 0) & (link < n)], minlength=n).astype(np.uint64)

    def emulator_drops(self, taken: npt.NDArray[np.uint64]) -> None:
        """Return None: in virtual time a slow machine loses no packet."""

    def link_packets(self) -> npt.NDArray[np.uint64]:
        """Return the packets sent on each directed fabric link so far, uint64[n_links]."""
        return self._crossed()[: self.topology.n_links]

    def queue_depths(self) -> npt.NDArray[np.uint64] | None:
        """Return the most bytes that a packet found waiting on each directed fabric link since the
        last call, and their sum over all packets so far, uint64[2, n_links]; None if links have no
        rate."""
        if not self._has_rate:
            return None
        depths = np.zeros((2, self.topology.n_links + 2 * self.topology.n_hosts), np.uint64)
        self._library.net_depths(self._net, depths[0].ctypes.data, depths[1].ctypes.data)
        return depths[:, : self.topology.n_links]

    def host_link_counts(self) -> npt.NDArray[np.uint64]:
        """Return the packets sent, dropped by faults and dropped by queues so far on each directed
        link of a host, uint64[3, 2 * n_hosts]."""
        n = self.topology.n_links
        crossed = self._crossed()[n:].reshape(2, -1).T.reshape(-1)
        lost = [self._lost_on_links(*causes)[n:] for causes in (_FAULTS, [_QUEUE])]
        return np.stack((crossed, *lost))

    def _crossed(self) -> npt.NDArray[np.uint64]:
        """Return the packets sent on each link so far, in the order of `_link_table`."""
        counts = np.zeros(self.topology.n_links + 2 * self.topology.n_hosts, np.uint64)
        self._library.net_link_packets(self._net, counts.ctypes.data)
        return counts


@dataclass(frozen=True)
class _Shares:
    """The assignment of switches to threads.

    Pods and core switches are divided among the threads in order, so that few links lead from one
    thread to another.

    Attributes:
        owner: Each switch's thread, uint32[n_switches].
        place: Its number among the thread's switches, uint32[n_switches]; those with links to
            other threads' switches come first.
        boundary: The number of these, uint32[threads].
    """

    owner: npt.NDArray[np.uint32]
    place: npt.NDArray[np.uint32]
    boundary: npt.NDArray[np.uint32]

    @classmethod
    def divide(cls, topology: PacketFabric, threads: int) -> _Shares:
        """Return an assignment of a fabric's switches to at most ``threads`` threads."""
        n = topology.n_switches
        threads = min(threads, n)
        below = np.flatnonzero(topology.pod >= 0)
        in_pods = below[np.argsort(topology.pod[below], kind="stable")]
        owner = np.zeros(n, np.uint32)
        for switches in (in_pods, topology.bouncing):
            owner[switches] = np.arange(len(switches)) * threads // len(switches)
        apart = owner[topology.link_src] != owner[topology.link_dst]
        inner = np.ones(n, np.bool_)
        inner[topology.link_src[apart]] = False
        place, boundary = np.zeros(n, np.uint32), np.zeros(threads, np.uint32)
        for thread in range(threads):
            mine = np.flatnonzero(owner == thread)
            mine = mine[np.argsort(inner[mine], kind="stable")]
            place[mine] = np.arange(len(mine))
            boundary[thread] = np.count_nonzero(~inner[mine])
        return cls(owner, place, boundary)


def _head_bytes(program: Program) -> int:
    """Return how many bytes of a packet a program reads at most.

    Raises:
        ValueError: They are more than are kept of a packet.
    """
    head = program.head_bytes
    if head is None or head > _FRAME_BYTES:
        raise ValueError(f"{program.path} reads more than {_FRAME_BYTES} bytes of a packet")
    return head


def _handles(switches: list[Switch]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(switches))(*(each.handle for each in switches))


def _link_table(topology: PacketFabric, model: LinkModel) -> npt.NDArray[Any]:
    """Return the C table of all links: fabric links, then host to ToR, then ToR to host."""
    fabric, hosts = topology.n_links, topology.n_hosts
    table = np.zeros(fabric + 2 * hosts, _LINK)
    table["dst"][:fabric] = topology.link_dst
    table["dst_port"][:fabric] = topology.link_dst_port
    up = slice(fabric, fabric + hosts)
    table["dst"][up] = topology.host_tor
    table["dst_port"][up] = topology.host_port
    down = slice(fabric + hosts, fabric + 2 * hosts)
    table["dst"][down] = np.arange(hosts)
    table["to_host"][down] = 1
    table["delay"] = model.delay_ns
    table["rate"] = model.rate_bps
    table["queue"] = model.queue_bytes
    return table


def _port_links(topology: PacketFabric) -> npt.NDArray[np.uint32]:
    """Return the link that begins at each port of each switch, uint32[n_switches, n_ports + 1]."""
    ports = np.full((topology.n_switches, topology.n_ports + 1), _NOWHERE, np.uint32)
    ports[topology.link_src, topology.link_src_port] = np.arange(topology.n_links)
    first_down = topology.n_links + topology.n_hosts
    ports[topology.host_tor, topology.host_port] = first_down + np.arange(topology.n_hosts)
    return ports


FLAGS = ("-pthread", *PACKETS)


def c_text() -> str:
    """Return all that is compiled for the event loop."""
    return c_defines() + read_c(Path(__file__).with_name("virtual.c"))


def _load() -> ctypes.CDLL:
    pointer, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    return load_library(
        c_text(),
        {
            "net_new": (pointer, pointer),
            "net_free": (None, pointer),
            "net_add_source": (ctypes.c_int, pointer, pointer),
            "net_add_ranks": (ctypes.c_int, pointer, pointer),
            "net_feed_source": (None, pointer, u32, pointer),
            "net_replace": (None, pointer, u32, pointer),
            "net_run": (ctypes.c_int, pointer, u64),
            "net_stats": (ctypes.POINTER(_Stats), pointer),
            "net_drops": (u64, pointer, u32),
            "net_take_drops": (None, pointer, u32, pointer),
            "net_replies": (u64, pointer, u32, pointer),
            "net_link_packets": (None, pointer, pointer),
            "net_depths": (None, pointer, pointer, pointer),
        },
        FLAGS,
    )
