# SPDX-License-Identifier: Apache-2.0
"""Simulates a run without packets, as it is laid out (`testbed.measurements.without_packets`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scenarios.experiment.inputs import Layout
from testbed.measurements import without_packets
from testbed.measurements.measurement import Measurement
from testbed.measurements.registry import STANDARD
from testbed.measurements.without_packets import FlowInputs, FlowRun
from testbed.network.flow import flow_records
from testbed.traffic.demand import arrivals_without_packets


def simulate(
    layout: Layout,
    measurements: Sequence[Measurement] = STANDARD,
    *,
    flows: int | None = None,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> FlowRun:
    """Simulate a run and return it; equal arguments give an equal run.

    Args:
        layout: What the run consists of; its network is ``flow``.
        measurements: What is measured, in the order of the record.
        flows: The largest mean number of flow records; default: see `flow_records`.
        progress: Called with the name of each step and the progress, from 0 to 1.

    Raises:
        ValueError: The faults or the traffic are not possible here (one line).
    """
    fabric = layout.fabric
    inputs = FlowInputs(
        fabric=fabric,
        monitor=layout.monitor,
        plan=layout.plan,
        noise=layout.noise,
        process=arrivals_without_packets(layout.demand, fabric),
        epochs=layout.epochs.number,
        epoch_ms=layout.epochs.length_ns // 1_000_000,
        measurements=measurements,
        limits=layout.limits,
        seed=layout.seed,
        records=flow_records(fabric.n_hosts) if flows is None else flows,
    )
    config = {**layout.config, "measurements": [each.name for each in measurements]}
    return without_packets.simulate(inputs, config, progress)
