# SPDX-License-Identifier: Apache-2.0
"""Simulates a run without packets, as its settings say (`testbed.measurements.without_packets`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scenarios.experiment.inputs import Layout, traces_of_host
from scenarios.experiment.settings import Settings
from testbed.dataplane.adapted import IcmpLimit
from testbed.faults.plan import FaultPlan, noise_rates
from testbed.measurements import without_packets
from testbed.measurements.canary.selection import SelectionParameters
from testbed.measurements.flows.measurement import flow_records
from testbed.measurements.measurement import Limits, Measurement
from testbed.measurements.registry import STANDARD
from testbed.measurements.without_packets import FlowInputs, FlowRun
from testbed.traffic.demand import arrivals_without_packets


def simulate(
    settings: Settings,
    plan: FaultPlan,
    layout: Layout,
    measurements: Sequence[Measurement] = STANDARD,
    *,
    flows: int | None = None,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> FlowRun:
    """Simulate a run and return it; equal arguments give an equal run.

    Args:
        settings: The settings; ``backend`` must be ``flow``.
        plan: The faults.
        layout: The fabric, the meters and the traffic of these settings.
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
        plan=plan,
        noise=noise_rates(settings.noise, fabric.n_links, settings.seed),
        process=arrivals_without_packets(layout.demand, fabric),
        epochs=settings.epochs,
        epoch_ms=settings.epoch_ms,
        measurements=measurements,
        limits=Limits(
            SelectionParameters(settings.alpha, settings.beta, settings.delta, settings.eta),
            settings.probes,
            IcmpLimit.of(settings.answers_per_s(fabric)),
            traces_of_host(settings, fabric),
        ),
        seed=settings.seed,
        records=flow_records(fabric.n_hosts) if flows is None else flows,
    )
    config = settings.as_dict() | {"measurements": [each.name for each in measurements]}
    return without_packets.simulate(inputs, config, progress)
