# SPDX-License-Identifier: Apache-2.0
"""Sets up a run with packets: switches and their rules, faults, sources and measurements."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from scenarios.experiment.backends import Backend, Injector, make_injector, make_tcp
from scenarios.experiment.events import Events
from scenarios.experiment.inputs import Epochs, Inputs
from scenarios.experiment.settings import SettingsError
from testbed.control.epochs import EpochClock
from testbed.control.forwarding import Uplinks, install_adapter, install_forwarding
from testbed.control.routings import time_routing
from testbed.control.switch import SwitchControl, batch
from testbed.fabric.clos import Fabric
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.pathbf import bloom_mask, switch_ids
from testbed.fabric.segments import Segments
from testbed.faults.plan import FaultPlan
from testbed.measurements.measurement import PacketRun, Running, Sending
from testbed.network.network import Network
from testbed.network.sources import Source
from testbed.traffic.generator import WIRE_BITS
from testbed.traffic.packets import headers, with_roce
from testbed.traffic.transfers import Transfers, take_transfers

if TYPE_CHECKING:
    from testbed.traffic.flows import Traffic
    from testbed.traffic.iperf import Iperf


@dataclass(frozen=True)
class Emulation:
    """A network that is ready to run, with its controller, faults, traffic and measurements.

    Attributes:
        run: The run as measurements see it: network, switches, segments, clock and traffic.
        measured: The measurements, by name, in the order of the record.
        data: The frames of the traffic.
        transfers: The flows that ``tcp`` carries.
        tcp: The real TCP connections; None if there are none.
    """

    inputs: Inputs
    plan: FaultPlan
    backend: Backend
    run: PacketRun
    measured: Mapping[str, Running]
    injector: Injector
    events: Events
    data: Sending
    transfers: Transfers
    tcp: Iperf | None

    @property
    def network(self) -> Network:
        """Return the network that the run has for itself."""
        return self.run.network

    @property
    def topology(self) -> PacketFabric:
        """Return the fabric of the network."""
        return self.run.fabric

    @property
    def whole(self) -> Fabric:
        """Return the fabric of the links that get a verdict, by the faults that there are now."""
        return self.plan.whole(self.topology, self.inputs.host_meters)

    @property
    def segments(self) -> Segments:
        """Return the path segments between switches with meters."""
        return self.run.segments

    @property
    def sending(self) -> Sequence[Sending]:
        """Return the packets that hosts send: the traffic, and those of each measurement."""
        return [self.data, *(each for one in self.measured.values() for each in one.sending)]


# Long: each step needs the results of the steps before it.
def set_up(
    inputs: Inputs,
    backend: Backend,
    idle: bool = False,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> Emulation:
    """Install rules, faults, sources and measurements on a network, and return it ready to run.

    Args:
        inputs: The inputs of the run.
        backend: The network, up and idle.
        idle: Whether hosts send nothing yet; the frames of `Emulation.sending` are then fed later.
        progress: Called with the name of each step and the progress, from 0 to 1; on a large fabric
            a step takes seconds.

    Raises:
        SettingsError: An epoch is too short for the network's packets to drain.
    """
    progress("switch IDs", 0.1)
    topology, segments, epochs = inputs.fabric, inputs.segments, inputs.epochs
    ids = switch_ids(topology, segments, inputs.seed)
    progress("forwarding rules", 0.4)
    metered = any(each.on_monitors for each in inputs.measurements)
    monitors: list[int] = np.unique(segments.downstream).tolist() if metered else []
    every = backend.controls
    uplinks = _install_forwarding(inputs, every, ids, set(monitors))
    switches = every[: topology.n_switches]
    time_routing(inputs.routing, switches, inputs.network.line_rate_bps, inputs.links.rate_bps)
    clock = EpochClock(epochs.length_ns, backend.skew_ns, inputs.seed)
    injector = make_injector(inputs.injector, backend, inputs.plan, inputs.noise)
    if backend.drain_ns + backend.skew_ns > epochs.length_ns // 2:
        raise _too_short(epochs, backend)
    line_rate_bps = inputs.network.line_rate_bps
    traffic, transfers = take_transfers(inputs.traffic, inputs.tcp, inputs.seed, line_rate_bps)
    progress("probes", 0.8)
    data = _frames(traffic, topology, inputs.links.rate_bps)
    run = PacketRun(
        network=backend.network,
        controls=every,
        segments=segments,
        ids=ids,
        monitors=monitors,
        clock=clock,
        seed=inputs.seed,
        duration_s=inputs.duration_s,
        traffic=traffic,
        data=backend.network.add_source(data.silent() if idle else data),
        limits=inputs.limits,
        seconds=backend.clock.seconds,
        idle=idle,
    )
    measured = {each.name: each.start(run) for each in inputs.measurements}
    return Emulation(
        inputs=inputs,
        plan=inputs.plan,
        backend=backend,
        run=run,
        measured=measured,
        injector=injector,
        events=Events(backend.network, every, uplinks, list(measured.values()), clock),
        data=Sending(run.data, data),
        transfers=transfers,
        tcp=make_tcp(backend.network, traffic, transfers, inputs.duration_s)
        if inputs.tcp
        else None,
    )


def _too_short(epochs: Epochs, backend: Backend) -> SettingsError:
    """Return the error for an epoch that ends before the meters of the previous one are read."""
    packets_ns = backend.drain_ns - 2 * backend.skew_ns
    least_ms = math.ceil(packets_ns / (0.5 - 3 * epochs.skew) / 1e6)
    return SettingsError(
        f"EPOCH_MS={epochs.length_ns // 1_000_000} is too short: packets need up to "
        f"{packets_ns / 1e6:.0f} ms to leave a segment; use {least_ms}"
    )


def _install_forwarding(
    inputs: Inputs,
    controls: Sequence[SwitchControl],
    ids: npt.NDArray[np.uint64],
    monitors: Collection[int],
) -> list[Uplinks | None]:
    """Install the forwarding rules on all switches, and the identities of hosts' adapters; return
    the ECMP group of each switch, or None for one without."""
    topology, masks = inputs.fabric, bloom_mask(ids).tolist()
    n, metered = topology.n_switches, inputs.host_meters
    with batch(controls):
        for host, control in enumerate(controls[n:]):
            install_adapter(topology, host, control, masks[n + host])
        return [
            install_forwarding(topology, index, control, masks[index], index in monitors, metered)
            for index, control in enumerate(controls[:n])
        ]


def _frames(traffic: Traffic, topology: PacketFabric, link_rate_bps: float) -> Source:
    """Return the frames of the traffic, on links of a rate; 0: they are infinitely fast."""
    templates, lengths = headers(traffic, topology)
    ranks = traffic.ranks
    if ranks is not None:
        answers = np.arange(traffic.n_flows) >= traffic.n_flows // 2
        templates, lengths = with_roce(templates, lengths, answers)
        if link_rate_bps:  # a host's own link has it, too
            slowest = round(WIRE_BITS * 1e9 / link_rate_bps)
            ranks = replace(ranks, frame_ns=max(ranks.frame_ns, slowest))
    return Source(
        packets=traffic.packets,
        templates=templates,
        template_length=lengths,
        src_host=traffic.src_host,
        dst_host=traffic.dst_host,
        ranks=ranks,
    )
