# SPDX-License-Identifier: Apache-2.0
"""The networks that a scenario can run on: in this process and virtual time, or Mininet and real
time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import numpy.typing as npt

from canary_softswitch import Program, Switch
from scenarios.experiment.inputs import Inputs
from testbed.control.forwarding import needed_entries
from testbed.control.local import LocalSwitch
from testbed.control.switch import SwitchControl
from testbed.cores import usable_cores
from testbed.dataplane import VERDICT
from testbed.dataplane.adapted import Adapted, adapted_program
from testbed.faults.injector import FaultInjector
from testbed.faults.kernel_injectors import KernelInjector, NetemInjector, NftInjector
from testbed.faults.plan import FaultPlan
from testbed.measurements.programs import ADAPTER
from testbed.network.clock import RunClock, VirtualClock
from testbed.network.kinds import NetworkKind
from testbed.network.network import Network, NetworkError, switch_seed
from testbed.network.speed import raised_priority, slowness
from testbed.network.virtual import Adapters, VirtualNetwork
from testbed.rootless import forbidden
from testbed.traffic.flows import Traffic
from testbed.traffic.transfers import Transfers

if TYPE_CHECKING:
    from testbed.traffic.iperf import Iperf

SWITCHES_PER_THREAD = 20  # with fewer, waking a thread takes longer than its work

REAL_DRAIN_NS = 400_000_000  # an overloaded software switch holds packets for this long


@dataclass(frozen=True)
class Backend:
    """A network that is up, the controls of its switches in the order of the topology and of
    hosts' adapters behind them, its clock and its timing.

    All packets of an epoch have arrived ``drain_ns`` nanoseconds after its end. A switch changes
    its epoch at most ``skew_ns`` nanoseconds early or late.
    """

    network: Network
    controls: Sequence[SwitchControl]
    clock: VirtualClock
    drain_ns: int
    skew_ns: int


def need_network(kind: NetworkKind, tcp: bool) -> None:
    """Check that the network of a run can be brought up, with real TCP if ``tcp`` is true.

    Raises:
        NetworkError: It cannot be brought up here (one line).
    """
    if kind.real_time:
        from testbed.network.requirements import no_namespaces, not_installed

        if reason := no_namespaces():
            raise NetworkError(reason)
        if reason := forbidden():
            raise NetworkError(reason)
        if reason := not_installed(cast(Literal["bmv2", "softswitch"], kind.name)):
            raise NetworkError(reason)
        if tcp:
            from testbed.traffic.iperf import need_iperf

            need_iperf()


def compile_soft_switches(inputs: Inputs) -> None:
    """Compile the program that soft switches run on the real packets of a run."""
    with tempfile.TemporaryDirectory() as folder:
        program = _adapted(Path(folder), inputs, endings=True)
        Program.load(program.json)


def _adapted(folder: Path, inputs: Inputs, endings: bool) -> Adapted:
    """Return the files of a run's switch program, written to a folder where they are new; see
    `testbed.dataplane.adapted`."""
    entries = needed_entries(inputs.fabric, inputs.segments)
    return adapted_program(folder, inputs.limits.icmp, entries, endings, inputs.program)


def _threads(inputs: Inputs) -> int:
    """Return the number of threads that was asked for; by default one for each core, as long as
    each thread gets `SWITCHES_PER_THREAD` switches."""
    paying = inputs.fabric.n_switches // SWITCHES_PER_THREAD
    return inputs.threads or max(1, min(usable_cores(), paying))


@contextmanager
def open_backend(inputs: Inputs, logs: Path, bw: float = 0) -> Iterator[Backend]:
    """Return a context manager that brings up the network of a run for its block, and takes it down
    when the block ends.

    Args:
        inputs: The inputs of the run.
        logs: The folder for the output of a real network's processes.
        bw: The rate of a real network's cables in Mb/s; 0: as fast as the machine.

    Raises:
        testbed.network.network.NetworkError: Mininet or its switches cannot run here (one line).
        canary_softswitch.SoftSwitchError: There is no C compiler.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = _adapted(Path(folder), inputs, inputs.network.real_time)
        yield from _open(inputs, program, logs, bw)


def _open(inputs: Inputs, source: Adapted, logs: Path, bw: float) -> Iterator[Backend]:
    """Yield the network of a run with the adapted switch program ``source``."""
    fabric, epoch_ns = inputs.fabric, inputs.epochs.length_ns
    skew = round(inputs.epochs.skew * epoch_ns)
    if not inputs.network.real_time:
        links = inputs.links
        program = Program.load(source.json, observe=VERDICT.field)
        switches = [
            Switch(program, seed=switch_seed(inputs.seed, index))
            for index in range(fabric.n_switches)
        ]
        adapters = _adapters(inputs) if inputs.host_meters else None
        network = VirtualNetwork(
            fabric, program, switches, links, _threads(inputs), adapters=adapters
        )
        # Allow for every switch to change its epoch, and for full queues along a whole segment.
        drain = max(epoch_ns // 25, 2 * skew + 4 * links.transit_ns)
        in_hosts = [] if adapters is None else adapters.switches
        controls = [LocalSwitch(switch) for switch in (*switches, *in_hosts)]
        yield Backend(network, controls, VirtualClock(), drain, skew)
        return
    from testbed.network.mininet import MininetNetwork
    from testbed.network.requirements import NFT

    kind = cast(Literal["bmv2", "softswitch"], inputs.network.name)
    if kind == "bmv2" and NFT.lacking and any(event.kind == "down" for event in inputs.events):
        raise NetworkError(f"EVENTS with down: {NFT.lacking}")
    if kind == "softswitch":
        Program.load(source.json)  # so that the switches find it optimized in the cache
    with (
        raised_priority(),
        MininetNetwork(fabric, kind, *source, logs, inputs.seed, bw=bw) as network,
    ):
        drain = 2 * skew + round(REAL_DRAIN_NS * slowness())
        yield Backend(network, network.controls, RunClock(network), drain, skew)


def _adapters(inputs: Inputs) -> Adapters:
    """Return an adapter for each host."""
    program, first = Program.load(ADAPTER, observe=VERDICT.field), inputs.fabric.n_switches
    places = range(first, first + inputs.fabric.n_hosts)
    return Adapters(
        program, [Switch(program, seed=switch_seed(inputs.seed, place)) for place in places]
    )


Injector = FaultInjector | KernelInjector


def make_injector(
    injector: str, backend: Backend, plan: FaultPlan, noise: npt.NDArray[np.float64]
) -> Injector:
    """Return the object that injects faults into a network: P4 fault tables, netem or nftables.

    Args:
        injector: The setting.
        backend: The network.
        plan: The faults.
        noise: Loss rate of each healthy directed link, float64[n_links].

    Raises:
        InjectorError: The kernel cannot inject such a fault (one line).
    """
    topology = backend.network.topology
    if injector in ("auto", "p4"):
        return FaultInjector(topology, backend.controls, plan, noise)
    kind = {"netem": NetemInjector, "nft": NftInjector}[injector]
    egress = cast("Callable[[int], tuple[int, str]]", getattr(backend.network, "egress", None))
    return kind(topology, egress, plan, noise)


def make_tcp(network: Network, traffic: Traffic, transfers: Transfers, duration_s: float) -> Iperf:
    """Return an `Iperf` that carries the transfers with real TCP during ``duration_s`` seconds."""
    from testbed.network.mininet import MininetNetwork
    from testbed.traffic.iperf import Iperf

    assert isinstance(network, MininetNetwork)
    return Iperf(network, traffic, transfers, duration_s)
