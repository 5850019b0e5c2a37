"""The fat-tree of soft switches in one process and in virtual time.

The event loop is compiled C (`virtual.c`); Python sets it up, feeds it arrays and stops it where
the controller has something to do. A run is a function of its inputs: no clock, no thread.

One packet-hop costs about as much as the switch program itself; events wait in a heap whose size is
the number of packets under way (bandwidth x delay), not of packets to send.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.dataplane import CAUSES, c_defines
from testbed.fabric.fat_tree import FatTree
from testbed.softswitch import Program, Switch
from testbed.softswitch.compiler.build import build

__all__ = ["DROP_CAUSES", "LinkModel", "Source", "Statistics", "VirtualNetwork"]

_NOWHERE = 0xFFFFFFFF

_QUEUE = 100  # no cause of the program's: the packet did not come that far
DROP_CAUSES = {number: name for name, number in CAUSES.items() if number} | {_QUEUE: "queue"}

_DROP = np.dtype(
    [
        ("time_ns", "<u8"),
        ("tag", "<u4"),
        ("link", "<u4"),
        ("switch", "<u4"),
        ("cause", "u1"),
        ("counted", "u1"),
        ("parity", "u1"),
        ("source", "u1"),
    ],
    align=True,
)
_REPLY = np.dtype([("time_ns", "<u8"), ("host", "<u4"), ("length", "<u4"), ("data", "u1", 96)])
_LINK = np.dtype(
    [
        ("dst", "<u4"),
        ("dst_port", "<u4"),
        ("to_host", "<u4"),
        ("pad", "<u4"),
        ("delay", "<u8"),
        ("rate", "<u8"),
        ("queue", "<u8"),
        ("busy_until", "<u8"),
        ("packets", "<u8"),
    ]
)


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


class _Source(ctypes.Structure):
    _fields_ = [
        ("n", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
        ("time", ctypes.c_void_p),
        ("index", ctypes.c_void_p),
        ("size", ctypes.c_void_p),
        ("ttl", ctypes.c_void_p),
        ("templates", ctypes.c_void_p),
        ("template_length", ctypes.c_void_p),
        ("stride", ctypes.c_uint32),
        ("src_link", ctypes.c_void_p),
        ("dst_host", ctypes.c_void_p),
        ("sent", ctypes.c_void_p),
        ("delivered", ctypes.c_void_p),
    ]


class _Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in _STATISTICS]


@dataclass(frozen=True)
class LinkModel:
    """Delay, rate and queue of every link. ``rate_bps`` 0 is infinitely fast and never queues."""

    delay_ns: int = 5_000
    rate_bps: int = 0
    queue_bytes: int = 256 * 1514

    @property
    def transit_ns(self) -> int:
        """The longest a packet takes over a fabric link: full queue, wire, propagation."""
        wait = (self.queue_bytes + 2 * 1521) * 8e9 / self.rate_bps if self.rate_bps else 0
        return self.delay_ns + round(wait)


@dataclass(frozen=True)
class Statistics:
    """Where the packets went, at the time of asking.

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
class Source:
    """Frames that hosts send. Flow ``f`` has a header template, a source and a destination host.

    Attributes:
        time_ns: uint64[P], sorted; ``flow`` uint32[P].
        size: Frame bytes uint16[P], or None when the template is the whole frame.
        ttl: uint8[P] makes each frame a traceroute of its flow (TTL also in the IP ID), or None.
        templates: uint8[F, stride]; ``template_length`` uint16[F].
        src_host, dst_host: int32[F].
    """

    time_ns: npt.NDArray[np.uint64]
    flow: npt.NDArray[np.uint32]
    templates: npt.NDArray[np.uint8]
    template_length: npt.NDArray[np.uint16]
    src_host: npt.NDArray[np.int32]
    dst_host: npt.NDArray[np.int32]
    size: npt.NDArray[np.uint16] | None = None
    ttl: npt.NDArray[np.uint8] | None = None


class _Fed:
    """A source inside the network, with the arrays the C code points to."""

    def __init__(self, source: Source, first_host_link: int) -> None:
        flows = len(source.src_host)
        self.sent = np.zeros(flows, np.uint32)
        self.delivered = np.zeros(flows, np.uint32)
        self.src_link = (source.src_host + first_host_link).astype(np.uint32)
        self.dst_host = source.dst_host.astype(np.uint32)
        self.templates = np.ascontiguousarray(source.templates, np.uint8)
        self.template_length = np.ascontiguousarray(source.template_length, np.uint16)
        self.source = source
        self.arrays: list[npt.NDArray[Any]] = []

    def structure(self, source: Source) -> _Source:
        time = np.ascontiguousarray(source.time_ns, np.uint64)
        flow = np.ascontiguousarray(source.flow, np.uint32)
        if len(time) and (np.diff(time.astype(np.int64)) < 0).any():
            raise ValueError("a source's packets must be sorted by time")
        size = None if source.size is None else np.ascontiguousarray(source.size, np.uint16)
        ttl = None if source.ttl is None else np.ascontiguousarray(source.ttl, np.uint8)
        self.arrays = [time, flow] + [a for a in (size, ttl) if a is not None]
        return _Source(
            len(time),
            0,
            time.ctypes.data,
            flow.ctypes.data,
            None if size is None else size.ctypes.data,
            None if ttl is None else ttl.ctypes.data,
            self.templates.ctypes.data,
            self.template_length.ctypes.data,
            self.templates.shape[1],
            self.src_link.ctypes.data,
            self.dst_host.ctypes.data,
            self.sent.ctypes.data,
            self.delivered.ctypes.data,
        )


class VirtualNetwork:
    """A fat-tree whose switches are soft switches and whose hosts send what they are given.

    Args:
        topology: The fat-tree.
        program: The compiled program, loaded with its verdict as the observed field.
        switches: One soft switch for each switch of the topology, in its order.
        links: Delay, rate and queue of every link.
    """

    def __init__(
        self,
        topology: FatTree,
        program: Program,
        switches: list[Switch],
        links: LinkModel = LinkModel(),
    ) -> None:
        if len(switches) != topology.n_switches:
            raise ValueError(f"{len(switches)} switches for {topology.n_switches} places")
        self.topology = topology
        self._switches = switches  # keeps the handles alive
        self._library = _load()
        self._first_host_link = topology.n_links
        table = _link_table(topology, links)
        handles = (ctypes.c_void_p * len(switches))(*(s.handle for s in switches))
        ports = _port_links(topology)
        self._fed: list[_Fed] = []
        self._now_ns = 0
        self._net = self._library.net_new(
            len(switches),
            handles,
            program.process_address,
            len(table),
            table.ctypes.data,
            ports.shape[1],
            ports.ctypes.data,
        )
        if not self._net:
            raise MemoryError("the virtual network does not fit into memory")

    def __del__(self) -> None:
        if getattr(self, "_net", None):
            self._library.net_free(self._net)

    def add_source(self, source: Source) -> int:
        """Let hosts send a source's frames; returns its number, which drops name."""
        fed = _Fed(source, self._first_host_link)
        structure = fed.structure(source)
        number = self._library.net_add_source(self._net, ctypes.byref(structure))
        if number < 0:
            raise ValueError("the virtual network takes at most 8 sources")
        self._fed.append(fed)
        return number

    def feed(self, number: int, source: Source) -> None:
        """Give a source its next frames, over the same flows; what it had must have been sent."""
        structure = self._fed[number].structure(source)
        self._library.net_feed_source(self._net, number, ctypes.byref(structure))

    @property
    def degraded(self) -> list[str]:
        """Switches that died: none does."""
        return []

    def start(self) -> None:
        """Begin; virtual time stands still until `run_until`."""

    def drain(self) -> None:
        """Send everything the sources still have and run until no packet is under way."""
        self.run_until(2**64 - 1)

    @property
    def now_ns(self) -> int:
        """Virtual time: where the last `run_until` stopped."""
        return self._now_ns

    def run_until(self, time_ns: int) -> None:
        """Run every event before a time."""
        self._now_ns = time_ns
        if self._library.net_run(self._net, time_ns):
            raise MemoryError("the virtual network ran out of memory")

    def sent(self, number: int) -> npt.NDArray[np.uint32]:
        """Packets each flow of a source has sent, uint32[F], live."""
        return self._fed[number].sent

    def delivered(self, number: int) -> npt.NDArray[np.uint32]:
        """Packets of each flow that its destination host has got, uint32[F], live."""
        return self._fed[number].delivered

    @property
    def statistics(self) -> Statistics:
        stats = self._library.net_stats(self._net).contents
        return Statistics(**{name: int(getattr(stats, name)) for name in _STATISTICS})

    def drops(self) -> npt.NDArray[Any]:
        """Every packet lost so far: time, flow, link, switch, cause, shim marks and source.

        ``link`` is -1 where no link is at fault (TTL, no route). A copy.
        """
        raw = _copy(self._library.net_drops, self._net, _DROP)
        fields = [("link", "<i4") if n == "link" else (n, _DROP[n]) for n in _DROP.names or ()]
        drops = np.empty(len(raw), fields)
        for name in _DROP.names or ():
            drops[name] = raw[name].view("<i4") if name == "link" else raw[name]
        return drops

    def replies(self) -> npt.NDArray[Any]:
        """ICMP messages that hosts received: time, host, length and the first 96 bytes. A copy."""
        return _copy(self._library.net_replies, self._net, _REPLY)

    def fault_drops(self) -> npt.NDArray[np.uint64]:
        """Packets lost to faults of each directed fabric link so far: uint64[n_links]."""
        drops = self.drops()
        faulty = np.isin(drops["cause"], [CAUSES["fault"], CAUSES["corrupt"]])
        return self._per_link(drops["link"][faulty])

    def queue_drops(self) -> npt.NDArray[np.uint64]:
        """Packets that full queues of each directed fabric link dropped: uint64[n_links]."""
        drops = self.drops()
        return self._per_link(drops["link"][drops["cause"] == _QUEUE])

    def _per_link(self, link: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
        n = self.topology.n_links
        return np.bincount(link[(link >= 0) & (link < n)], minlength=n).astype(np.uint64)

    def link_packets(self) -> npt.NDArray[np.uint64]:
        """Packets put on each directed fabric link so far: uint64[n_links]."""
        total = self._first_host_link + 2 * self.topology.n_hosts
        packets = np.zeros(total, np.uint64)
        self._library.net_link_packets(self._net, packets.ctypes.data)
        return packets[: self.topology.n_links]


def _copy(function: Any, net: int, dtype: np.dtype) -> npt.NDArray[Any]:
    address = ctypes.c_void_p()
    n = function(net, ctypes.byref(address))
    if not n:
        return np.empty(0, dtype)
    size = n * dtype.itemsize
    buffer = (ctypes.c_char * size).from_address(address.value or 0)
    return np.frombuffer(buffer, dtype, n).copy()


def _link_table(topology: FatTree, model: LinkModel) -> npt.NDArray[Any]:
    """Fabric links, then host->ToR, then ToR->host."""
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


def _port_links(topology: FatTree) -> npt.NDArray[np.uint32]:
    """The link that leaves each port of each switch: uint32[n_switches, k + 1]."""
    ports = np.full((topology.n_switches, topology.k + 1), _NOWHERE, np.uint32)
    ports[topology.link_src, topology.link_src_port] = np.arange(topology.n_links)
    first_down = topology.n_links + topology.n_hosts
    ports[topology.host_tor, topology.host_port] = first_down + np.arange(topology.n_hosts)
    return ports


def _load() -> ctypes.CDLL:
    here = Path(__file__).parent
    abi = (here.parent / "softswitch" / "runtime" / "c" / "abi.h").read_text()
    code = (here / "virtual.c").read_text().replace('#include "abi.h"', abi)
    library = ctypes.CDLL(str(build(c_defines() + code, "")))
    pointer, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    library.net_new.argtypes = [u32, pointer, pointer, u32, pointer, u32, pointer]
    library.net_new.restype = pointer
    library.net_free.argtypes = [pointer]
    library.net_free.restype = None
    library.net_add_source.argtypes = [pointer, pointer]
    library.net_feed_source.argtypes = [pointer, u32, pointer]
    library.net_feed_source.restype = None
    library.net_run.argtypes = [pointer, u64]
    library.net_stats.argtypes = [pointer]
    library.net_stats.restype = ctypes.POINTER(_Stats)
    for name in ("net_drops", "net_replies"):
        getattr(library, name).argtypes = [pointer, pointer]
        getattr(library, name).restype = u64
    library.net_link_packets.argtypes = [pointer, pointer]
    library.net_link_packets.restype = None
    return library
