"""The events that a run reports to its observers while it goes on."""

from __future__ import annotations

from typing import Any, Protocol

from scenarios.experiment.estimate import Estimate
from scenarios.experiment.recording import Epoch
from scenarios.experiment.setup import Emulation
from testbed.arrays import BoolArray
from testbed.fabric.clos import Fabric
from testbed.faults.plan import FaultPlan


class Progress(Protocol):
    """Callback that receives the name of the current phase and its progress, from 0 to 1."""

    def __call__(self, what: str, share: float) -> None: ...


class Observer:
    """Receives the events of a run, in the order of these methods. This one ignores all of them.

    Attributes:
        watches: Whether it shows the network's counters. A process that emulates as root for
            another one then reads them, and sends the parts of the page (`page_changed`).
    """

    watches = False

    def estimated(self, expected: Estimate) -> None:
        """The time and the memory that the run will take are known; the run has not begun."""

    def planned(
        self, title: str, fabric: Fabric, monitor: BoolArray, plan: FaultPlan, epochs: int
    ) -> None:
        """The faults of a run with packets are drawn. ``monitor`` says which switches host meters,
        bool[n_switches]; ``epochs`` is the number of epochs."""

    def progressed(self, what: str, share: float) -> None:
        """The phase ``what`` has reached ``share``, from 0 to 1; called repeatedly during the
        run."""

    def network_up(self, emulation: Emulation) -> None:
        """The network is up, and traffic is about to begin."""

    def epoch_ended(self, epoch: Epoch) -> None:
        """The meters of an epoch were read, and its steps have run."""

    def network_ended(self) -> None:
        """Every packet has arrived or is lost; the network is still up."""

    def page_changed(self, name: str, content: Any) -> None:
        """The part ``name`` of the live page has new ``content``, sent by the process that runs as
        root."""


class ProgressObserver(Observer):
    """Passes the progress of a run on to a callback, and ignores the rest."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def progressed(self, what: str, share: float) -> None:
        self._progress(what, share)


class Observers(Observer):
    """Passes each event on to several observers, in the order given."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self.watches = any(each.watches for each in observers)

    def estimated(self, expected: Estimate) -> None:
        for each in self._observers:
            each.estimated(expected)

    def planned(
        self, title: str, fabric: Fabric, monitor: BoolArray, plan: FaultPlan, epochs: int
    ) -> None:
        for each in self._observers:
            each.planned(title, fabric, monitor, plan, epochs)

    def progressed(self, what: str, share: float) -> None:
        for each in self._observers:
            each.progressed(what, share)

    def network_up(self, emulation: Emulation) -> None:
        for each in self._observers:
            each.network_up(emulation)

    def epoch_ended(self, epoch: Epoch) -> None:
        for each in self._observers:
            each.epoch_ended(epoch)

    def network_ended(self) -> None:
        for each in self._observers:
            each.network_ended()

    def page_changed(self, name: str, content: Any) -> None:
        for each in self._observers:
            each.page_changed(name, content)
