# SPDX-License-Identifier: Apache-2.0
"""A network that stays up: faults can be injected and removed, and an epoch of traffic is measured
on request.

A batch run is one `scenarios.experiment.loop.Session`; here each epoch that is asked for is one,
with the same traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from analysis.evaluation.report import run_methods
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.registry import METHODS, BuiltMethod, find_methods
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import MissingTelemetry, Telemetry
from scenarios.experiment.backends import Backend
from scenarios.experiment.in_memory import Memory, MemoryRecord
from scenarios.experiment.inputs import Inputs
from scenarios.experiment.loop import Session
from scenarios.experiment.observer import Observer
from scenarios.experiment.run import run_config
from scenarios.experiment.setup import set_up
from scenarios.live.power import Power
from testbed.fabric.segments import Segments
from testbed.faults.injector import FaultInjector
from testbed.faults.plan import Fault, FaultError, FaultPlan
from testbed.network.mininet import MininetNetwork


@dataclass(frozen=True)
class Measured:
    """The counts of Canary's meters in an epoch: packets sent and lost on each segment,
    int64[S]."""

    segments: Segments
    sent: npt.NDArray[np.int64]
    lost: npt.NDArray[np.int64]


class Live(Power):
    """Injects faults into a network that is up, and measures it.

    Args:
        inputs: The inputs of a run of one epoch.
        backend: The network, up and idle.
    """

    measures = True

    def __init__(self, inputs: Inputs, backend: Backend) -> None:
        super().__init__(cast("MininetNetwork", backend.network))
        self._controls = backend.controls
        self._emulation = set_up(inputs, backend, idle=True)
        self._faults: dict[int, tuple[Fault, FaultInjector]] = {}
        self._taken: set[int] = set()
        self._next = 0
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
            FaultError: ``rate`` is not between 0 and 1, or the switch where the link begins, or the
                host's ToR, does not answer.
        """
        host = (link - self.topology.n_links) // 2
        at = int(self.topology.link_src[link] if host < 0 else self.topology.host_tor[host])
        if reason := self._controls[at].lost:
            name = self.topology.switch_names[at]
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

    def restore_taken(self) -> list[tuple[str, int]]:
        """Restore the switches that another controller took and has left.

        Returns:
            The name of each switch, and the number of entries that were restored.
        """
        back = []
        network = self._emulation.network
        stopped = network.stopped_switches if isinstance(network, MininetNetwork) else []
        with self.using:
            for switch, control in enumerate(self._controls):
                absent = switch in self._taken
                if switch in stopped:
                    continue
                if not control.is_primary():
                    self._taken.add(switch)
                elif absent:
                    self._taken.remove(switch)
                    back.append((self.topology.switch_names[switch], control.restore()))
        return back

    def _began(self, switch: int) -> int:
        return self._controls[switch].restore()

    def _changed(self, switch: int) -> None:
        self._emulation.events.restarted(switch)

    def meters(self) -> Measured:
        """Send an epoch's traffic, and return the counts of Canary's meters."""
        counts = self._measure().need("segments", "meters")
        return Measured(counts.segments, counts.sent[0], counts.lost[0])

    def diagnose(self, methods: Sequence[BuiltMethod] = ()) -> dict[str, Diagnosis]:
        """Send an epoch's traffic, and return each method's diagnosis.

        Args:
            methods: By default the methods of the testbed whose telemetry is measured here.

        Raises:
            MissingTelemetry: A method of ``methods`` reads telemetry that is not measured here.
        """
        found: dict[str, Diagnosis] = {}
        telemetry = self._measure()
        for method in methods or find_methods(",".join(METHODS)):
            try:
                found |= run_methods(telemetry, [method], lambda _: None)
            except MissingTelemetry:
                if methods:
                    raise
        return found

    def _measure(self) -> Telemetry:
        """Let hosts send an epoch's traffic and probes, and return what it measured."""
        memory = Memory()
        emulation = replace(self._emulation, plan=FaultPlan(tuple(self.faults)))
        with self.using:
            session = Session(emulation, memory, Observer(), first=self._next)
            self._next += 1
            session.resume()
            try:
                while session.epoch() is not None:
                    pass
                session.end()
            except BaseException:  # such as Ctrl-C, after which the prompt goes on
                session.abandon()
                raise
        config = run_config(emulation.inputs.config)
        return read_telemetry(MemoryRecord(config, memory, emulation))
