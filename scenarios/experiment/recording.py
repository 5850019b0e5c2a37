# SPDX-License-Identifier: Apache-2.0
"""Writes the record of a run with packets: its tables, from the counters of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from scenarios.experiment.setup import Emulation
from testbed.dataplane import CAUSES
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.pathbf import bloom_mask
from testbed.fabric.paths import PathSets
from testbed.measurements.canary.meters import upload_bytes
from testbed.measurements.canary.minus_meters import MinusMeter, Rules
from testbed.measurements.traces.path_discovery import assemble_paths, parse_time_exceeded
from testbed.network.network import EmulatorDrops, OwnLosses, Statistics
from testbed.network.virtual import DROP_CAUSES
from testbed.record.documents import Conservation, Network
from testbed.record.fabric_file import fabric_columns
from testbed.record.run_tables import PLANS
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
class Selected:
    """For each segment, the counts of an epoch's meters and the changes of its flows' rules,
    int64[S] each; see the table ``selection`` of `testbed.record.run_tables`."""

    packets: LongArray
    flows: LongArray
    rules: LongArray
    installed: LongArray
    removed: LongArray


@dataclass
class History:
    """The record of a run so far that the network itself does not keep.

    Attributes:
        rules: The DSM rules in force in each epoch.
        selection: The changes of these rules in each epoch.
        late_ns: The largest delay of the controller, in ns.
        slowdown: How many times slower than real time the run's clock was, from 1.
        collection_s: The seconds that each reading of the meters took.
        unread: Pairs (epoch, switch) whose meters were lost.
        sent: For each source, the packets that each flow had sent when last noted, int64[n_flows].
    """

    rules: list[tuple[int, Rules]] = field(default_factory=list)
    selection: list[Selected] = field(default_factory=list)
    late_ns: int = 0
    slowdown: float = 1.0
    collection_s: list[float] = field(default_factory=list)
    unread: list[tuple[int, int]] = field(default_factory=list)
    sent: dict[int, LongArray] = field(default_factory=dict)

    def reached(self, late_ns: int) -> None:
        """Note that an action was carried out ``late_ns`` (ns) after it was due."""
        self.late_ns = max(self.late_ns, late_ns)

    def note_selection(
        self, packets: LongArray, flows: LongArray, rules: LongArray, removed: LongArray
    ) -> None:
        """Append an epoch's row of `Selected`; rules that the epoch before did not leave are
        new."""
        before = self.selection[-1:]
        left = before[0].rules - before[0].removed if before else 0
        self.selection.append(Selected(packets, flows, rules, rules - left, removed))

    def note_sent(self, emulation: Emulation) -> None:
        """Note the packets that each flow of each source has sent by now."""
        network = emulation.network
        numbers = emulation.sources.numbers
        self.sent = {source: network.sent(source).astype(np.int64) for source in numbers}


def record(emulation: Emulation, history: History, writer: Recorder, drained: bool = False) -> None:
    """Write all tables but the registers, from what is known up to now; ``drained`` says that no
    packet is under way any more."""
    sources, network = emulation.sources, emulation.network
    taken = network.fault_drops() + emulation.injector.dropped()  # asks every switch: once
    by_faults, by_emulator = _drops_of_packets(emulation, taken)
    drops = network.drops()
    data = drops[drops["source"] == sources.data]
    writer.text("truth.yaml", emulation.plan.to_yaml(emulation.topology))
    writer.table("fabric", fabric_columns(emulation.topology))
    writer.table("switches", _switches(emulation))
    writer.table("links", _links(emulation, taken, by_faults))
    if by_emulator is not None:
        writer.table("emulator_drops", vars(by_emulator))
    writer.table("rules", _rules(history))
    writer.table("selection", _selection(history))
    sent, lost = _sent_and_lost(emulation, history, sources.data)
    if emulation.tcp is not None:
        carried = emulation.transfers.flow
        sent[carried], lost[carried] = emulation.tcp.counts()
    writer.table("flows", _flows(emulation, sent, lost))
    writer.table("probe_paths", _probe_paths(emulation))
    writer.table("probe_counts", _probe_counts(emulation, history))
    writer.table("connections", _connections(emulation, lost))
    writer.table("drops", _drops(emulation, data))
    writer.json("network.json", _network(emulation, history, by_faults, by_emulator, drained))


def _sent_and_lost(
    emulation: Emulation, history: History, source: int
) -> tuple[LongArray, LongArray]:
    """Return the packets that each flow of a source sent and lost, int64[n_flows] each."""
    sent = history.sent[source]
    return sent, sent - np.minimum(emulation.network.delivered(source), sent)


def _switches(emulation: Emulation) -> Mapping[str, Any]:
    """Return the columns of the table ``switches``."""
    topology = emulation.topology
    return {
        "name": topology.switch_names,
        "id": emulation.ids,
        "mask": bloom_mask(emulation.ids),
        "ip": topology.switch_ip,
        "monitor": np.isin(np.arange(topology.n_switches), emulation.monitors),
    }


def _drops_of_packets(
    emulation: Emulation, taken: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.uint64], EmulatorDrops | None]:
    """Return the packets that faults dropped on each directed link, uint64[n_links], and those that
    the emulator dropped without a fault; None if the network never does.

    Args:
        taken: The packets that switches and injector say to have dropped, uint64[n_links].
    """
    network = emulation.network
    by_faults = taken.copy()
    own = network.emulator_drops(taken)
    if own is None:
        return by_faults, None
    assert isinstance(network, OwnLosses)
    return by_faults + network.corrupted(), own


def _links(
    emulation: Emulation, taken: npt.NDArray[np.uint64], by_faults: npt.NDArray[np.uint64]
) -> Mapping[str, Any]:
    """Return the columns of the table ``links``, with the counters of each directed link; see
    `_drops_of_packets`."""
    network, n = emulation.network, emulation.topology.n_links
    # A packet dropped at the link's begin did not cross it; a corrupted one did.
    taken = taken - _corrupted(emulation)
    rate = np.zeros(n)
    for fault in emulation.plan.faults:
        rate[fault.link] = max(rate[fault.link], fault.rate)
    return {
        "name": emulation.topology.link_names,
        "faulty": np.isin(np.arange(n), emulation.plan.links),
        "rate": rate,
        "packets": network.link_packets() + taken,
        "fault_drops": by_faults,
        "queue_drops": network.queue_drops(),
    }


def _corrupted(emulation: Emulation) -> npt.NDArray[np.uint64]:
    """Return, for each directed link, those packets of `Network.fault_drops` that crossed the link
    and were discarded behind it, uint64[n_links]."""
    drops, n = emulation.network.drops(), emulation.topology.n_links
    links = drops["link"][drops["cause"] == CAUSES["corrupt"]]
    return np.bincount(links, minlength=n)[:n].astype(np.uint64)


def _rules(history: History) -> Mapping[str, Any]:
    """Return the columns of the table ``rules``: the DSM rules in force in each epoch."""
    epoch = [np.full(len(rules), number, np.int32) for number, rules in history.rules]
    columns = {
        name: np.concatenate([getattr(rules, name) for _, rules in history.rules])
        for name in ("flow_hi", "flow_lo", "segment")
    }
    return {"epoch": np.concatenate(epoch), **columns}


def _selection(history: History) -> Mapping[str, Any]:
    """Return the columns of the table ``selection``; rows with only zeros are left out."""
    names = [each.name for each in fields(Selected)]
    counts = np.array([[getattr(each, name) for name in names] for each in history.selection])
    epoch, segment = np.nonzero(counts.any(axis=1))
    number = np.array([number for number, _ in history.rules])
    columns = {name: counts[epoch, n, segment] for n, name in enumerate(names)}
    return {"epoch": number[epoch], "segment": segment, **columns}


def _flows(emulation: Emulation, sent: LongArray, lost: LongArray) -> Mapping[str, Any]:
    """Return the columns of the table ``flows``, with the packets that each flow sent and lost."""
    topology, traffic = emulation.topology, emulation.sources.traffic
    return {
        "src_host": traffic.src_host,
        "dst_host": traffic.dst_host,
        "src_port": traffic.src_port,
        "dst_port": traffic.dst_port,
        "protocol": traffic.protocol,
        "src_tor": topology.host_tor[traffic.src_host],
        "dst_tor": topology.host_tor[traffic.dst_host],
        "sent": sent,
        "lost": lost,
    }


def _probe_paths(emulation: Emulation) -> Mapping[str, Any]:
    """Return NetBouncer's bounces, by ToR and core switch, followed by deTector's paths."""
    bounces = Ecmp(emulation.topology).bounces()
    matrix = emulation.sources.matrix.paths
    return {
        "plan": [PLANS[0]] * len(bounces) + [PLANS[1]] * len(matrix),
        "path": PathSets.join([PathSets.known(p) for p in (bounces, matrix)]).paths,
    }


def _probe_counts(emulation: Emulation, history: History) -> Mapping[str, Any]:
    """Return the columns of the table ``probe_counts``: probes sent and lost on each path."""
    topology, sources = emulation.topology, emulation.sources
    probes, matrix = sources.probes, sources.matrix
    n_bouncing = len(topology.bouncing)
    bounce = topology.host_tor[probes.host] * n_bouncing + probes.core
    counts = (
        _sent_and_lost(emulation, history, source)
        for source in (sources.probing, sources.probing_matrix)
    )
    sent, lost = (np.concatenate(part) for part in zip(*counts, strict=True))
    return {
        "path": np.concatenate((bounce, len(Ecmp(topology).to_top) + matrix.path)),
        "src_host": np.concatenate((probes.host, matrix.src_host)),
        "dst_host": np.concatenate((probes.host, matrix.dst_host)),
        "sent": sent,
        "lost": lost,
    }


def _drops(emulation: Emulation, drops: npt.NDArray[Any]) -> Mapping[str, Any]:
    """Return every lost packet of the traffic, with the epoch in which its upstream counted it; -1
    if none did."""
    epoch = emulation.clock.epoch_of(drops["time_ns"], drops["parity"])
    cause = np.searchsorted(sorted(DROP_CAUSES), drops["cause"])
    return {
        "time_ns": drops["time_ns"],
        "flow": drops["tag"].astype(np.int32),
        "link": drops["link"].astype(np.int32),
        "cause": Texts(cause, [DROP_CAUSES[number] for number in sorted(DROP_CAUSES)]),
        "counted": drops["counted"] == 1,
        "epoch": np.where(drops["counted"] == 1, epoch, -1).astype(np.int32),
    }


def _connections(emulation: Emulation, lost: LongArray) -> Mapping[str, Any]:
    """Return the connections with loss that 007 traced, and how far each trace got."""
    traffic, topology = emulation.sources.traffic, emulation.topology
    replies = parse_time_exceeded(emulation.network.replies()["data"], topology)
    traced = np.flatnonzero(emulation.agents.traced & (lost > 0))
    paths = assemble_paths(topology, traffic, traced, replies)
    src, dst = (topology.host_tor[h[traced]] for h in (traffic.src_host, traffic.dst_host))
    return {
        "flow": traced,
        "path": paths,
        "complete": paths.length == topology.hops(src, dst),
    }


def _network(
    emulation: Emulation,
    history: History,
    by_faults: npt.NDArray[np.uint64],
    by_emulator: EmulatorDrops | None,
    drained: bool,
) -> Network:
    """Return the content of ``network.json``: counters of the whole network."""
    statistics, selector = emulation.network.statistics, emulation.selector
    # A real network counts packets that its fault tables dropped, but none of netem or nftables.
    real = emulation.inputs.real_time
    fault_drops = int(by_faults.sum()) if real else statistics.fault_drops
    exchanged = selector.exchanged
    meters = upload_bytes(len(emulation.monitors)) * len(history.rules)
    conservation = _conservation(statistics, fault_drops, by_emulator, drained)
    network: Network = {
        "fabric": emulation.topology.title,
        "hosts_per_tor": emulation.topology.hosts_per_tor,
        "epochs": len(history.rules),
        "packet_hops": statistics.packet_hops,
        "conservation": conservation,
        "other_drops": statistics.other_drops,
        "misdelivered": statistics.misdelivered,
        "in_flight": statistics.in_flight,
        "degraded": _degraded(emulation, history, by_emulator, conservation.get("unaccounted", 0)),
        "controller_late_ms": history.late_ns // 1_000_000,
        "collection_seconds": history.collection_s,
        "unread": history.unread,
        "events": [*emulation.events.in_words(), *_dropped_in_restarts(by_emulator)],
        "restarted": emulation.events.void(len(history.rules)),
        "rerouted": emulation.events.rerouted(len(history.rules)),
        "flows_a_segment": int(np.min(selector.parameters.most)),
        "rules_installed": selector.installed,
        "rules_removed": selector.removed,
        "rules_refused": selector.refused,
        "digests": exchanged.digests,
        "counters_read": exchanged.counters,
        "control_bytes": exchanged.bytes,
        "canary_bytes": meters + exchanged.bytes,
        "traceroute_packets": emulation.agents.packets,
        "icmp_messages": len(emulation.network.replies()),
        "tcp": None if emulation.tcp is None else emulation.tcp.report(),
    }
    if real:
        network["slowdown"] = history.slowdown
        links, hosts = emulation.events.switched_off()
        network["links_off"], network["hosts_off"] = sorted(links), sorted(hosts)
    else:  # real switches do not report the answers that they withheld
        drops = emulation.network.drops()
        network["icmp_refused"] = refused = int((drops["cause"] == CAUSES["ttl"]).sum())
        network["icmp_messages"] = statistics.ttl_drops - refused
    return network


def _conservation(
    statistics: Statistics, fault_drops: int, by_emulator: EmulatorDrops | None, drained: bool
) -> Conservation:
    """Return the packets sent and what became of them; once the network has drained, also how many
    of them no counter has."""
    counts = {
        "sent": statistics.sent,
        "delivered": statistics.delivered,
        "fault_drops": fault_drops,
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
    """An epoch that has ended: its number, from 0, and the packets that each flow lost on its
    segment (Canary's minus meter)."""

    number: int
    emulation: Emulation
    meter: MinusMeter
