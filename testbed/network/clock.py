# SPDX-License-Identifier: Apache-2.0
"""Slows the clock of a run on real packets down while the machine cannot keep up with it.

Sources, epochs, faults, traces and controller of a run live by one clock, that of the network. It
stands still while the controller is behind its agenda, and while packets wait at the switches: no
host sends meanwhile, so a busy machine makes a run slower and not wrong. The length of what the
clock left out is in the record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from testbed.network.schedules import FOREVER
from testbed.network.speed import patience, slowness

if TYPE_CHECKING:
    from testbed.network.mininet import MininetNetwork

MANY, FEW = 1 / 16, 1 / 64
"""Shares of the fullest buffer of the switches' sockets: the clock stands still from the first on,
until less than the second is used. A sixteenth is some thousand packets."""

NEARLY_NONE = 1 / 1000
"""Such a share is some packets."""

_LOOK_S = 0.1
_QUIET_S = 0.1
_PATIENCE_S = 5.0


class VirtualClock:
    """The clock of a network in virtual time, which never goes on by itself."""

    def seconds(self) -> float:
        """Return the time in seconds that work outside the network takes: always 0."""
        return 0.0

    def start(self) -> None:
        """Begin the run, when the network has started."""

    def allow(self, gate_ns: int) -> None:
        """Let the clock go on until ``gate_ns``."""

    def settle(self, note: Callable[[], None]) -> None:
        """Let the clock stand still until packets have left the network, and call ``note`` then."""
        note()

    def release(self) -> float:
        """Let the clock go on; return how many times slower than real time it was."""
        return 1.0


class RunClock(VirtualClock):
    """Holds the clock of a real network.

    Args:
        network: The network; its clock goes on without limits until the first call of `allow`.
    """

    def __init__(self, network: MininetNetwork) -> None:
        self.network = network
        self._looked = self._begin = self._held = 0.0
        self._gate = FOREVER

    def seconds(self) -> float:
        """Return real time in seconds."""
        return time.monotonic()

    def start(self) -> None:
        """Begin to compare the clock with real time."""
        self._begin, self._held = time.monotonic(), self.network.held_s

    def allow(self, gate_ns: int) -> None:
        """Let the clock go on until ``gate_ns``, as soon as few packets wait at the switches.

        A switch that stands still does not stop the run for ever: the wait ends after some seconds.
        """
        if time.monotonic() - self._looked > _LOOK_S and self.network.queued > MANY:
            deadline = time.monotonic() + _PATIENCE_S * patience()
            while self.network.queued > FEW and time.monotonic() < deadline:
                time.sleep(0.01)
        self._looked = time.monotonic()
        self._gate = gate_ns
        self.network.hold(gate_ns)

    def settle(self, note: Callable[[], None]) -> None:
        """Let the clock stand still until all packets that were sent have left the network, and
        call ``note`` before it goes on.

        On a busy machine packets of an epoch that has ended may wait longer than the drain time;
        meters that are read meanwhile show them as lost.
        """
        self.network.hold(0)  # a time that has passed: the clock stands still now
        deadline = time.monotonic() + _PATIENCE_S * patience()
        arrived, since = self.network.arrived, time.monotonic()
        while (now := time.monotonic()) < deadline:
            if (more := self.network.arrived) != arrived:
                arrived, since = more, now
            # Real TCP goes on meanwhile and fills the buffers again and again, but not always.
            elif now - since > _QUIET_S * slowness() and self.network.queued <= NEARLY_NONE:
                break
            time.sleep(0.01)
        note()
        self.network.hold(self._gate)

    def release(self) -> float:
        """Let the clock go on without limits, and return how many times slower than real time it
        was since `start`: a number of at least 1."""
        real, held = time.monotonic() - self._begin, self.network.held_s - self._held
        self.network.hold(FOREVER)
        return real / max(real - held, 1e-9)
