# SPDX-License-Identifier: Apache-2.0
"""Simulates a run without packets: flows over links that lose packets, and its measurements.

The hosts' flows are drawn, or a sample of them if they are more than a run keeps; their packets are
lost on each link independently. Each measurement then draws its tables
(`testbed.measurements.measurement.Measurement.simulate`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.host_links import HostFabric
from testbed.fabric.segments import Segments, segments
from testbed.faults.plan import FaultError, FaultPlan
from testbed.measurements.measurement import (
    Limits,
    Measurement,
    Simulated,
    SimulatedRun,
    random_part,
)
from testbed.measurements.tables import joined
from testbed.network.flow import Carried, FlowRecords, link_loss, send
from testbed.record.documents import Network
from testbed.record.fabric_file import fabric_columns
from testbed.record.run import RunWriter
from testbed.record.tables import Columns
from testbed.traffic.generator import PAYLOAD, FlowProcess


@dataclass(frozen=True)
class FlowInputs:
    """The inputs of a run without packets.

    Attributes:
        fabric: The fabric.
        monitor: Which of its switches host meters, bool[n_switches]; if hosts do, they follow.
        plan, noise: The faults, and the loss rate of each healthy directed link,
            float64[n_links].
        process: The random process by which flows arrive.
        epochs, epoch_ms: The number of epochs, and their length in milliseconds.
        measurements: What is measured, in the order of the record.
        limits: What measurements may do.
        seed: Seed of all random draws but those of ``noise`` and ``process``.
        records: The largest mean number of flow records.
    """

    fabric: Fabric
    monitor: BoolArray
    plan: FaultPlan
    noise: FloatArray
    process: FlowProcess
    epochs: int
    epoch_ms: int
    measurements: Sequence[Measurement]
    limits: Limits
    seed: int
    records: int

    @property
    def duration_s(self) -> float:
        """Return the length of the run in seconds: number of epochs times their length."""
        return self.epochs * self.epoch_ms / 1000

    @property
    def whole(self) -> Fabric:
        """Return the fabric with its hosts, if one of their links is faulty or has meters."""
        return self.plan.whole(self.fabric, len(self.monitor) > self.fabric.n_switches)


@dataclass(frozen=True)
class FlowRun:
    """A run without packets: its faults, its measurements, and what the links carried.

    Attributes:
        config: The settings of the run by name, as in ``config.json``.
        plan: The faults.
        loss: The loss rate of each link of ``whole`` in each epoch, float64[1 or E, n_links].
        epochs: The number of epochs.
        fabric: The fabric.
        whole: The same with its hosts, if a link of a host is faulty or has meters.
        segments: The path segments between switches with meters.
        hosts: The sender and the receiver of each of the flows, int32[F] each.
        flows: A sample of the traffic.
        carried: The packets of these flows that crossed and were lost on each link.
        found: What each measurement found, by its name.
    """

    config: Mapping[str, Any]
    plan: FaultPlan
    loss: FloatArray
    epochs: int
    fabric: Fabric
    whole: Fabric
    segments: Segments
    hosts: tuple[IntArray, IntArray]
    flows: FlowRecords
    carried: Carried
    found: Mapping[str, Simulated]

    # ---- its record (`testbed.record.run.Record`) --------------------------------------------

    def has(self, name: str) -> bool:
        """Return whether the record has the table ``name``."""
        return name in self.tables

    def table(self, name: str) -> Mapping[str, Any]:
        """Return the columns of a table of the record."""
        return self.tables[name]

    @cached_property
    def tables(self) -> Mapping[str, Columns]:
        """Return all tables of the record by name."""
        flows = self.flows
        src_host, dst_host = self.hosts
        known = self.whole is not self.fabric
        ends = {"src_host": src_host, "dst_host": dst_host} if known else {}
        return {
            "fabric": fabric_columns(self.fabric),
            "links": self._links(),
            "flows": {
                **ends,
                "src_tor": flows.src_tor,
                "dst_tor": flows.dst_tor,
                "sent": flows.sent,
                "lost": flows.lost,
                "path": flows.paths,
            },
            **joined(each.tables for each in self.found.values()),
        }

    @property
    def network(self) -> Network:
        """Return the content of ``network.json``: counters of the whole network."""
        sent = int(self.flows.sent.sum()) + sum(each.sent for each in self.found.values())
        lost = int(sum(each.lost.sum() for each in self._carried))
        network: Network = {
            "fabric": self.fabric.title,
            "epochs": self.epochs,
            "packet_hops": int(self._crossed("packets").sum()),
            "conservation": {
                "sent": sent,
                "delivered": sent - lost,
                "fault_drops": int(self._crossed("drops").sum()),
                "queue_drops": 0,
                "ttl_drops": 0,
            },
            "degraded": [],
            "collection_seconds": [],
            "canary_bytes": 0,
            "traceroute_packets": 0,
        }
        if self.whole is not self.fabric:
            network["host_links"] = True
            network["hosts_per_tor"] = self.fabric.hosts_per_tor
        figures: dict[str, Any] = {}
        for each in self.found.values():
            figures |= each.figures
        return {**network, **figures}  # type: ignore[typeddict-item]

    @property
    def _carried(self) -> list[Carried]:
        own = [each.carried for each in self.found.values()]
        return [self.carried, *(each for each in own if each is not None)]

    def _crossed(self, what: str) -> LongArray:
        """Return, for each link, the sum over all packets of ``packets`` (that began to cross it)
        or ``drops`` (that were lost on it), int64[n_links]."""
        return np.sum([getattr(one, what) for one in self._carried], axis=0)

    def _links(self) -> Columns:
        """Return the columns of the table ``links``, with the counters of each directed link."""
        n = self.whole.n_links
        return {
            "name": self.whole.link_names,
            "faulty": np.isin(np.arange(n), self.plan.links),
            "rate": self.loss.mean(axis=0),
            "packets": self._crossed("packets"),
            "fault_drops": self._crossed("drops"),
            "queue_drops": np.zeros(n, np.int64),
        }


# Long: each step needs the results of the steps before it.
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
        UserError: A measurement needs packets (one line).
    """
    progress("paths", 0.0)
    fabric, epoch_s = inputs.fabric, inputs.epoch_ms / 1000
    ecmp = Ecmp(fabric)
    parts = segments(ecmp, inputs.monitor)
    whole = inputs.whole
    hosts = whole if isinstance(whole, HostFabric) else None
    if hosts is not None and fabric.hosts_per_tor > _MOST_HOSTS:
        raise FaultError(
            f"FAULTS has links of hosts, but {fabric.title} has {fabric.hosts_per_tor} at a ToR: "
            f"use up to {_MOST_HOSTS}"
        )
    noise = np.append(inputs.noise, np.zeros(whole.n_links - fabric.n_links))
    loss = link_loss(whole, inputs.plan, inputs.epochs, epoch_s, noise)
    with ThreadPoolExecutor(1) as pool:
        plans = [pool.submit(each.plan, fabric) for each in inputs.measurements]
        progress("flows", 0.1)
        ends, (start_s, end_s), flows, carried = _send_flows(ecmp, loss, inputs, hosts)
        run = SimulatedRun(
            ecmp=ecmp,
            segments=parts,
            loss=loss,
            process=inputs.process,
            epochs=inputs.epochs,
            epoch_s=epoch_s,
            limits=inputs.limits,
            seed=inputs.seed,
            host=ends[0],
            hosts=hosts,
            start_s=start_s,
            end_s=end_s,
            flows=flows,
            records=inputs.records,
        )
        found: dict[str, Simulated] = {}
        every = list(zip(inputs.measurements, plans, strict=True))
        every.sort(key=lambda pair: not pair[1].done())  # one whose plan takes long comes last
        for number, (each, plan) in enumerate(every):
            progress(f"measurements: {each.name}", 0.4 + 0.6 * number / len(every))
            simulated = each.simulate(run, plan.result())
            if simulated is None:
                raise UserError(
                    f"the measurement {each.name} needs packets: leave it out of MEASURE=, or take "
                    "another BACKEND"
                )
            found[each.name] = simulated
    ordered = {each.name: found[each.name] for each in inputs.measurements}
    return FlowRun(
        config=config,
        plan=inputs.plan,
        loss=loss,
        epochs=inputs.epochs,
        fabric=fabric,
        whole=whole,
        segments=parts,
        hosts=ends,
        flows=flows,
        carried=carried,
        found=ordered,
    )


_MOST_HOSTS = 253
"""The most hosts at a ToR whose links may be faulty, as on packets."""


def write_run(run: FlowRun, writer: RunWriter) -> None:
    """Write the record of a run without its diagnoses."""
    writer.text("truth.yaml", run.plan.to_yaml(run.fabric))
    with ThreadPoolExecutor(2) as pool:  # Arrow compresses each table on one core only
        list(pool.map(lambda name: writer.table(name, run.table(name)), run.tables))
    writer.json("network.json", run.network)


def _send_flows(
    ecmp: Ecmp, loss: FloatArray, inputs: FlowInputs, hosts: HostFabric | None
) -> tuple[tuple[IntArray, IntArray], tuple[FloatArray, FloatArray], FlowRecords, Carried]:
    """Return the sending and the receiving hosts, int32[F] each, the times in seconds when flows
    begin and end to send, float64[F] each, the flow records, and the packets on each link. Flows
    are cut at the end of the run."""
    duration_s, seed = inputs.duration_s, inputs.seed
    flows = inputs.process.draw(duration_s, random_part(seed, 1), inputs.records)
    fitting = np.ceil((duration_s - flows.start_s) * flows.rate_bps / 8 / PAYLOAD)
    sent = np.maximum(np.minimum(flows.frames, fitting), 1).astype(np.int64)
    src, dst = (host // ecmp.fabric.hosts_per_tor for host in (flows.src, flows.dst))
    paths = ecmp.draw(src, dst, random_part(seed, 2))
    epoch = (flows.start_s * 1000 / inputs.epoch_ms).astype(np.int32)
    crossed = paths if hosts is None else hosts.around(paths, flows.src, flows.dst)
    carried = send(loss, crossed, sent, random_part(seed, 3), epoch=epoch)
    end_s = np.minimum(flows.start_s + sent * 8 * PAYLOAD / flows.rate_bps, duration_s)
    times = flows.start_s, end_s
    ends = flows.src, flows.dst
    return ends, times, FlowRecords(src, dst, sent, carried.lost, paths), carried
