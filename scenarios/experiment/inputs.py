# SPDX-License-Identifier: Apache-2.0
"""What a run consists of: values that follow from its settings and do not change while it runs.

Nothing that is called later sees the settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scenarios.experiment.fabrics import fabric_of
from scenarios.experiment.request import SCENARIO, Scenario
from scenarios.experiment.settings import Injector, Settings, SettingsError
from testbed.arrays import BoolArray
from testbed.control.routings import Routing, check_routing
from testbed.fabric.clos import Fabric
from testbed.fabric.monitors import HOSTS, monitor_switches
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.segments import Segments
from testbed.faults.events import Event, parse_events
from testbed.faults.plan import FaultPlan, noise_rates
from testbed.measurements.measurement import Limits, Measurement
from testbed.measurements.programs import need_no_program, switch_program
from testbed.measurements.registry import STANDARD
from testbed.network.kinds import NetworkKind
from testbed.network.virtual import LinkModel
from testbed.traffic.demand import Demand, locality_share
from testbed.traffic.flows import Traffic


@dataclass(frozen=True)
class Epochs:
    """The epochs of a run: their number, their length in ns, and the largest skew of a switch's
    epoch change as a share of that length."""

    number: int
    length_ns: int
    skew: float


@dataclass(frozen=True)
class Layout:
    """What a run consists of, made of its settings once.

    Attributes:
        config: The settings by name, and the name of the scenario, as ``config.json`` has them.
        network: What the run can have on its network.
        threads: Threads of a network in virtual time; 0 chooses a number that pays.
        seed: Seed of the switch IDs, losses, clocks and probes.
        fabric: The fabric.
        monitors: The setting that places meters.
        monitor: Which switches host meters, bool[n_switches]; if hosts do, they follow.
        epochs: The epochs.
        links: Delay, rate and queues of the links in virtual time.
        limits: What measurements may do.
        plan, injector, noise: The faults, the setting that chooses their injector, and the loss
            rate of each healthy directed link, float64[n_links].
        events: Drained links and restarting switches, in order of time.
        demand: The traffic that hosts send.
        tcp: Share of the larger TCP flows that real TCP carries.
        routing: How switches choose among uplinks.
        measure: The measurements that are made besides those that methods read.
        window: The number of last epochs that methods are asked about after each; 0 if they are
            asked at the end only.
    """

    config: Mapping[str, Any]
    network: NetworkKind
    threads: int
    seed: int
    fabric: Fabric
    monitors: str
    monitor: BoolArray
    epochs: Epochs
    links: LinkModel
    limits: Limits
    plan: FaultPlan
    injector: Injector
    noise: npt.NDArray[np.float64]
    events: tuple[Event, ...]
    demand: Demand
    tcp: float
    routing: Routing
    measure: str
    window: int

    @property
    def duration_s(self) -> float:
        """Return the length of the run in seconds: number of epochs times their length."""
        return self.epochs.number * self.epochs.length_ns / 1e9

    @property
    def host_meters(self) -> bool:
        """Return whether hosts have meters."""
        return len(self.monitor) > self.fabric.n_switches

    @property
    def whole(self) -> Fabric:
        """Return the fabric of the links that get a verdict; see `FaultPlan.whole`."""
        return self.plan.whole(self.fabric, self.host_meters)

    @property
    def title(self) -> str:
        """Return the scenario, the fabric, the network and the seed in words."""
        where = f"{self.fabric.title} on {self.network.name}, seed {self.seed}"
        return f"{self.config['scenario']}: {where}"


@dataclass(frozen=True)
class Inputs(Layout):
    """The inputs of a run with packets: its layout, and what is drawn and built for its packets.

    Attributes:
        segments: The path segments between switches with meters.
        measurements: What is measured, in the order of the record.
        program: BMv2's JSON of the program that the switches run.
        traffic: The hosts' packets.
    """

    fabric: PacketFabric
    segments: Segments
    measurements: Sequence[Measurement]
    program: Path
    traffic: Traffic


FRAME_BYTES = 1514
"""The largest frame of the traffic, which QUEUE counts."""


# Long: one value for each part of a run.
def layout_of(
    settings: Settings,
    scenario: Scenario = Scenario(),
    name: str = SCENARIO,
    fabric: Fabric | None = None,
) -> Layout:
    """Return what these settings lay out, and check that it fits together.

    Args:
        settings: The settings of a run.
        scenario: Makes the faults, by default those that the settings describe.
        name: The name of the scenario, or the path of its file.
        fabric: Their fabric, if it was made before.

    Raises:
        ValueError: The fabric cannot be made, or has no such switches or links (one line).
    """
    network, seed = settings.network, settings.seed
    fabric = fabric_of(settings) if fabric is None else fabric
    monitor = monitor_switches(fabric, settings.monitors, seed)
    if len(monitor) > fabric.n_switches and network.real_time:
        raise SettingsError(
            f"MONITORS={settings.monitors}: hosts have meters with BACKEND=virtual and flow alone: "
            f"leave out +{HOSTS}"
        )
    events = ()
    if isinstance(fabric, PacketFabric):
        events = parse_events(settings.events, fabric, settings.duration_s)
    for event in events:
        if event.kind not in network.events:
            raise SettingsError(
                f"EVENTS with {event.kind} needs real packets: use BACKEND=softswitch or bmv2"
            )
    own = scenario.links
    return Layout(
        config=settings.as_dict() | {"scenario": Path(name).stem},
        network=network,
        threads=settings.threads,
        seed=seed,
        fabric=fabric,
        monitors=settings.monitors,
        monitor=monitor,
        epochs=Epochs(settings.epochs, settings.epoch_ms * 1_000_000, settings.skew),
        links=LinkModel(
            delay_ns=round(settings.delay * 1000) or own.delay_ns,
            rate_bps=round(settings.rate * 1e6) or own.rate_bps,
            queue_bytes=settings.queue * FRAME_BYTES or own.queue_bytes,
        ),
        limits=Limits(
            alpha=settings.alpha,
            beta=settings.beta,
            delta=settings.delta,
            eta=settings.eta,
            probes=settings.probes,
            answers_per_s=settings.answers_per_s(fabric),
            traces_per_s=settings.traces_per_s,
        ),
        plan=scenario.faults(fabric, settings),
        injector=settings.injector,
        noise=noise_rates(settings.noise, fabric.n_links, seed),
        events=events,
        demand=Demand(
            settings.traffic,
            settings.load,
            network.line_rate_bps,
            settings.duration_s,
            seed,
            settings.flow_rates,
            locality_share(settings.locality),
        ),
        tcp=settings.tcp,
        routing=settings.routing,
        measure=settings.measure,
        window=settings.window,
    )


def inputs_of(
    layout: Layout, traffic: Traffic, measurements: Sequence[Measurement] = STANDARD
) -> Inputs:
    """Return the inputs of a run with packets.

    Args:
        layout: What the run consists of; its fabric is a `PacketFabric`.
        traffic: The hosts' packets.
        measurements: What is measured, in the order of the record.
    """
    fabric = layout.fabric
    assert isinstance(fabric, PacketFabric)  # as its network sends packets
    check_routing(layout.routing, fabric)
    if layout.host_meters:
        need_no_program(measurements, f"MONITORS={layout.monitors}")
    own = {
        "segments": fabric.segments(layout.monitors, layout.seed),
        "measurements": measurements,
        "program": switch_program(measurements, layout.routing),
        "traffic": traffic,
    }
    return Inputs(**vars(layout) | own)
