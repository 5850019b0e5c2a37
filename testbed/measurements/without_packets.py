# SPDX-License-Identifier: Apache-2.0
"""Simulates a run without packets: flows, probes, traces and meters over links that lose packets.

The hosts' flows are drawn, or a sample of them if they are more than a run keeps; their packets are
lost on each link independently. The probes are NetBouncer's and deTector's, and 007 traces the
flows that lost packets. Canary's meters count what its selection of flows would count; this is
drawn separately from the sample of flows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, FloatArray, LongArray
from testbed.dataplane.adapted import IcmpLimit
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.paths import Paths, PathSets
from testbed.fabric.segments import Segments, segment_share, segments
from testbed.faults.plan import FaultPlan
from testbed.measurements.canary.metering import Metered, meter, meter_upload
from testbed.measurements.canary.meters import Exchanged
from testbed.measurements.canary.selection import SelectionParameters
from testbed.measurements.matrix.probe_matrix import standard_matrix
from testbed.measurements.traces.flow_traces import Traces, trace
from testbed.network.flow import Carried, FlowRecords, Observation, link_loss, send
from testbed.record.documents import Network
from testbed.record.fabric_file import fabric_columns
from testbed.record.run import RunWriter, segment_columns
from testbed.record.run_tables import PLANS
from testbed.traffic.generator import PAYLOAD, FlowProcess


@dataclass(frozen=True)
class FlowInputs:
    """The inputs of a run without packets.

    Attributes:
        fabric: The fabric.
        monitor: Which of its switches host meters, bool[n_switches].
        plan, noise: The faults, and the loss rate of each healthy directed link,
            float64[n_links].
        process: The random process by which flows arrive.
        epochs, epoch_ms: The number of epochs, and their length in milliseconds.
        selection: Parameters of Canary's selection of flows.
        probes: Probes of each host over each path of NetBouncer's plan.
        icmp: Limit on a switch's answers to traceroutes.
        traces_per_s: Traceroutes per second that each host may send.
        seed: Seed of all random draws but those of ``noise`` and ``process``.
        flows: The largest mean number of flow records.
    """

    fabric: Fabric
    monitor: BoolArray
    plan: FaultPlan
    noise: FloatArray
    process: FlowProcess
    epochs: int
    epoch_ms: int
    selection: SelectionParameters
    probes: int
    icmp: IcmpLimit
    traces_per_s: float
    seed: int
    flows: int

    @property
    def duration_s(self) -> float:
        """Return the length of the run in seconds: number of epochs times their length."""
        return self.epochs * self.epoch_ms / 1000


@dataclass(frozen=True)
class FlowRun:
    """A run without packets: its faults, its measurements, and what the links carried.

    Attributes:
        config: The settings of the run by name, as in ``config.json``.
        plan: The faults.
        loss: The loss rate of each link in each epoch, float64[1 or E, n_links].
        measured: The measurements.
        flows, probes, matrix: The packets that crossed and were lost on each link, of flows, of
            NetBouncer's probes and of deTector's.
        metered: The counts of Canary's meters.
        canary_bytes: Bytes that Canary uploads in all epochs.
        traces: 007's traces, and their cost.
        recorded: The share of all flows that has a record, from 0 to 1.
    """

    config: Mapping[str, Any]
    plan: FaultPlan
    loss: FloatArray
    measured: Observation
    flows: Carried
    probes: Carried
    matrix: Carried
    metered: Metered
    canary_bytes: int
    traces: Traces
    recorded: float

    # ---- its record (`testbed.record.run.Record`) --------------------------------------------

    @property
    def fabric(self) -> Fabric:
        """Return the fabric whose links lose packets in this run."""
        return self.measured.fabric

    @property
    def segments(self) -> Segments:
        """Return the path segments between switches with meters."""
        return self.measured.segments

    def has(self, name: str) -> bool:
        """Return whether the record has the table ``name``."""
        return name in _TABLES

    def table(self, name: str) -> Mapping[str, Any]:
        """Return the columns of a table of the record."""
        return _TABLES[name](self)

    @property
    def network(self) -> Network:
        """Return the content of ``network.json``: counters of the whole network."""
        measured = self.measured
        sent = (
            measured.flows.sent.sum()
            + measured.probed_sent.sum(dtype=np.int64)
            + measured.matrix_sent.sum()
        )
        lost = int(sum(one.lost.sum() for one in (self.flows, self.probes, self.matrix)))
        return {
            "fabric": measured.fabric.title,
            "epochs": len(measured.metered_sent),
            "packet_hops": int(self._crossed("packets").sum()),
            "conservation": {
                "sent": int(sent),
                "delivered": int(sent) - lost,
                "fault_drops": int(self._crossed("drops").sum()),
                "queue_drops": 0,
                "ttl_drops": 0,
            },
            "degraded": [],
            "collection_seconds": [],
            "rules_installed": int(self.metered.installed.sum()),
            "rules_removed": int(self.metered.removed.sum()),
            "rules_refused": 0,
            "digests": int(self.metered.installed.sum()),
            "counters_read": int(self.metered.watched.sum()),
            "control_bytes": _control(self.metered),
            "beta_reached": int(self.metered.reached.sum()),
            "canary_bytes": self.canary_bytes,
            "traceroute_packets": self.traces.packets,
            "icmp_messages": self.traces.answers,
            "icmp_refused": self.traces.refused,
            "flows_recorded": self.recorded,
        }

    def _crossed(self, what: str) -> LongArray:
        """Return, for each link, the sum over all packets of ``packets`` (that began to cross it)
        or ``drops`` (that were lost on it), int64[n_links]."""
        every = (self.flows, self.probes, self.matrix)
        return np.sum([getattr(one, what) for one in every], axis=0)


# Long: each step of a run needs the results of the steps before it.
def simulate(
    inputs: FlowInputs,
    config: Mapping[str, Any],
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> FlowRun:
    """Simulate a run and return it; equal inputs give an equal run.

    Args:
        inputs: The inputs of the run.
        config: The settings that its record shall have.
        progress: Called with the name of each step and the progress, from 0 to 1.

    Raises:
        testbed.faults.plan.FaultError: A fault needs packets (one line).
    """
    progress("paths", 0.0)
    fabric, seed, n_probes = inputs.fabric, inputs.seed, inputs.probes
    process, epoch_s = inputs.process, inputs.epoch_ms / 1000
    ecmp = Ecmp(fabric)
    parts = segments(ecmp, inputs.monitor)
    loss = link_loss(fabric, inputs.plan, inputs.epochs, epoch_s, inputs.noise)
    with ThreadPoolExecutor(1) as pool:
        planning = pool.submit(standard_matrix, fabric)  # takes as long as all other steps
        progress("flows", 0.1)
        host, (start_s, end_s), records, carried = _send_flows(ecmp, loss, inputs)
        traces = trace(
            ecmp,
            loss,
            host,
            start_s,
            end_s,
            records.paths,
            records.lost,
            epoch_s=epoch_s,
            until_s=inputs.duration_s,
            per_s=inputs.traces_per_s,
            icmp=inputs.icmp,
            rng=_rng(seed, 4),
        )
        progress("probes", 0.4)
        paths = ecmp.bounces()
        hosts = np.repeat(np.arange(len(paths), dtype=np.int32), fabric.hosts_per_tor)
        probes = _send_probes(loss, paths, hosts, n_probes, _rng(seed, 6))
        progress("meters", 0.6)
        metered, lost = _meter(ecmp, loss, parts, inputs)
        planned = planning.result().both_ways
    each = max(1, len(hosts) * n_probes // max(len(planned), 1))  # as many as NetBouncer sends
    rows = np.arange(len(planned), dtype=np.int32)
    matrix = _send_probes(loss, planned, rows, each, _rng(seed, 7))
    shape = (len(paths), fabric.hosts_per_tor)
    measured = Observation(
        fabric=fabric,
        segments=parts,
        metered_sent=metered.sent,
        metered_lost=lost,
        flows=records,
        bounces=paths,
        probed_sent=np.full(shape, n_probes, np.int32),
        probed_lost=probes.lost.astype(np.int32).reshape(shape),
        matrix=planned,
        matrix_sent=np.full(len(planned), each, np.int64),
        matrix_lost=matrix.lost,
        traced=traces.flow,
        trace_paths=traces.paths,
        trace_complete=traces.complete,
    )
    upload = _upload(metered, parts, inputs.epochs)
    recorded = process.recorded(inputs.duration_s, inputs.flows)
    return FlowRun(
        config,
        inputs.plan,
        loss,
        measured,
        carried,
        probes,
        matrix,
        metered,
        upload,
        traces,
        recorded,
    )


def _upload(metered: Metered, parts: Segments, epochs: int) -> int:
    """Return the bytes that Canary uploads in all epochs: meters, digests, changes of rules and
    their counters."""
    return meter_upload(metered, parts) * epochs + _control(metered)


def _control(metered: Metered) -> int:
    """Return the bytes of digests, of changes of rules, and of the rules' counters that are read.
    Each reported flow is selected, and a flow is on one segment of an upstream."""
    selected = int(metered.installed.sum())
    changes = selected + int(metered.removed.sum())
    return Exchanged(selected, changes, changes, usm_counters=int(metered.watched.sum())).bytes


def write_run(run: FlowRun, writer: RunWriter) -> None:
    """Write the record of a run without its diagnoses."""
    writer.text("truth.yaml", run.plan.to_yaml(run.fabric))
    with ThreadPoolExecutor(2) as pool:  # Arrow compresses each table on one core only
        list(pool.map(lambda name: writer.table(name, run.table(name)), _TABLES))
    writer.json("network.json", run.network)


def _links(run: FlowRun) -> Mapping[str, Any]:
    """Return the columns of the table ``links``, with the counters of each directed link."""
    n = run.fabric.n_links
    return {
        "name": run.fabric.link_names,
        "faulty": np.isin(np.arange(n), run.plan.links),
        "rate": run.loss.mean(axis=0),
        "packets": run._crossed("packets"),
        "fault_drops": run._crossed("drops"),
        "queue_drops": np.zeros(n, np.int64),
    }


def _flows(run: FlowRun) -> Mapping[str, Any]:
    """Return the columns of the table ``flows``, with the path of each flow."""
    flows = run.measured.flows
    return {
        "src_tor": flows.src_tor,
        "dst_tor": flows.dst_tor,
        "sent": flows.sent,
        "lost": flows.lost,
        "path": flows.paths,
    }


def _probe_paths(run: FlowRun) -> Mapping[str, Any]:
    """Return the columns of the table ``probe_paths``: NetBouncer's paths, then deTector's."""
    bounces, matrix = run.measured.bounces, run.measured.matrix
    return {
        "plan": [PLANS[0]] * len(bounces) + [PLANS[1]] * len(matrix),
        "path": PathSets.join([PathSets.known(p) for p in (bounces, matrix)]).paths,
    }


def _probe_counts(run: FlowRun) -> Mapping[str, Any]:
    """Return the columns of the probes: NetBouncer's for every host of the path's ToR, deTector's
    with host -1."""
    measured, n_hosts = run.measured, run.fabric.hosts_per_tor
    n_bounces, n_matrix = len(measured.bounces), len(measured.matrix)
    tor = run.fabric.link_src[measured.bounces.links[measured.bounces.ptr[:-1]]]
    host = (tor[:, None] * n_hosts + np.arange(n_hosts, dtype=np.int32)).reshape(-1)
    host = np.concatenate((host, np.full(n_matrix, -1, np.int32)))
    path = np.arange(n_bounces + n_matrix, dtype=np.int32)
    times = np.repeat([n_hosts, 1], [n_bounces, n_matrix])
    return {
        "path": np.repeat(path, times),
        "src_host": host,
        "dst_host": host,
        "sent": np.concatenate((measured.probed_sent.reshape(-1), measured.matrix_sent)),
        "lost": np.concatenate((measured.probed_lost.reshape(-1), measured.matrix_lost)),
    }


def _connections(run: FlowRun) -> Mapping[str, Any]:
    """Return the columns of the table ``connections``: the flows that 007 traced."""
    measured = run.measured
    return {
        "flow": measured.traced,
        "path": measured.trace_paths,
        "complete": measured.trace_complete,
    }


_TABLES: Mapping[str, Callable[[FlowRun], Mapping[str, Any]]] = {
    "fabric": lambda run: fabric_columns(run.fabric),
    "links": _links,
    "segments": lambda run: segment_columns(run.measured.metered_sent, run.measured.metered_lost),
    "flows": _flows,
    "probe_paths": _probe_paths,
    "probe_counts": _probe_counts,
    "connections": _connections,
}


def _rng(seed: int, part: int) -> np.random.Generator:
    """Return the random generator of one part of the simulation."""
    return np.random.default_rng([seed, 0xF10, part])


def _send_flows(
    ecmp: Ecmp, loss: FloatArray, inputs: FlowInputs
) -> tuple[npt.NDArray[np.int32], tuple[FloatArray, FloatArray], FlowRecords, Carried]:
    """Return the sending hosts, int32[F], the times in seconds when flows begin and end to send,
    float64[F] each, the flow records, and the packets on each link. Flows are cut at the end of the
    run."""
    duration_s, seed = inputs.duration_s, inputs.seed
    flows = inputs.process.draw(duration_s, _rng(seed, 1), inputs.flows)
    fitting = np.ceil((duration_s - flows.start_s) * flows.rate_bps / 8 / PAYLOAD)
    sent = np.maximum(np.minimum(flows.frames, fitting), 1).astype(np.int64)
    src, dst = (host // ecmp.fabric.hosts_per_tor for host in (flows.src, flows.dst))
    paths = ecmp.draw(src, dst, _rng(seed, 2))
    epoch = (flows.start_s * 1000 / inputs.epoch_ms).astype(np.int32)
    carried = send(loss, paths, sent, _rng(seed, 3), epoch=epoch)
    end_s = np.minimum(flows.start_s + sent * 8 * PAYLOAD / flows.rate_bps, duration_s)
    times = flows.start_s, end_s
    return flows.src, times, FlowRecords(src, dst, sent, carried.lost, paths), carried


def _meter(
    ecmp: Ecmp, loss: FloatArray, parts: Segments, inputs: FlowInputs
) -> tuple[Metered, npt.NDArray[np.int32]]:
    """Return the counts of Canary's meters, and the packets lost on each segment in each epoch,
    int32[E, S]."""
    process, seed = inputs.process, inputs.seed
    share = segment_share(ecmp, process.pair_share(), parts)
    success = _success(loss, parts.paths)
    metered = meter(
        process, share, success, inputs.epochs, inputs.epoch_ms / 1000, inputs.selection, seed
    )
    rng = _rng(seed, 5)
    lost = np.empty_like(metered.sent)
    for epoch, sent in enumerate(metered.sent):
        now = loss[min(epoch, len(loss) - 1)][None, :]
        lost[epoch] = send(now, parts.paths, sent, rng).lost
    return metered, lost


def _send_probes(
    loss: FloatArray,
    paths: Paths,
    path: npt.NDArray[np.int32],
    packets: int,
    rng: np.random.Generator,
) -> Carried:
    """Send ``packets`` probes over path ``path[i]`` for each i, spread evenly over the epochs."""
    parts = []
    for epoch, rates in enumerate(loss):
        now = packets * (epoch + 1) // len(loss) - packets * epoch // len(loss)
        parts.append(send(rates[None, :], paths, np.full(len(path), now), rng, path))
    fields = ("lost", "packets", "drops")
    return Carried(*(np.sum([getattr(part, name) for part in parts], axis=0) for name in fields))


def _success(loss: FloatArray, paths: Paths) -> FloatArray:
    """Return the probability that a packet crosses each path in each epoch, float64[1 or E, P]."""
    links = paths.padded()
    every = np.where(links >= 0, 1 - loss[:, np.maximum(links, 0)], 1.0)
    return every.prod(axis=2)
