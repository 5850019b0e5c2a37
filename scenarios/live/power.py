# SPDX-License-Identifier: Apache-2.0
"""Switches and hosts of a network that stays up are stopped and started."""

from __future__ import annotations

import threading
import time

from testbed.faults.plan import Fault, FaultError
from testbed.network.mininet import MininetNetwork
from testbed.network.network import NetworkError
from testbed.network.speed import patience

_STARTING_S = 20


class Power:
    """Stops and starts the nodes of a network; its switches may run any program.

    Args:
        network: The network, which is up. If its program is a user's, it was made as ``foreign``.

    Attributes:
        using: A lock on the switches, for one thread at a time.
        measures: Whether faults can be injected and measured: the switches run the Canary program.
    """

    measures = False

    def __init__(self, network: MininetNetwork) -> None:
        self.network = network
        self.topology = network.topology
        self.using = threading.RLock()

    @property
    def faults(self) -> list[Fault]:
        """Return the faults that are injected now: none where the program is a user's."""
        return []

    def stop_switch(self, switch: int) -> None:
        """End the switch with this number; its links are then switched off.

        Raises:
            FaultError: It is stopped already.
        """
        name = self.topology.switch_names[switch]
        if switch in self.network.stopped_switches:
            raise FaultError(f"{name} is stopped already: switch {name} start")
        with self.using:
            self.network.stop_switch(switch)
            self._changed(switch)

    def start_switch(self, switch: int) -> int:
        """Start a switch that was stopped, wait until it is up, load its program and restore its
        entries, and return how many there are.

        Raises:
            FaultError: It is not stopped.
            NetworkError: It does not come up.
        """
        name = self.topology.switch_names[switch]
        if switch not in self.network.stopped_switches:
            raise FaultError(f"{name} is not stopped")
        with self.using:
            self.network.start_switch(switch)
            deadline = time.monotonic() + _STARTING_S * patience()
            while not self.network.answers(switch):
                if time.monotonic() > deadline:
                    raise NetworkError(f"{name} does not come up: see its log")
                time.sleep(0.02)
            restored = self._began(switch)
            self._changed(switch)
        return restored

    def stop_host(self, host: int) -> None:
        """Cut the host with this number off, and end the programs that run on it.

        Raises:
            FaultError: It is stopped already.
        """
        name = self.topology.host_names[host]
        if name in self.network.stopped_hosts:
            raise FaultError(f"{name} is stopped already: host {name} start")
        self.network.stop_host(host)

    def start_host(self, host: int) -> None:
        """Let a host that was stopped reach the network again.

        Raises:
            FaultError: It is not stopped.
        """
        name = self.topology.host_names[host]
        if name not in self.network.stopped_hosts:
            raise FaultError(f"{name} is not stopped")
        self.network.start_host(host)

    def restore_taken(self) -> list[tuple[str, int]]:
        """Restore the switches that another controller took and has left; of a user's program
        none, as all its entries are the user's.

        Returns:
            The name of each switch, and the number of entries that were restored.
        """
        return []

    def _began(self, switch: int) -> int:
        """Bring a switch whose process has begun to its state; return how many entries it got."""
        self.network.load_again(switch)
        return 0

    def _changed(self, switch: int) -> None:
        """Note that a switch has lost its state."""
