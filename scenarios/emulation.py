"""The epoch loop: traffic flows, the meters are read, a diagnosis asks for more flows.

One pass over virtual time. It stops where something is due: a switch changes its epoch, a fault
begins or ends, the controller and 007's agents look after their work, an epoch's meters have
drained and are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.telemetry.minus_meters import MeterDump, Rules, minus_meter, segment_counts
from scenarios.backends import Backend, make_injector, make_tcp
from scenarios.settings import Settings, SettingsError
from testbed.control.collection import clear_hashpipe, collect, upload_bytes
from testbed.control.epochs import EpochClock, set_parity
from testbed.control.forwarding import install_forwarding
from testbed.control.selection import FlowSelector, SelectionParameters
from testbed.control.switch import batch
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pathbf import SegmentDecoder, bloom_mask, switch_ids
from testbed.faults.specification import FaultPlan
from testbed.network.sources import Source
from testbed.network.virtual import DROP_CAUSES
from testbed.probes.bounce_probes import ProbePlan, probe_plan
from testbed.probes.matrix_probes import MatrixProbes, matrix_probes
from testbed.probes.path_discovery import PathDiscovery
from testbed.probes.probe_matrix import standard_matrix
from testbed.probes.traceroute import assemble_paths, parse_time_exceeded
from testbed.record.run import RunWriter
from testbed.traffic.flows import Traffic
from testbed.traffic.packets import headers
from testbed.traffic.transfers import take_transfers

__all__ = ["Emulation"]

PROBE_PACKETS = 100  # a path (NetBouncer, section 6.1)


@dataclass
class Emulation:
    """A fat-tree of soft switches with its controller, faults, traffic, probes and agents.

    Args:
        settings: What to emulate.
        plan: The faults.
        traffic: The hosts' packets.
        backend: The network, up and idle.
    """

    settings: Settings
    plan: FaultPlan
    traffic: Traffic
    backend: Backend
    _agenda: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _rules: list[tuple[int, Any, Any, Any]] = field(default_factory=list)
    _late_ns: int = 0
    _collection_s: list[float] = field(default_factory=list)
    _unread: list[tuple[int, int]] = field(default_factory=list)
    _sent: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = self.settings
        self.topology = topology = FatTree(settings.k)
        self.segments = topology.segments(settings.monitors)
        self.ids = switch_ids(topology, self.segments, settings.seed)
        self.decoder = SegmentDecoder(topology, self.segments, self.ids)
        self.network = self.backend.network
        self.monitors = np.unique(self.segments.downstream).tolist()
        every = self.backend.controls
        masks = bloom_mask(self.ids).tolist()
        with batch(every):
            for index, control in enumerate(every):
                monitor = index in set(self.monitors)
                install_forwarding(topology, index, control, masks[index], monitor)
        self.clock = EpochClock(settings.epoch_ns, self.backend.skew_ns, settings.seed)
        self.injector = make_injector(settings, self.backend, self.plan)
        self._controls = {index: every[index] for index in self.monitors}
        parameters = SelectionParameters(
            settings.alpha, settings.beta, settings.delta, settings.eta
        )
        self.selector = FlowSelector(self.segments, self.decoder, self._controls, parameters)
        self._tick_ns = settings.epoch_ns // 50
        if self.backend.drain_ns + self.backend.skew_ns > settings.epoch_ns // 2:
            raise SettingsError(
                f"EPOCH_MS={settings.epoch_ms} is too short: packets need up to "
                f"{self.backend.drain_ns / 1e6:.0f} ms to leave a segment; use "
                f"{self.backend.drain_ns // 400_000}"
            )
        self._add_sources()

    def _add_sources(self) -> None:
        settings = self.settings
        self.traffic, self._transfers = take_transfers(
            self.traffic, settings.tcp, settings.seed, settings.line_rate_bps
        )
        traffic = self.traffic
        templates, lengths = headers(traffic, self.topology)
        lengths = lengths.astype(np.uint16)
        self._data = self.network.add_source(
            Source(
                time_ns=traffic.time_ns,
                flow=traffic.flow,
                size=traffic.size,
                templates=templates,
                template_length=lengths,
                src_host=traffic.src_host,
                dst_host=traffic.dst_host,
            )
        )
        self.probes: ProbePlan = probe_plan(
            self.topology, settings.duration_s, packets=PROBE_PACKETS, seed=settings.seed
        )
        pairs = self.probes.frames
        self._probe_source = self.network.add_source(
            Source(
                time_ns=self.probes.time_ns,
                flow=self.probes.pair,
                templates=pairs,
                template_length=np.full(len(pairs), pairs.shape[1], np.uint16),
                src_host=self.probes.host,
                dst_host=self.probes.host,
            )
        )
        self.matrix: MatrixProbes = matrix_probes(
            self.topology,
            standard_matrix(self.topology),
            settings.duration_s,
            packets=len(self.probes.time_ns),  # as many as NetBouncer's
            seed=settings.seed,
        )
        frames = self.matrix.frames
        self._matrix_source = self.network.add_source(
            Source(
                time_ns=self.matrix.time_ns,
                flow=self.matrix.flow,
                templates=frames,
                template_length=np.full(len(frames), frames.shape[1], np.uint16),
                src_host=self.matrix.src_host,
                dst_host=self.matrix.dst_host,
            )
        )
        self.agents = PathDiscovery(self.network, traffic, self._data, settings.epoch_ns)
        self.tcp = make_tcp(settings, self.backend, traffic, self._transfers)

    # ---- the loop ----------------------------------------------------------------------------

    def run(self, writer: RunWriter, progress: Callable[[float], None]) -> None:
        """Run all epochs and write what was seen.

        Args:
            writer: Gets the registers after every epoch and everything else at the end; in real
                time everything after every epoch, for an interruption loses only what follows.
            progress: Called with the share of virtual time that has passed.
        """
        with batch(self.backend.controls):
            self.injector.start()
            self.selector.plan(*(np.zeros(len(self.segments), np.int64) for _ in range(2)))
        self._schedule(writer)
        if self.tcp is not None:
            self.tcp.prepare()
        self.network.start()
        if self.tcp is not None:
            self.tcp.start()
        end = self._agenda[-1][0]
        for at, _, action in self._agenda:
            self.network.run_until(at)
            self._late_ns = max(self._late_ns, self.network.now_ns - at)
            action()
            progress(at / end)
        if self.tcp is not None:
            self.tcp.stop()
        self.network.drain()
        self._note_sent()
        self._write(writer)

    def _schedule(self, writer: RunWriter) -> None:
        settings = self.settings
        period = settings.epoch_ns
        agenda: list[tuple[int, Callable[[], None]]] = []
        end = settings.epochs * period
        for seconds in self.injector.times():
            if 0 < seconds * 1e9 < end:
                agenda.append((round(seconds * 1e9), lambda s=seconds: self.injector.apply(s)))
        ticks = range(self._tick_ns, end + 6 * self._tick_ns, self._tick_ns)
        for at in ticks:
            agenda.append((at, lambda at=at: self._tick(at, at == ticks[-1])))
        for epoch in range(settings.epochs):
            for at, switch in self.clock.flips(epoch, self.monitors):
                control, parity = self._controls[switch], (epoch + 1) % 2
                agenda.append((at, lambda c=control, p=parity: set_parity(c, p)))
            collected = (epoch + 1) * period + self.backend.drain_ns
            agenda.append((collected, lambda e=epoch: self._end_epoch(e, writer)))
        agenda.sort(key=lambda item: item[0])
        self._agenda = [(at, order, action) for order, (at, action) in enumerate(agenda)]

    def _tick(self, now_ns: int, last: bool) -> None:
        if self.network.now_ns >= now_ns + self._tick_ns and not last:
            return  # late in real time: the next tick is due too, and does it all
        with batch(self._controls.values()):
            self.selector.poll(now_ns)
        self.agents.poll(now_ns, None if self.tcp is None else self.tcp.retransmitted())

    def _end_epoch(self, epoch: int, writer: RunWriter) -> None:
        self._note_sent()
        begin = time.perf_counter()
        dump = collect(self._controls, epoch % 2)
        if self.settings.real_time:
            self._collection_s.append(round(time.perf_counter() - begin, 3))
            gone = [s for s, control in self._controls.items() if getattr(control, "lost", "")]
            self._unread += [(epoch, switch) for switch in gone]
        hi, lo, segment = self.selector.in_force()
        self._rules.append((epoch, hi, lo, segment))
        writer.table(f"registers/epoch-{epoch:03d}", dump)
        with batch(self._controls.values()):
            self.selector.finish_retiring()
        meter = minus_meter(
            MeterDump(**dump), self.decoder.decode, self.segments, Rules(hi, lo, segment)
        )
        sent, _ = segment_counts(meter, len(self.segments))
        flows = np.bincount(meter.segment, minlength=len(self.segments))
        with batch(self._controls.values()):
            self.selector.plan(sent, flows)
            self.selector.retire_quiet()
        clear_hashpipe(self._controls)
        if self.settings.real_time:
            self._write(writer)

    # ---- the run directory -------------------------------------------------------------------

    def _write(self, writer: RunWriter) -> None:
        topology, traffic = self.topology, self.traffic
        statistics = self.network.statistics
        drops = self.network.drops()
        data = drops[drops["source"] == self._data]
        writer.text("truth.yaml", self.plan.to_yaml(topology))
        writer.table("switches", self._switch_columns())
        writer.table("links", self._link_columns())
        writer.table("rules", self._rule_columns())
        sent, lost = self._sent_and_lost(self._data)
        if self.tcp is not None:
            carried = self._transfers.flow
            sent[carried], lost[carried] = self.tcp.counts()
        writer.table(
            "flows",
            {
                "src_host": traffic.src_host,
                "dst_host": traffic.dst_host,
                "src_port": traffic.src_port,
                "dst_port": traffic.dst_port,
                "protocol": traffic.protocol,
                "src_tor": topology.host_tor[traffic.src_host],
                "dst_tor": topology.host_tor[traffic.dst_host],
                "sent": sent,
                "lost": lost,
            },
        )
        probes_sent, probes_lost = self._sent_and_lost(self._probe_source)
        writer.table(
            "probes",
            {
                "host": self.probes.host,
                "core": self.probes.core,
                "sent": probes_sent,
                "lost": probes_lost,
            },
        )
        matrix_sent, matrix_lost = self._sent_and_lost(self._matrix_source)
        writer.table(
            "detector",
            {
                "path": self.matrix.paths.take(self.matrix.path),
                "src_host": self.matrix.src_host,
                "dst_host": self.matrix.dst_host,
                "sent": matrix_sent,
                "lost": matrix_lost,
            },
        )
        writer.table("connections", self._connection_columns(lost))
        writer.table("drops", self._drop_columns(data))
        writer.json(
            "network.json",
            {
                "epochs": len(self._rules),
                "packet_hops": statistics.packet_hops,
                "conservation": {
                    "sent": statistics.sent,
                    "delivered": statistics.delivered,
                    "fault_drops": statistics.fault_drops,
                    "queue_drops": statistics.queue_drops,
                    "ttl_drops": statistics.ttl_drops,
                },
                "other_drops": statistics.other_drops,
                "misdelivered": statistics.misdelivered,
                "in_flight": statistics.in_flight,
                "degraded": self._degraded(),
                "controller_late_ms": self._late_ns // 1_000_000,
                "collection_seconds": self._collection_s,
                "unread": self._unread,
                "rules_installed": self.selector.installed,
                "rules_removed": self.selector.removed,
                "canary_bytes": upload_bytes(len(self.monitors)) * self.settings.epochs,
                "traceroute_packets": self.agents.packets,
                "tcp": None if self.tcp is None else self.tcp.report(),
            },
        )

    def _note_sent(self) -> None:
        """What is lost is told of packets sent by now, which arrive while the meters are read."""
        sources = (self._data, self._probe_source, self._matrix_source)
        self._sent = {source: self.network.sent(source).astype(np.int64) for source in sources}

    def _sent_and_lost(self, source: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        sent = self._sent[source]
        return sent, sent - np.minimum(self.network.delivered(source), sent)

    def _degraded(self) -> list[str]:
        """What makes this run's measurements incomplete, in words."""
        found = list(self.network.degraded)
        if self._late_ns > self.settings.epoch_ns // 3:
            late = self._late_ns / 1e9
            found.append(f"the controller was {late:.1f} s late: use a longer EPOCH_MS")
        return found

    def _switch_columns(self) -> dict[str, Any]:
        topology = self.topology
        return {
            "name": topology.switch_names,
            "id": self.ids,
            "mask": bloom_mask(self.ids),
            "ip": topology.switch_ip,
            "monitor": np.isin(np.arange(topology.n_switches), self.monitors),
        }

    def _link_columns(self) -> dict[str, Any]:
        n = self.topology.n_links
        rate = np.zeros(n)
        for fault in self.plan.faults:
            rate[fault.link] = max(rate[fault.link], fault.rate)
        return {
            "name": self.topology.link_names,
            "faulty": np.isin(np.arange(n), self.plan.links),
            "rate": rate,
            "packets": self.network.link_packets(),
            "fault_drops": self.network.fault_drops(),
            "queue_drops": self.network.queue_drops(),
        }

    def _rule_columns(self) -> dict[str, Any]:
        epoch = [np.full(len(segment), e, np.int32) for e, _, _, segment in self._rules]
        names = ("flow_hi", "flow_lo", "segment")
        parts = zip(*(rules[1:] for rules in self._rules), strict=True)
        columns = {name: np.concatenate(part) for name, part in zip(names, parts, strict=True)}
        return {"epoch": np.concatenate(epoch), **columns}

    def _drop_columns(self, drops: npt.NDArray[Any]) -> dict[str, Any]:
        """Every lost packet of the traffic, with the epoch its upstream counted it in."""
        epoch = self.clock.epoch_of(drops["time_ns"], drops["parity"])
        return {
            "time_ns": drops["time_ns"],
            "flow": drops["tag"].astype(np.int32),
            "link": drops["link"].astype(np.int32),
            "cause": [DROP_CAUSES[int(cause)] for cause in drops["cause"]],
            "counted": drops["counted"] == 1,
            "epoch": np.where(drops["counted"] == 1, epoch, -1).astype(np.int32),
        }

    def _connection_columns(self, lost: npt.NDArray[np.int64]) -> dict[str, Any]:
        """007's connections with loss that were traced, and how far the trace got."""
        traffic, topology = self.traffic, self.topology
        replies = parse_time_exceeded(self.network.replies()["data"], topology)
        traced = np.flatnonzero(self.agents.traced & (lost > 0))
        paths = assemble_paths(topology, traffic, traced, replies)
        src, dst = (topology.host_tor[h[traced]] for h in (traffic.src_host, traffic.dst_host))
        length = np.where(src // topology.half == dst // topology.half, 2, 4)
        return {
            "flow": traced.astype(np.int32),
            "src_tor": src,
            "dst_tor": dst,
            "lost": lost[traced],
            "path": paths,
            "complete": np.diff(paths.ptr) == length,
        }
