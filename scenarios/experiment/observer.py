# SPDX-License-Identifier: Apache-2.0
"""The events that a run reports to its observers while it goes on."""

from __future__ import annotations

from typing import Protocol

from scenarios.experiment.estimate import Estimate
from scenarios.experiment.inputs import Layout
from scenarios.experiment.recording import Epoch
from scenarios.experiment.setup import Emulation


class Progress(Protocol):
    """Callback that receives the name of the current phase and its progress, from 0 to 1."""

    def __call__(self, what: str, share: float) -> None:
        """Note that the share ``share``, from 0 to 1, of the phase ``what`` is done."""
        ...


class Observer:
    """Receives the events of a run, in the order of these methods. This one ignores all of them.

    Attributes:
        window: The number of last epochs whose record it reads when one has ended; 0 for none.
    """

    window: int = 0

    def estimated(self, expected: Estimate) -> None:
        """The time and the memory that the run will take are known; the run has not begun."""

    def planned(self, layout: Layout) -> None:
        """A run with packets is about to begin; ``layout`` has its fabric and its faults."""

    def progressed(self, what: str, share: float) -> None:
        """The phase ``what`` has reached ``share``, from 0 to 1; called repeatedly during the
        run."""

    def network_up(self, emulation: Emulation) -> None:
        """The network is up, and traffic is about to begin."""

    def epoch_ended(self, epoch: Epoch) -> None:
        """The meters of an epoch were read, and its steps have run."""

    def network_ended(self) -> None:
        """Every packet has arrived or is lost; the network is still up."""


class ProgressObserver(Observer):
    """Passes the progress of a run on to a callback, and ignores the rest."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def progressed(self, what: str, share: float) -> None:
        """Pass the phase and its share, 0 to 1, on to the callback."""
        self._progress(what, share)


class Observers(Observer):
    """Passes each event on to several observers, in the order given."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self.window = max(each.window for each in observers)

    def estimated(self, expected: Estimate) -> None:
        """Pass the expected time and memory on to each observer; see `Observer.estimated`."""
        for each in self._observers:
            each.estimated(expected)

    def planned(self, layout: Layout) -> None:
        """Pass the layout on to each observer; see `Observer.planned`."""
        for each in self._observers:
            each.planned(layout)

    def progressed(self, what: str, share: float) -> None:
        """Pass the phase and its share, 0 to 1, on to each observer."""
        for each in self._observers:
            each.progressed(what, share)

    def network_up(self, emulation: Emulation) -> None:
        """Tell each observer that the network is up; see `Observer.network_up`."""
        for each in self._observers:
            each.network_up(emulation)

    def epoch_ended(self, epoch: Epoch) -> None:
        """Pass the epoch that ended on to each observer; see `Observer.epoch_ended`."""
        for each in self._observers:
            each.epoch_ended(epoch)

    def network_ended(self) -> None:
        """Tell each observer that all packets have ended; see `Observer.network_ended`."""
        for each in self._observers:
            each.network_ended()
