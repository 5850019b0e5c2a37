# SPDX-License-Identifier: Apache-2.0
"""Writes the record of a run with packets: its tables, from the counters of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from scenarios.experiment.in_memory import Memory, MemoryRecord
from scenarios.experiment.setup import Emulation
from testbed.dataplane import CAUSES
from testbed.fabric.pathbf import bloom_mask
from testbed.measurements.measurement import Counts
from testbed.measurements.tables import joined
from testbed.network.network import EmulatorDrops, OwnLosses, Statistics, Switchable
from testbed.network.ranks import Iterations
from testbed.network.virtual import DROP_CAUSES, VirtualNetwork
from testbed.record.documents import Conservation, Network
from testbed.record.fabric_file import fabric_columns
from testbed.record.tables import Columns, Texts

LongArray = npt.NDArray[np.int64]

_PLACES_NAMED = 5


class Recorder(Protocol):
    """Receives the record of a run, as `testbed.record.run.RunWriter` does."""

    def table(self, name: str, columns: Columns) -> None:
        """Write a table of the record, with arrays of equal length as columns."""

    def text(self, name: str, content: str) -> None:
        """Write a text file of the record; ``name`` has its suffix."""

    def json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file of the record; ``name`` has its suffix."""


@dataclass(frozen=True)
class HostCounts:
    """The packets that each flow of each source has sent and lost since the network began, int64[F]
    each by the number of the source; of real TCP, what the hosts' kernels report."""

    sent: Mapping[int, LongArray]
    lost: Mapping[int, LongArray]

    @classmethod
    def now(cls, emulation: Emulation) -> HostCounts:
        """Return the counts of this moment, in which no packet is to be under way: one that is
        counts as lost."""
        numbers = [each.number for each in emulation.sending]
        sent = {each: emulation.network.sent(each).astype(np.int64) for each in numbers}
        lost = {each: emulation.network.lost(each, sent[each]) for each in numbers}
        if emulation.tcp is not None:
            carried, data = emulation.transfers.flow, emulation.data.number
            sent[data][carried], lost[data][carried] = emulation.tcp.counts()
        return cls(sent, lost)

    def since(self, before: HostCounts) -> HostCounts:
        """Return the counts since others. Of a packet that was under way then and has arrived,
        nothing is lost."""
        sent = {number: each - before.sent[number] for number, each in self.sent.items()}
        lost = {number: each - before.lost[number] for number, each in self.lost.items()}
        return HostCounts(sent, {number: np.maximum(each, 0) for number, each in lost.items()})


@dataclass
class History:
    """The record of a run so far that the network itself does not keep.

    Attributes:
        every_epoch: Whether the record is written after every epoch.
        first: The first epoch of the record, from 0.
        before: What hosts had counted when it began; None if nothing.
        counted: What they had counted when that was last noted.
        epochs: The number of epochs that have ended, with those before the first.
        late_ns: The largest delay of the controller, in ns.
        slowdown: How many times slower than real time the run's clock was, from 1.
    """

    every_epoch: bool = False
    first: int = 0
    before: HostCounts | None = None
    counted: HostCounts = HostCounts({}, {})
    epochs: int = 0
    late_ns: int = 0
    slowdown: float = 1.0

    def cells(self, cells: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return pairs (epoch, switch) of this record, with its first epoch as 0."""
        return [(epoch - self.first, each) for epoch, each in cells if epoch >= self.first]

    def reached(self, late_ns: int) -> None:
        """Note that an action was carried out ``late_ns`` (ns) after it was due."""
        self.late_ns = max(self.late_ns, late_ns)

    def note(self, emulation: Emulation) -> None:
        """Note what hosts have counted by now."""
        self.counted = HostCounts.now(emulation)


def record(emulation: Emulation, history: History, writer: Recorder, drained: bool = False) -> None:
    """Write all tables but the registers, from what is known up to now; ``drained`` says that no
    packet is under way any more."""
    injected = emulation.injector.dropped()
    crossed, by_emulator = _link_counts(emulation, injected)
    counts = _counts(emulation, history)
    writer.text("truth.yaml", emulation.plan.to_yaml(emulation.topology))
    writer.table("fabric", fabric_columns(emulation.topology))
    writer.table("switches", _switches(emulation))
    writer.table("links", _links(emulation, crossed))
    if by_emulator is not None:
        writer.table("emulator_drops", vars(by_emulator))
    writer.table("flows", _flows(emulation, counts))
    if (done := _iterations(emulation)) is not None:
        writer.table("iterations", {"begin_ns": done.begin_ns, "end_ns": done.end_ns})
    for name, columns in joined(one.tables(counts) for one in emulation.measured.values()).items():
        writer.table(name, columns)
    writer.table("drops", _drops(emulation))
    counts = replace(counts, statistics=_statistics(emulation, counts, crossed, injected))
    network_json = _network(emulation, history, counts, by_emulator, drained)
    writer.json("network.json", network_json)


def _iterations(emulation: Emulation) -> Iterations | None:
    """Return the iterations of a collective by now; None if no senders react."""
    network = emulation.network
    return network.iterations() if isinstance(network, VirtualNetwork) else None


def _counts(emulation: Emulation, history: History) -> Counts:
    """Return what hosts counted and received."""
    network, counted = emulation.network, history.counted
    if history.before is not None:
        counted = counted.since(history.before)
    return Counts(
        first=history.first,
        sent=counted.sent,
        lost=counted.lost,
        replies=network.replies(),
        statistics=network.statistics,
        withheld=network.withheld(),
    )


def _switches(emulation: Emulation) -> Mapping[str, Any]:
    """Return the columns of the table ``switches``."""
    topology, ids = emulation.topology, emulation.run.ids
    names, ip = topology.switch_names, topology.switch_ip
    if emulation.inputs.host_meters:
        names, ip = [*names, *topology.host_names], np.append(ip, topology.host_ip)
    return {
        "name": names,
        "id": ids,
        "mask": bloom_mask(ids),
        "ip": ip,
        "monitor": np.isin(np.arange(len(ids)), emulation.run.monitors),
    }


def _link_counts(
    emulation: Emulation, injected: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.uint64], EmulatorDrops | None]:
    """Return the packets, those dropped by faults and those dropped by queues of each directed
    link, uint64[3, n_links + 2 * n_hosts] in the order of `testbed.fabric.host_links`, and what the
    emulator dropped without a fault; None if the network never does.

    Args:
        injected: The packets that the injector says to have dropped itself on each of these links.
    """
    network, n_links = emulation.network, emulation.topology.n_links
    of_fabric = np.stack((network.link_packets(), network.fault_drops(), network.queue_drops()))
    counts = np.concatenate((of_fabric, network.host_link_counts()), axis=1)
    # A packet dropped at the link's begin did not cross it; one dropped at a host's ToR did, and a
    # corrupted one, too.
    at_begin = counts[1].copy()
    at_begin[n_links::2] = 0
    at_begin[:n_links] -= _corrupted(emulation)
    counts[0] += at_begin + injected
    counts[1] += injected
    own = network.emulator_drops(counts[1])
    if own is not None:
        assert isinstance(network, OwnLosses)
        counts[1, :n_links] += network.corrupted()
    return counts, own


def _statistics(
    emulation: Emulation,
    counts: Counts,
    crossed: npt.NDArray[np.uint64],
    injected: npt.NDArray[np.uint64],
) -> Statistics:
    """Return the totals of the network with what the kernel's injectors drop on real links: a
    network counts packets that its fault tables dropped, but none of netem or nftables, not even as
    sent where they drop them at a host."""
    from_hosts = injected[emulation.topology.n_links :: 2]
    return replace(
        counts.statistics,
        sent=counts.statistics.sent + int(from_hosts.sum()),
        fault_drops=int(crossed[1].sum()),
    )


def _links(emulation: Emulation, crossed: npt.NDArray[np.uint64]) -> Mapping[str, Any]:
    """Return the columns of the table ``links``, with the counters of each directed link; see
    `_link_counts`. Links of hosts follow where one of them is faulty or has meters."""
    plan, whole = emulation.plan, emulation.whole
    counts = crossed[:, : whole.n_links]
    rate = np.zeros(whole.n_links)
    for fault in plan.faults:
        rate[fault.link] = max(rate[fault.link], fault.rate)
    return {
        "name": whole.link_names,
        "faulty": np.isin(np.arange(whole.n_links), plan.links),
        "rate": rate,
        "packets": counts[0],
        "fault_drops": counts[1],
        "queue_drops": counts[2],
    }


def _corrupted(emulation: Emulation) -> npt.NDArray[np.uint64]:
    """Return, for each directed link, those packets of `Network.fault_drops` that crossed the link
    and were discarded behind it, uint64[n_links]."""
    drops, n = emulation.network.drops(), emulation.topology.n_links
    links = drops["link"][drops["cause"] == CAUSES["corrupt"]]
    return np.bincount(links, minlength=n)[:n].astype(np.uint64)


def _flows(emulation: Emulation, counts: Counts) -> Mapping[str, Any]:
    """Return the columns of the table ``flows``, with the packets that each flow sent and lost."""
    topology, traffic = emulation.topology, emulation.run.traffic
    return {
        "src_host": traffic.src_host,
        "dst_host": traffic.dst_host,
        "src_port": traffic.src_port,
        "dst_port": traffic.dst_port,
        "protocol": traffic.protocol,
        "src_tor": topology.host_tor[traffic.src_host],
        "dst_tor": topology.host_tor[traffic.dst_host],
        "sent": counts.sent[emulation.data.number],
        "lost": counts.lost[emulation.data.number],
    }


def _drops(emulation: Emulation) -> Mapping[str, Any]:
    """Return every lost packet of the traffic, with the epoch in which its upstream counted it; -1
    if none did."""
    drops = emulation.network.drops()
    own = drops["source"] == emulation.data.number
    time_ns, counted = drops["time_ns"][own], drops["counted"][own] == 1
    epoch = emulation.run.clock.epoch_of(time_ns, drops["parity"][own])
    numbers = sorted(DROP_CAUSES)
    code = np.zeros(256, np.int32)
    code[numbers] = np.arange(len(numbers))
    return {
        "time_ns": time_ns,
        "flow": drops["tag"][own].astype(np.int32),
        "link": drops["link"][own],
        "cause": Texts(code[drops["cause"][own]], [DROP_CAUSES[number] for number in numbers]),
        "counted": counted,
        "epoch": np.where(counted, epoch, np.int32(-1)),
    }


def _network(
    emulation: Emulation,
    history: History,
    counts: Counts,
    by_emulator: EmulatorDrops | None,
    drained: bool,
) -> Network:
    """Return the content of ``network.json``: counters of the whole network."""
    statistics = counts.statistics
    conservation = _conservation(statistics, by_emulator, drained)
    network: Network = {
        "fabric": emulation.topology.title,
        "hosts_per_tor": emulation.topology.hosts_per_tor,
        "epochs": history.epochs - history.first,
        "packet_hops": statistics.packet_hops,
        "conservation": conservation,
        "other_drops": statistics.other_drops,
        "misdelivered": statistics.misdelivered,
        "in_flight": statistics.in_flight,
        "degraded": _degraded(emulation, history, by_emulator, conservation.get("unaccounted", 0)),
        "controller_late_ms": history.late_ns // 1_000_000,
        "collection_seconds": [],
        "events": [*emulation.events.in_words(), *_dropped_in_restarts(by_emulator)],
        "restarted": history.cells(emulation.events.void(history.epochs)),
        "rerouted": history.cells(emulation.events.rerouted(history.epochs)),
        "canary_bytes": 0,
        "traceroute_packets": 0,
        "tcp": None if emulation.tcp is None else emulation.tcp.report(),
    }
    if emulation.whole is not emulation.topology:
        network["host_links"] = True
    if (done := _iterations(emulation)) is not None:
        network["sent_again"] = int(done.resent.sum())
    if isinstance(emulation.network, Switchable):
        network["slowdown"] = history.slowdown
        links, hosts = emulation.events.switched_off()
        network["links_off"], network["hosts_off"] = sorted(links), sorted(hosts)
    figures: dict[str, Any] = dict(network)
    for each in emulation.measured.values():
        figures |= each.figures(counts)
    return cast(Network, figures)


def _conservation(
    statistics: Statistics, by_emulator: EmulatorDrops | None, drained: bool
) -> Conservation:
    """Return the packets sent and what became of them; once the network has drained, also how many
    of them no counter has."""
    counts = {
        "sent": statistics.sent,
        "delivered": statistics.delivered,
        "fault_drops": statistics.fault_drops,
        "queue_drops": statistics.queue_drops,
        "ttl_drops": statistics.ttl_drops,
        "other_drops": statistics.other_drops,
        "emulator_drops": sum(_lost_by_place(by_emulator, _COUNTED).values()),
        "in_flight": statistics.in_flight,
    }
    if drained:
        sent, *ended = counts.values()
        counts["unaccounted"] = sent - sum(ended)
    return cast(Conservation, counts)


def _dropped_in_restarts(drops: EmulatorDrops | None) -> list[str]:
    """Return a line for each real switch that dropped packets while it restarted; a network in
    virtual time says it of each restart."""
    lost = _lost_by_place(drops, ("restart",))
    return [
        f"{switch}: it dropped {packets:,} packets in all its restarts"
        for switch, packets in lost.items()
    ]


def _degraded(
    emulation: Emulation, history: History, by_emulator: EmulatorDrops | None, unaccounted: int
) -> list[str]:
    """Return the reasons why the measurements of this run are incomplete, one line each;
    ``unaccounted`` is the number of packets that no counter has."""
    found = list(emulation.network.degraded)
    if emulation.tcp is not None:
        found += emulation.tcp.degraded
    if history.late_ns > emulation.inputs.epochs.length_ns // 3:
        late = history.late_ns / 1e9
        found.append(f"the controller was {late:.1f} s late: use a longer EPOCH_MS")
    if lost := _lost_by_place(_of_what_is_on(emulation, by_emulator), _DEGRADING):
        found.append(
            f"the emulator lost {sum(lost.values()):,} packets without a fault: "
            f"{_places(lost)}: use a smaller LOAD"
        )
    if unknown := _lost_by_place(by_emulator, _NOT_COUNTED):
        found.append(
            f"{sum(unknown.values()):,} packets were lost, and no counter says why: "
            f"{_places(unknown)}"
        )
    if unaccounted != sum(unknown.values()):
        found.append(
            f"the counts of the network do not add up: {unaccounted:,} packets are unaccounted "
            f"for, and the places where some were lost without a count have "
            f"{sum(unknown.values()):,}"
        )
    return found


def _lost_by_place(drops: EmulatorDrops | None, where: Sequence[str]) -> dict[str, int]:
    """Return the packets that were lost without a fault in one of the ways ``where``, by place."""
    lost: dict[str, int] = {}
    if drops is not None:
        for place, how, packets in zip(
            drops.place, drops.where, drops.packets.tolist(), strict=True
        ):
            if how in where:
                lost[place] = lost.get(place, 0) + packets
    return lost


def _of_what_is_on(emulation: Emulation, drops: EmulatorDrops | None) -> EmulatorDrops | None:
    """Return the packets lost without a fault, but for those on links that were switched off."""
    if drops is None:
        return None
    links, hosts = emulation.events.switched_off()
    names = {emulation.topology.host_names[host] for host in hosts}
    rows = [
        row
        for row, (link, place) in enumerate(zip(drops.link.tolist(), drops.place, strict=True))
        if link not in links and not names & {*place.split("->")}
    ]
    places, where = ([column[row] for row in rows] for column in (drops.place, drops.where))
    return EmulatorDrops(drops.link[rows], places, where, drops.packets[rows])


_DEGRADING = ("cable", "socket", "host", "port", "dead")
_COUNTED = (*_DEGRADING, "restart")
_NOT_COUNTED = ("switch", "queues")
"""In which ways a real network loses packets (`EmulatorDrops`): counted, or found because fewer
packets left a cable or a switch than came."""


def _places(lost: Mapping[str, int]) -> str:
    """Return where most packets were lost, in words."""
    worst = sorted(lost.items(), key=lambda item: -item[1])
    places = ", ".join(f"{packets:,} at {place}" for place, packets in worst[:_PLACES_NAMED])
    more = len(worst) - _PLACES_NAMED
    return f"{places} and at {more} more places" if more > 0 else places


@dataclass(frozen=True)
class Epoch:
    """An epoch that has ended: its number, from 0, and what each measurement found in it, by name
    (`testbed.measurements.measurement.Running.end_epoch`)."""

    number: int
    emulation: Emulation
    found: Mapping[str, Any]
    memory: Memory | None = None

    def record(self, config: Mapping[str, Any]) -> MemoryRecord:
        """Return the record of this epoch, or of the last ones up to it, if the run keeps one;
        ``config`` is the content of its ``config.json``."""
        assert self.memory is not None
        return MemoryRecord(config, self.memory, self.emulation)
