# SPDX-License-Identifier: Apache-2.0
"""Sets up a run with packets: switches and their rules, faults, sources, probes and agents."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from scenarios.experiment.backends import Backend, Injector, make_injector, make_tcp
from scenarios.experiment.events import Events
from scenarios.experiment.inputs import Epochs, Inputs
from scenarios.experiment.settings import SettingsError
from testbed.control.epochs import EpochClock
from testbed.control.forwarding import Uplinks, install_forwarding
from testbed.control.switch import SwitchControl, batch
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.pathbf import SegmentDecoder, bloom_mask, switch_ids
from testbed.fabric.segments import Segments
from testbed.faults.plan import FaultPlan
from testbed.measurements.bounce.probes import ProbePlan, probe_plan
from testbed.measurements.canary.selection import FlowSelector
from testbed.measurements.matrix.probe_matrix import standard_matrix
from testbed.measurements.matrix.probes import MatrixProbes, matrix_probes
from testbed.measurements.traces.path_discovery import PathDiscovery
from testbed.network.network import Network
from testbed.network.sources import Source
from testbed.traffic.flows import Traffic
from testbed.traffic.packets import headers
from testbed.traffic.transfers import Transfers, take_transfers

if TYPE_CHECKING:
    from testbed.traffic.iperf import Iperf


@dataclass(frozen=True)
class Sources:
    """The packets that hosts send: the traffic, NetBouncer's probes and deTector's, each with its
    number in the network, and their frames in that order."""

    traffic: Traffic
    probes: ProbePlan
    matrix: MatrixProbes
    data: int
    probing: int
    probing_matrix: int
    frames: tuple[Source, Source, Source]

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Return the network's numbers of the three sources: traffic, NetBouncer's probes,
        deTector's."""
        return self.data, self.probing, self.probing_matrix


@dataclass(frozen=True)
class Emulation:
    """A network that is ready to run, with its controller, faults, traffic, probes and agents.

    Attributes:
        ids: The 48-bit IDs of the switches, uint64[n_switches].
        monitors: The numbers of the switches with meters.
        controls: The controls of these switches, by number.
        transfers: The flows that ``tcp`` carries.
        tcp: The real TCP connections; None if there are none.
    """

    inputs: Inputs
    plan: FaultPlan
    backend: Backend
    network: Network
    topology: PacketFabric
    segments: Segments
    ids: npt.NDArray[np.uint64]
    decoder: SegmentDecoder
    monitors: list[int]
    controls: dict[int, SwitchControl]
    clock: EpochClock
    injector: Injector
    selector: FlowSelector
    events: Events
    sources: Sources
    agents: PathDiscovery
    transfers: Transfers
    tcp: Iperf | None


def set_up(
    inputs: Inputs,
    backend: Backend,
    idle: bool = False,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> Emulation:
    """Install rules, faults, sources and agents on a network, and return it ready to run.

    Args:
        inputs: The inputs of the run.
        backend: The network, up and idle.
        idle: Whether hosts send nothing yet; the frames of `Sources` are then fed later.
        progress: Called with the name of each step and the progress, from 0 to 1; on a large fabric
            a step takes seconds.

    Raises:
        SettingsError: An epoch is too short for the network's packets to drain.
    """
    progress("switch IDs", 0.1)
    topology, segments, epochs = inputs.fabric, inputs.segments, inputs.epochs
    ids = switch_ids(topology, segments, inputs.seed)
    decoder = SegmentDecoder(topology, segments, ids)
    progress("forwarding rules", 0.4)
    monitors: list[int] = np.unique(segments.downstream).tolist()
    every = backend.controls
    uplinks = _install_forwarding(topology, every, ids, set(monitors))
    controls = {index: every[index] for index in monitors}
    selector = FlowSelector(segments, decoder, controls, inputs.selection)
    clock = EpochClock(epochs.length_ns, backend.skew_ns, inputs.seed)
    injector = make_injector(inputs.injector, backend, inputs.plan, inputs.noise)
    if backend.drain_ns + backend.skew_ns > epochs.length_ns // 2:
        raise _too_short(epochs, backend)
    traffic, transfers = take_transfers(
        inputs.traffic, inputs.tcp, inputs.seed, inputs.line_rate_bps
    )
    progress("probes", 0.8)
    sources = _add_sources(inputs, backend.network, traffic, idle)
    return Emulation(
        inputs=inputs,
        plan=inputs.plan,
        backend=backend,
        network=backend.network,
        topology=topology,
        segments=segments,
        ids=ids,
        decoder=decoder,
        monitors=monitors,
        controls=controls,
        clock=clock,
        injector=injector,
        selector=selector,
        events=Events(backend.network, every, uplinks, selector, clock),
        sources=sources,
        agents=PathDiscovery(
            backend.network,
            traffic,
            sources.data,
            inputs.traces_per_s,
        ),
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
    topology: PacketFabric,
    controls: Sequence[SwitchControl],
    ids: npt.NDArray[np.uint64],
    monitors: Collection[int],
) -> list[Uplinks | None]:
    """Install the forwarding rules on all switches; return the ECMP group of each, or None for a
    switch without one."""
    masks = bloom_mask(ids).tolist()
    with batch(controls):
        return [
            install_forwarding(topology, index, control, masks[index], index in monitors)
            for index, control in enumerate(controls)
        ]


def _add_sources(inputs: Inputs, network: Network, traffic: Traffic, idle: bool) -> Sources:
    """Add the traffic and both kinds of probes to the network."""
    topology = inputs.fabric
    templates, lengths = headers(traffic, topology)
    data = Source(
        packets=traffic.packets,
        templates=templates,
        template_length=lengths,
        src_host=traffic.src_host,
        dst_host=traffic.dst_host,
    )
    probes = probe_plan(topology, inputs.duration_s, inputs.probes, inputs.seed)
    pairs = probes.frames
    probing = Source(
        packets=probes.packets,
        templates=pairs,
        template_length=np.full(len(pairs), pairs.shape[1], np.uint16),
        src_host=probes.host,
        dst_host=probes.host,
    )
    matrix = matrix_probes(
        topology,
        standard_matrix(topology),
        inputs.duration_s,
        packets=len(probes.packets),  # as many probes as NetBouncer sends
        seed=inputs.seed,
    )
    frames = matrix.frames
    probing_matrix = Source(
        packets=matrix.packets,
        templates=frames,
        template_length=np.full(len(frames), frames.shape[1], np.uint16),
        src_host=matrix.src_host,
        dst_host=matrix.dst_host,
    )
    every = data, probing, probing_matrix
    numbers = [network.add_source(_silent(source) if idle else source) for source in every]
    return Sources(traffic, probes, matrix, *numbers, frames=every)


def _silent(source: Source) -> Source:
    """Return a source with the same flows and no packets."""
    return replace(source, packets=next(source.packets.blocks()).cut(0))
