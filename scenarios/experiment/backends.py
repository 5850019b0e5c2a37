"""The networks a scenario can run on: in process and virtual time, or Mininet and real time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from scenarios.experiment.settings import REAL_TIME, Settings
from scenarios.process.keeper import root_can_be_asked
from scenarios.process.leaving import go_through_sudo
from testbed.control.capacity import needed_entries
from testbed.control.local import LocalSwitch
from testbed.control.switch import SwitchControl
from testbed.dataplane import VERDICT
from testbed.dataplane.adapted import Adapted, adapted_program
from testbed.dataplane.icmp_limit import IcmpLimit
from testbed.fabric.addressed import AddressedFabric
from testbed.fabric.segments import Segments
from testbed.faults.injector import FaultInjector
from testbed.faults.kernel_injectors import KernelInjector, NetemInjector, NftInjector
from testbed.faults.noise import noise_rates
from testbed.faults.plan import FaultPlan
from testbed.network.network import Network, NetworkError, switch_seed
from testbed.network.speed import slowness
from testbed.network.virtual import LinkModel, VirtualNetwork
from testbed.softswitch import Program, Switch
from testbed.traffic.flows import Traffic
from testbed.traffic.transfers import Transfers

if TYPE_CHECKING:
    from testbed.traffic.iperf import Iperf

BMV2_PER_CORE = 10  # switches; more than that fall behind the default traffic

SWITCHES_PER_THREAD = 20  # fewer are done before the next thread has heard of it

LONGEST_EPOCH_MS = 60_000

REAL_DRAIN_NS = 400_000_000  # an overloaded software switch holds packets that long


@dataclass(frozen=True)
class Backend:
    """A network that is up, its switches' controls in the topology's order, the segments for which
    its tables have room, and its pace.

    ``drain_ns``: so long after an epoch all its packets have arrived. ``skew_ns``: so much early or
    late a switch changes its epoch, at most.
    """

    network: Network
    controls: Sequence[SwitchControl]
    segments: Segments
    drain_ns: int
    skew_ns: int


@dataclass(frozen=True)
class Choice:
    """What ``BACKEND=auto`` stands for here, and why; "" where nobody expects anything else."""

    backend: Literal["bmv2", "virtual"]
    reason: str


def choose_backend(switches: int, asked: bool) -> Choice:
    """Return BMv2, the reference, where the run may have root, somebody installed BMv2, and the
    machine can keep up with so many switches; else virtual time.

    Args:
        asked: Whether the user asked for root, by sudo or by SUDO=1.
    """
    from testbed.network.installed import not_installed

    if lacking := not_installed("bmv2"):
        return Choice("virtual", lacking.partition(":")[0] if asked else "")
    cores = os.cpu_count() or 1
    if switches > BMV2_PER_CORE * cores:
        return Choice("virtual", f"{switches} BMv2 switches are too many for {cores} cores")
    if not (asked or os.geteuid() == 0):
        return Choice("virtual", "BMv2 is installed, SUDO=1 lets it have the root that it needs")
    return Choice("bmv2", "Mininet and BMv2 are installed")


def pick_backend(
    backend: str, switches: Callable[[], int], sudo: bool, given: Mapping[str, str]
) -> str:
    """Return the backend of a run, with ``auto`` resolved, and go through sudo if it is to be had
    so: this program is then executed again, and this call does not return.

    Args:
        backend: The setting.
        switches: Returns how many the fabric has.
        sudo: Whether SUDO=1 was said.
        given: Options that came from the environment.

    Raises:
        ValueError: There is no sudo (one line).
    """
    may, reason = root_can_be_asked(), ""
    if backend == "auto":
        choice = choose_backend(switches(), sudo or (may and os.geteuid() != 0))
        backend, reason = choice.backend, choice.reason
    if sudo and not may and backend in REAL_TIME:
        go_through_sudo(given)
    if reason:
        print(f"BACKEND=auto takes {backend}: {reason}", flush=True)
    return backend


def need_backend(settings: Settings) -> None:
    """Raises NetworkError where the network of a run cannot be brought up (one line)."""
    if settings.real_time:
        from testbed.network.installed import not_installed
        from testbed.traffic.iperf import need_iperf

        if not root_can_be_asked():
            raise NetworkError(
                f"BACKEND={settings.backend} needs root for its network: say SUDO=1, or use sudo"
            )
        if reason := not_installed(cast(Literal["bmv2", "softswitch"], settings.backend)):
            raise NetworkError(reason)
        if settings.tcp:
            need_iperf()


def _threads(settings: Settings, fabric: AddressedFabric) -> int:
    """As many as were asked for; else one a core, if each has work that pays for the waiting."""
    if settings.threads:
        return settings.threads
    return max(1, min(len(os.sched_getaffinity(0)), fabric.n_switches // SWITCHES_PER_THREAD))


@contextmanager
def open_backend(
    settings: Settings, fabric: AddressedFabric, links: LinkModel, logs: Path
) -> Iterator[Backend]:
    """Bring up the network of ``settings.backend``, and take it down again.

    Args:
        settings: Those of the run.
        fabric: Its fabric.
        links: Of a network in virtual time.
        logs: The folder for the output of a real network's processes.

    Raises:
        testbed.network.network.NetworkError: Mininet or its switches cannot run here (one line).
        testbed.softswitch.SoftSwitchError: There is no C compiler.
    """
    segments = fabric.segments(settings.monitors, settings.seed)
    entries = needed_entries(fabric, segments)
    with tempfile.TemporaryDirectory() as folder:
        program = adapted_program(Path(folder), IcmpLimit.of(settings.icmp_per_s), entries)
        yield from _open(settings, fabric, segments, links, program, logs)


def _open(
    settings: Settings,
    fabric: AddressedFabric,
    segments: Segments,
    links: LinkModel,
    source: Adapted,
    logs: Path,
) -> Iterator[Backend]:
    skew = round(settings.skew * settings.epoch_ns)
    if settings.backend == "virtual":
        program = Program.load(source.json, observe=VERDICT.field)
        switches = [
            Switch(program, seed=switch_seed(settings.seed, index))
            for index in range(fabric.n_switches)
        ]
        network = VirtualNetwork(fabric, program, switches, links, _threads(settings, fabric))
        # Every switch has changed its epoch, and every queue on a segment was full.
        drain = max(settings.epoch_ns // 25, 2 * skew + 4 * links.transit_ns)
        controls = [LocalSwitch(switch) for switch in switches]
        yield Backend(network, controls, segments, drain, skew)
        return
    from testbed.network.mininet import MininetNetwork

    kind = cast(Literal["bmv2", "softswitch"], settings.backend)
    with MininetNetwork(fabric, kind, *source, logs, settings.seed) as network:
        drain = 2 * skew + round(REAL_DRAIN_NS * slowness())
        yield Backend(network, network.controls, segments, drain, skew)


def at_this_pace(settings: Settings, named: Collection[str]) -> Settings:
    """Settings with the load and the epochs that this machine can carry in real time, and budgets
    a second that fit.

    A machine that is several times slower than the defaults expect sends that much slower, for that
    much longer, and it is said. Settings that somebody named stay.
    """
    slow = slowness() if settings.real_time else 1.0
    paced = {
        "load": max(round(settings.load / slow, 3), 0.001),
        "epoch_ms": min(round(settings.epoch_ms * slow), LONGEST_EPOCH_MS),
        "icmp_per_s": max(round(settings.icmp_per_s / slow, 3), 0.1),
    }
    changes = {name: value for name, value in paced.items() if name not in named}
    if slow == 1 or not changes:
        return settings
    said = " ".join(f"{name.upper()}={value}" for name, value in changes.items())
    print(f"this machine is {slow:.0f} times slower than usual: {said}", flush=True)
    return replace(settings, **changes)


Injector = FaultInjector | KernelInjector


def make_injector(settings: Settings, backend: Backend, plan: FaultPlan) -> Injector:
    """The injector of ``settings.injector``: P4 fault tables, netem or nftables.

    Raises:
        InjectorError: The kernel cannot do what is asked. One line.
    """
    topology = backend.network.topology
    noise = noise_rates(settings.noise, topology.n_links, settings.seed)
    if settings.injector in ("auto", "p4"):
        return FaultInjector(topology, backend.controls, plan, noise)
    kind = {"netem": NetemInjector, "nft": NftInjector}[settings.injector]
    egress = cast("Callable[[int], tuple[int, str]]", getattr(backend.network, "egress", None))
    return kind(topology, egress, plan, noise)


def make_tcp(
    settings: Settings, backend: Backend, traffic: Traffic, transfers: Transfers
) -> Iperf | None:
    """What carries the transfers with real TCP, if there are any."""
    if not settings.tcp:
        return None
    from testbed.network.mininet import MininetNetwork
    from testbed.traffic.iperf import Iperf

    assert isinstance(backend.network, MininetNetwork)
    return Iperf(backend.network, traffic, transfers, settings.duration_s)
