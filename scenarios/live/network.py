# SPDX-License-Identifier: Apache-2.0
"""A network that stays up: faults can be injected and removed, and an epoch of traffic is measured
on request.

`scenarios.experiment.loop` runs all epochs in turn; this module runs one epoch at a time, always
with even parity, with the same traffic and the same steps at its end.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.evaluation.report import run_methods
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.registry import METHODS, BuiltMethod, find_methods
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import MissingTelemetry
from scenarios.experiment.backends import Backend
from scenarios.experiment.inputs import Inputs
from scenarios.experiment.loop import TICKS, end_epoch
from scenarios.experiment.recording import Epoch, History
from scenarios.experiment.run import run_config
from scenarios.experiment.settings import Settings
from scenarios.experiment.setup import set_up
from testbed.control.switch import batch
from testbed.fabric.segments import Segments
from testbed.faults.injector import FaultInjector
from testbed.faults.plan import Fault, FaultError, FaultPlan
from testbed.measurements.canary.measurement import MeteredRun
from testbed.measurements.canary.meters import collect, set_parity
from testbed.measurements.canary.minus_meters import segment_counts
from testbed.network.mininet import MininetNetwork
from testbed.network.network import Network, NetworkError
from testbed.network.schedules import listed
from testbed.network.sources import Source
from testbed.network.speed import patience
from testbed.record.run import RunDirectory, RunWriter

_SOON_NS = 50_000_000
_STARTING_S = 20


@dataclass(frozen=True)
class Measured:
    """The counts of Canary's meters in an epoch: packets sent and lost on each segment,
    int64[S]."""

    segments: Segments
    sent: npt.NDArray[np.int64]
    lost: npt.NDArray[np.int64]


class Live:
    """Injects faults into a network that is up, and measures it.

    Args:
        settings: The settings of a run of one epoch.
        inputs: The inputs of that run.
        backend: The network, up and idle.

    Attributes:
        using: A lock on the switches, for one thread at a time.
    """

    def __init__(self, settings: Settings, inputs: Inputs, backend: Backend) -> None:
        self.topology = backend.network.topology
        self.using = threading.RLock()
        self._settings = settings
        self._controls = backend.controls
        self._emulation = set_up(inputs, backend, idle=True)
        self._faults: dict[int, tuple[Fault, FaultInjector]] = {}
        self._taken: set[int] = set()
        for each in self._emulation.measured.values():
            each.begin()
        backend.network.start()

    @property
    def monitor(self) -> npt.NDArray[np.bool_]:
        """Return which switches of the network host meters, bool[n_switches]."""
        return np.isin(np.arange(self.topology.n_switches), self._emulation.run.monitors)

    @property
    def faults(self) -> list[Fault]:
        """Return the faults that are injected now, ordered by link."""
        return [self._faults[link][0] for link in sorted(self._faults)]

    def fault(self, link: int, rate: float) -> None:
        """From now on, drop the share ``rate`` of the packets on a directed link.

        Raises:
            FaultError: ``rate`` is not between 0 and 1, or the switch where the link begins does
                not answer.
        """
        if reason := self._controls[int(self.topology.link_src[link])].lost:
            name = self.topology.switch_names[int(self.topology.link_src[link])]
            raise FaultError(f"nothing can be injected at {name}: {reason}")
        self.inject(Fault(link, rate))

    def inject(self, fault: Fault) -> None:
        """From now on, inject a fault, in place of the one that its link has."""
        injector = FaultInjector(self.topology, self._controls, FaultPlan((fault,)))
        with self.using:
            self.heal(fault.link)
            injector.start()
            self._faults[fault.link] = fault, injector

    def heal(self, link: int) -> bool:
        """Remove the fault of a link; return True if it had one."""
        with self.using:
            _, injector = self._faults.pop(link, (None, None))
            if injector is not None:
                injector.stop()
            return injector is not None

    def stop_switch(self, switch: int) -> None:
        """End the switch with this number; its links are then switched off.

        Raises:
            FaultError: It is stopped already.
        """
        network, name = self._emulation.network, self.topology.switch_names[switch]
        assert isinstance(network, MininetNetwork)
        if switch in network.stopped_switches:
            raise FaultError(f"{name} is stopped already: switch {name} start")
        with self.using:
            network.stop_switch(switch)
            self._emulation.events.restarted(switch)

    def start_switch(self, switch: int) -> int:
        """Start a switch that was stopped, wait until it is up, restore its entries, and return how
        many there are.

        Raises:
            FaultError: It is not stopped.
            NetworkError: It does not come up.
        """
        network, name = self._emulation.network, self.topology.switch_names[switch]
        assert isinstance(network, MininetNetwork)
        if switch not in network.stopped_switches:
            raise FaultError(f"{name} is not stopped")
        with self.using:
            network.start_switch(switch)
            deadline = time.monotonic() + _STARTING_S * patience()
            while not network.answers(switch):
                if time.monotonic() > deadline:
                    raise NetworkError(f"{name} does not come up: see its log")
                time.sleep(0.02)
            restored = self._controls[switch].restore()
            self._emulation.events.restarted(switch)
        return restored

    @property
    def _stopped(self) -> list[int]:
        network = self._emulation.network
        return network.stopped_switches if isinstance(network, MininetNetwork) else []

    def restore_taken(self) -> list[tuple[str, int]]:
        """Restore the switches that another controller took and has left.

        Returns:
            The name of each switch, and the number of entries that were restored.
        """
        back = []
        with self.using:
            for switch, control in enumerate(self._controls):
                absent = switch in self._taken
                if switch in self._stopped:
                    continue
                if not control.is_primary():
                    self._taken.add(switch)
                elif absent:
                    self._taken.remove(switch)
                    back.append((self.topology.switch_names[switch], control.restore()))
        return back

    def meters(self) -> Measured:
        """Send an epoch's traffic, and return the counts of Canary's meters."""
        with self.using, _scratch() as writer:
            epoch = self._measure(writer)
        counts = segment_counts(epoch.found["canary"], len(self._emulation.segments))
        return Measured(self._emulation.segments, *counts)

    def diagnose(self, methods: Sequence[BuiltMethod] = ()) -> dict[str, Diagnosis]:
        """Send an epoch's traffic, and return each method's diagnosis.

        Args:
            methods: By default the methods of the testbed whose telemetry is measured here.

        Raises:
            MissingTelemetry: A method of ``methods`` reads telemetry that is not measured here.
        """
        found: dict[str, Diagnosis] = {}
        with _scratch() as writer:
            with self.using:
                self._measure(writer)
            telemetry = read_telemetry(RunDirectory(writer.partial, finished=False))
            for method in methods or find_methods(",".join(METHODS)):
                try:
                    found |= run_methods(telemetry, [method], lambda _: None)
                except MissingTelemetry:
                    if methods:
                        raise
        return found

    def _measure(self, writer: RunWriter) -> Epoch:
        """Send an epoch's traffic and probes, run the steps at its end, and return the epoch."""
        network = self._emulation.network
        plan = FaultPlan(tuple(self.faults))
        since = replace(self._emulation.run, network=_Since(network))
        emulation = replace(self._emulation, plan=plan, run=since)
        emulation.events.forget_switched_off()
        metered = emulation.measured["canary"]
        assert isinstance(metered, MeteredRun)
        collect(metered.controls, 1)  # discard packets that came after the last epoch
        with batch(metered.controls.values()):
            for control in metered.controls.values():
                set_parity(control, 0)
        start = network.now_ns + _SOON_NS
        for each in emulation.sending:
            network.feed(each.number, _later(each.frames, start))
        for tick in range(1, TICKS + 3):
            network.run_until(start + tick * self._settings.epoch_ns // TICKS)
            for each in emulation.measured.values():
                each.poll(network.now_ns, None)
        network.drain()
        with batch(metered.controls.values()):
            for control in metered.controls.values():
                set_parity(control, 1)
        writer.config(run_config("live", self._settings))
        return end_epoch(0, emulation, History(), writer)


@contextmanager
def _scratch() -> Iterator[RunWriter]:
    """Give a block the writer of a record that is discarded afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        writer = RunWriter(Path(folder) / "run")
        try:
            yield writer
        finally:
            writer.abandon()


def _later(source: Source, start_ns: int) -> Source:
    """Return a source with all packets moved by ``start_ns``."""
    packets = listed(source.packets)
    later = replace(packets, time_ns=packets.time_ns + np.uint64(start_ns))
    return replace(source, packets=later)


class _Since:
    """A network whose counters begin at 0 when this object is made."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._before = {
            name: getattr(network, name)() for name in ("link_packets", "fault_drops", "replies")
        }
        self._counts: dict[tuple[str, int], npt.NDArray[np.uint32]] = {}
        for number in range(3):
            for name in ("sent", "delivered"):
                self._counts[name, number] = getattr(network, name)(number).copy()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def sent(self, number: int) -> npt.NDArray[np.uint32]:
        """Return the packets that each flow of a source has sent since then."""
        return self._network.sent(number) - self._counts["sent", number]

    def delivered(self, number: int) -> npt.NDArray[np.uint32]:
        """Return the packets of each flow of a source that have arrived since then."""
        return self._network.delivered(number) - self._counts["delivered", number]

    def link_packets(self) -> npt.NDArray[np.uint64]:
        """Return the packets that crossed each directed link since then."""
        return self._network.link_packets() - self._before["link_packets"]

    def fault_drops(self) -> npt.NDArray[np.uint64]:
        """Return the packets that faults dropped on each directed link since then."""
        return self._network.fault_drops() - self._before["fault_drops"]

    def emulator_drops(self, taken: npt.NDArray[np.uint64]) -> None:
        """Return None: the emulator's drops are known for whole runs only."""
