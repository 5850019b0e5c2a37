# SPDX-License-Identifier: Apache-2.0
"""The inputs of a run: values that follow from its settings and do not change while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scenarios.experiment.fabrics import fabric_of
from scenarios.experiment.settings import REAL_TIME, Backend, Injector, Settings, SettingsError
from testbed.arrays import BoolArray, LongArray
from testbed.dataplane.adapted import IcmpLimit
from testbed.fabric.clos import Fabric
from testbed.fabric.monitors import monitor_switches
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.segments import Segments
from testbed.faults.events import REAL, Event, parse_events
from testbed.faults.plan import FaultPlan, noise_rates
from testbed.measurements.canary.selection import UNLIMITED, SelectionParameters, flows_that_fit
from testbed.measurements.measurement import Limits, Measurement
from testbed.measurements.programs import switch_program
from testbed.measurements.registry import STANDARD
from testbed.measurements.traces.path_discovery import host_rate_limit
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
class Inputs:
    """The inputs of a run with packets.

    Attributes:
        backend: Name of the network.
        threads: Threads of the network in virtual time; 0 chooses a number that pays.
        seed: Seed of the switch IDs, losses, clocks and probes.
        fabric, segments: The fabric, and its path segments between switches with meters.
        monitors: The setting that places these meters.
        epochs: The epochs.
        measurements: What is measured, in the order of the record.
        program: BMv2's JSON of the program that its switches run.
        limits: What measurements may do.
        plan, injector, noise: The faults, the setting that chooses their injector, and the loss
            rate of each healthy directed link, float64[n_links].
        events: Drained links and restarting switches, in order of time.
        traffic: The hosts' packets.
        tcp, line_rate_bps: Share of the larger TCP flows that real TCP carries, and the rate of the
            hosts' links in bits per second.
    """

    backend: Backend
    threads: int
    seed: int
    fabric: PacketFabric
    segments: Segments
    monitors: str
    epochs: Epochs
    measurements: Sequence[Measurement]
    program: Path
    limits: Limits
    plan: FaultPlan
    injector: Injector
    noise: npt.NDArray[np.float64]
    events: tuple[Event, ...]
    traffic: Traffic
    tcp: float
    line_rate_bps: float

    @property
    def real_time(self) -> bool:
        """Return True if the network runs in real time."""
        return self.backend in REAL_TIME

    @property
    def duration_s(self) -> float:
        """Return the length of the run in seconds: number of epochs times their length."""
        return self.epochs.number * self.epochs.length_ns / 1e9


@dataclass(frozen=True)
class Layout:
    """What the settings of a run lay out.

    Attributes:
        fabric: The fabric.
        monitor: Which of its switches host meters, bool[n_switches].
        demand: The traffic that its hosts send.
        events: Drained links and restarting switches, in order of time; none without packets.
    """

    fabric: Fabric
    monitor: BoolArray
    demand: Demand
    events: tuple[Event, ...]


def layout_of(settings: Settings, fabric: Fabric | None = None) -> Layout:
    """Return what these settings lay out, which checks that they fit the fabric.

    Args:
        settings: The settings of a run.
        fabric: Their fabric, if it was made before.

    Raises:
        ValueError: The fabric cannot be made, or has no such switches or links (one line).
    """
    fabric = fabric_of(settings) if fabric is None else fabric
    monitor = monitor_switches(fabric, settings.monitors, settings.seed)
    events = events_of(settings, fabric) if isinstance(fabric, PacketFabric) else ()
    return Layout(fabric, monitor, demand_of(settings), events)


def events_of(settings: Settings, fabric: PacketFabric) -> tuple[Event, ...]:
    """Return the events of these settings on their fabric, in order of time.

    Raises:
        ValueError: There is no such link or switch, or an event needs real packets (one line).
    """
    events = parse_events(settings.events, fabric, settings.duration_s)
    if not settings.real_time and (real := [each.kind for each in events if each.kind in REAL]):
        raise SettingsError(
            f"EVENTS with {real[0]} needs real packets: use BACKEND=softswitch or bmv2"
        )
    return events


def demand_of(settings: Settings) -> Demand:
    """Return the traffic that hosts send in a run with these settings."""
    return Demand(
        settings.traffic,
        settings.load,
        settings.line_rate_bps,
        settings.duration_s,
        settings.seed,
        settings.flow_rates,
        locality_share(settings.locality),
    )


TRACED = 0.4
"""Share of theorem 1's bound (007, section 4.1) that hosts trace by default.

The bound counts the answers on the way up only, and those on the way down are as many; the rest is
left because traffic is not spread evenly."""


def traces_of_host(settings: Settings, fabric: Fabric) -> float:
    """Return the traceroutes per second that each host may send on the fabric of these settings.

    By default it is `TRACED` of theorem 1's bound.
    """
    return settings.traces_per_s or TRACED * host_rate_limit(fabric, settings.answers_per_s(fabric))


def links_of(settings: Settings, scenario: LinkModel) -> LinkModel:
    """Return delay, rate and queue of the links: those of the settings, else of the scenario."""
    return LinkModel(
        delay_ns=round(settings.delay * 1000) or scenario.delay_ns,
        rate_bps=round(settings.rate * 1e6) or scenario.rate_bps,
        queue_bytes=settings.queue * FRAME_BYTES or scenario.queue_bytes,
    )


FRAME_BYTES = 1514
"""The largest frame of the traffic, which QUEUE counts."""


def _crossing(fabric: PacketFabric, traffic: Traffic) -> LongArray:
    """Return how many flows cross each switch, int64[n_switches]: the more of those that begin and
    those that end at a ToR; of other switches, an equal share of all, which at most they have."""
    ends = (fabric.host_tor[host] for host in (traffic.src_host, traffic.dst_host))
    of_tor = np.max([np.bincount(end, minlength=fabric.n_switches) for end in ends], axis=0)
    others = traffic.n_flows // np.bincount(fabric.tier)[fabric.tier]
    return np.where(fabric.tier == 0, of_tor, others).astype(np.int64)


def inputs_of(
    settings: Settings,
    fabric: PacketFabric,
    plan: FaultPlan,
    traffic: Traffic,
    measurements: Sequence[Measurement] = STANDARD,
) -> Inputs:
    """Return the inputs of a run with packets.

    Args:
        settings: The settings of the run.
        fabric: The fabric of these settings.
        plan: The faults.
        traffic: The hosts' packets.
        measurements: What is measured, in the order of the record.
    """
    segments = fabric.segments(settings.monitors, settings.seed)
    most = flows_that_fit(segments, _crossing(fabric, traffic))
    fit = int(most.min(initial=UNLIMITED))
    return Inputs(
        backend=settings.backend,
        threads=settings.threads,
        seed=settings.seed,
        fabric=fabric,
        segments=segments,
        monitors=settings.monitors,
        epochs=Epochs(settings.epochs, settings.epoch_ns, settings.skew),
        measurements=measurements,
        program=switch_program(measurements, settings.routing),
        limits=Limits(
            SelectionParameters(
                settings.alpha,
                min(settings.beta, fit),
                min(settings.delta, fit),
                settings.eta,
                most=most,
            ),
            settings.probes,
            IcmpLimit.of(settings.answers_per_s(fabric)),
            traces_of_host(settings, fabric),
        ),
        plan=plan,
        injector=settings.injector,
        noise=noise_rates(settings.noise, fabric.n_links, settings.seed),
        events=events_of(settings, fabric),
        traffic=traffic,
        tcp=settings.tcp,
        line_rate_bps=settings.line_rate_bps,
    )
