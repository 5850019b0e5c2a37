# SPDX-License-Identifier: Apache-2.0
"""The emulation that a user's process has the root process do, and the record that comes back.

A job is JSON and arrays of numbers with fixed types. The reader builds settings, faults and traffic
from it with the same checks as in a run, and executes nothing that was sent.
"""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from scenarios.experiment.observer import Observer
from scenarios.experiment.settings import Settings
from scenarios.process.root_server import connect
from scenarios.process.signals import signals_blocked
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.topologies import is_described, make_packet_fabric
from testbed.faults.plan import FaultPlan
from testbed.network.network import NetworkError
from testbed.network.schedules import Packets, listed
from testbed.record.atomic import atomic_write
from testbed.record.run import RunWriter
from testbed.traffic.flows import MAX_FRAME, MIN_FRAME, TCP, UDP, Traffic

_FLOWS = (
    ("src_host", np.int32),
    ("dst_host", np.int32),
    ("src_port", np.uint16),
    ("dst_port", np.uint16),
    ("protocol", np.uint8),
)
_PACKETS = (("time_ns", np.uint64), ("flow", np.uint32), ("size", np.uint16))
_LONGEST_TEXT = 1 << 26
_MOST_PACKETS = 1 << 30


class JobError(UserError):
    """A job does not have the declared form; the message is one line."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class _Fabric:
    """A fabric of a file, which root does not open: the switches, the ends of the undirected links,
    and the hosts at each ToR."""

    switches: list[str]
    tier: list[int]
    lower: list[int]
    upper: list[int]
    hosts: int
    title: str

    @classmethod
    def of(cls, fabric: PacketFabric) -> _Fabric:
        ends = (fabric.link_src[::2].tolist(), fabric.link_dst[::2].tolist())
        names, tier = fabric.switch_names, fabric.tier.tolist()
        return cls(names, tier, *ends, fabric.hosts_per_tor, fabric.title)

    def made(self) -> PacketFabric:
        """Return the fabric.

        Raises:
            TopologyError: There is none of this form.
        """
        arrays = (np.array(each, np.int64) for each in (self.tier, self.lower, self.upper))
        plain = Fabric(self.switches, *arrays, hosts_per_tor=self.hosts, title=self.title)
        return PacketFabric.of(plain)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class _Words:
    """The part of a job that is sent as JSON; ``flows`` and ``packets`` are the lengths of the
    arrays."""

    settings: Settings
    fabric: _Fabric | None
    plan: FaultPlan
    watched: bool
    flows: int
    packets: int


_WORDS = TypeAdapter(_Words)


@dataclasses.dataclass(frozen=True)
class RootJob:
    """An emulation: its settings, fabric, faults and traffic, and whether a live page shows it."""

    settings: Settings
    fabric: PacketFabric
    plan: FaultPlan
    traffic: Traffic
    watched: bool


def send_job(wire: Connection, job: RootJob) -> None:
    """Send a job; its packets are listed one by one as arrays."""
    traffic, packets = job.traffic, listed(job.traffic.packets)
    described = is_described(job.settings.topology)
    fabric = None if described else _Fabric.of(job.fabric)
    words = _Words(job.settings, fabric, job.plan, job.watched, traffic.n_flows, len(packets))
    wire.send_bytes(_WORDS.dump_json(words))
    for source, columns in ((traffic, _FLOWS), (packets, _PACKETS)):
        for name, kind in columns:
            wire.send_bytes(getattr(source, name).astype(kind).tobytes())


def receive_job(wire: Connection) -> RootJob:
    """Read a job, check it, and return it.

    Raises:
        JobError: The data is not a job, or its values are wrong.
        EOFError: The connection was closed before the end of the job.
    """
    try:
        words = _WORDS.validate_json(wire.recv_bytes(_LONGEST_TEXT))
    except ValidationError as error:
        raise JobError(" ".join(str(error).split())) from None
    if not words.settings.real_time:
        raise JobError("the process of root runs only networks of real packets")
    if not (0 <= words.flows <= _MOST_PACKETS and 0 <= words.packets <= _MOST_PACKETS):
        raise JobError("there are too many packets")
    flows: dict[str, Any] = {name: _column(wire, kind, words.flows) for name, kind in _FLOWS}
    time, flow, size = (_column(wire, kind, words.packets) for _, kind in _PACKETS)
    topology = _fabric_of(words)
    words.plan.check(topology, words.settings.duration_s)
    traffic = Traffic(**flows, packets=Packets(time, flow, size))
    _check(traffic, topology.n_hosts)
    return RootJob(words.settings, topology, words.plan, traffic, words.watched)


def _fabric_of(words: _Words) -> PacketFabric:
    """Return the fabric of a job.

    Raises:
        JobError: It names a file and brings no fabric, or a wrong one.
    """
    settings = words.settings
    if is_described(settings.topology):
        return make_packet_fabric(settings.topology, settings.k)
    if words.fabric is None:
        raise JobError("a job with a file of a fabric brings the fabric")
    return words.fabric.made()


def _column(wire: Connection, kind: type[np.generic], length: int) -> npt.NDArray:
    """Read one array of ``length`` numbers of a given type."""
    wanted = length * np.dtype(kind).itemsize
    data = wire.recv_bytes(wanted)
    if len(data) != wanted:
        raise JobError("a column is too short")
    return np.frombuffer(data, kind)


def _check(traffic: Traffic, hosts: int) -> None:
    """Check that the flows connect hosts of the fabric, and that the packets belong to these flows.

    Raises:
        JobError: A flow or a packet is wrong.
    """
    src, dst, time = traffic.src_host, traffic.dst_host, traffic.time_ns.astype(np.int64)
    for wrong, what in (
        ((src < 0) | (src >= hosts) | (dst < 0) | (dst >= hosts), "a flow has no host"),
        (src == dst, "a flow begins and ends at the same host"),
        (~np.isin(traffic.protocol, (TCP, UDP)), "a flow is neither TCP nor UDP"),
        (traffic.flow >= traffic.n_flows, "a packet has no flow"),
        (
            (traffic.size < MIN_FRAME) | (traffic.size > MAX_FRAME),
            "a packet has an impossible size",
        ),
        ((time < 0) | (np.diff(time, prepend=0) < 0), "the packets are not in order"),
    ):
        if wrong.any():
            raise JobError(what)


class _InRoot(Exception):
    """The traceback of an error in the root process; it becomes the cause of the same error
    here."""

    def __str__(self) -> str:
        return f"in the process of root:\n{self.args[0]}"


def emulate_as_root(
    job: RootJob,
    writer: RunWriter,
    observer: Observer,
) -> None:
    """Have the root process emulate a job, and write the record while it runs. The network is down
    when the function returns.

    Args:
        observer: Receives the progress, and the changes of the live page that the root process
            sends.

    Raises:
        NetworkError: There is no root process, it ended early, or the network cannot be brought up
            (one line).
        ValueError: The faults or the traffic cannot be emulated (one line).
    """
    try:
        peer = connect()
    except OSError:
        raise NetworkError("the process that runs networks as root has ended: try again") from None
    with peer, Connection(os.dup(peer.fileno())) as wire:
        handlers: dict[str, Callable[..., None]] = {
            "table": writer.table,
            "text": writer.text,
            "json": writer.json,
            "progress": observer.progressed,
            "page": observer.page_changed,
            "log": lambda name, content: _keep_log(writer, name, content),
        }
        ended = False
        try:
            send_job(wire, job)
            while not ended:
                kind, *rest = _next(wire)
                ended = kind in ("end", "error", "stopped")
                if kind == "error":
                    error, trace = rest
                    raise error from _InRoot(trace)
                if kind == "stopped":
                    raise NetworkError("the process that runs networks as root was stopped")
                if not ended:
                    handlers[kind](*rest)
        except (EOFError, ConnectionError):
            raise NetworkError("the process that runs the network as root has died") from None
        finally:
            if not ended:
                _end(peer, wire, handlers["log"])


def _next(wire: Connection) -> tuple[Any, ...]:
    """Return the next message. Signals are blocked while it is read, because nothing can be read
    after half a message."""
    wire.poll(None)
    with signals_blocked():
        return wire.recv()


def _keep_log(writer: RunWriter, name: str, content: bytes) -> None:
    """Write a log of the root process into the folder ``logs`` of the run."""
    folder = writer.partial / "logs"
    folder.mkdir(exist_ok=True)
    with atomic_write(folder / name) as new:
        new.write_bytes(content)


def _end(peer: socket.socket, wire: Connection, keep_log: Callable[..., None]) -> None:
    """Tell the root process to take its network down, wait until it has, and keep its logs."""
    with suppress(OSError, EOFError):
        peer.shutdown(socket.SHUT_WR)
        while True:
            what, *rest = _next(wire)
            if what == "log":
                keep_log(*rest)
