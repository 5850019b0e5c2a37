# SPDX-License-Identifier: Apache-2.0
"""A network that stays up, in a process of its own, for `canary.net`.

Started as ``python -m scenarios.live.served FD`` in a network namespace of its own. It receives the
settings on the socket ``FD``, then calls: the name of a method of `Served` and its arguments. An
answer is ``("done", result)`` or ``("error", exception, traceback)``. The network goes down when
the other side closes the socket. Both sides are the same user's programs, so they trust each other.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from mininet.log import setLogLevel

from analysis.methods.registry import find_methods
from scenarios.live.hosts import iperf
from scenarios.live.network import Live
from scenarios.live.power import Power
from scenarios.live.session import NEEDS_CANARY, session, session_layout
from scenarios.process.signals import raise_on_signals
from testbed.errors import UserError
from testbed.fabric.names import nearest
from testbed.network.mininet import MininetNetwork


class Served:
    """What `scenarios.real_net.Net` calls, with names of nodes and links as text."""

    def __init__(self, network: MininetNetwork, live: Power) -> None:
        self._network, self._power = network, live
        self._fabric = live.topology

    @property
    def _live(self) -> Live:
        if not isinstance(self._power, Live):
            raise UserError(f"this {NEEDS_CANARY}")
        return self._power

    def names(self) -> dict[str, list[str]]:
        """Return the names of hosts, switches and directed links, and each node's IPv4 address."""
        fabric = self._fabric
        nodes = [*fabric.host_names, *fabric.switch_names]
        return {
            "hosts": fabric.host_names,
            "switches": fabric.switch_names,
            "links": fabric.link_names,
            "nodes": nodes,
            "addresses": [str(self._network.host(name).IP()) for name in nodes],
        }

    def cmd(self, node: str, command: str) -> str:
        """Run a shell command on a node and return what it printed."""
        return str(self._network.host(node).cmd(command)).replace("\r", "")

    def fault(self, link: str, rate: float) -> None:
        """From now on, drop a share of the packets on a directed link."""
        self._live.fault(self._fabric.link(link), rate)

    def heal(self, link: str | None) -> None:
        """Remove the fault of a link, or all faults."""
        links = [fault.link for fault in self._power.faults]
        for each in links if link is None else [self._fabric.link(link)]:
            self._live.heal(each)

    def faults(self) -> dict[str, float]:
        """Return the loss rate of each faulty link."""
        return {self._fabric.link_names[fault.link]: fault.rate for fault in self._power.faults}

    def set_link(self, a: str, b: str, up: bool) -> None:
        """Switch the cables between two nodes on or off."""
        self._network.set_cable(a, b, up)

    def set_switch(self, switch: str, up: bool) -> None:
        """Start or stop a switch."""
        number = self._fabric.switch(switch)
        (self._power.start_switch if up else self._power.stop_switch)(number)

    def set_host(self, host: str, up: bool) -> None:
        """Start or stop a host."""
        if host not in self._fabric.host_names:
            raise UserError(f"no host {host!r}: {nearest(host, self._fabric.host_names)}")
        number = self._fabric.host_names.index(host)
        (self._power.start_host if up else self._power.stop_host)(number)

    def off(self) -> list[str]:
        """Return the names of the directed links that are switched off."""
        links, _ = self._network.switched_off()
        return [self._fabric.link_names[link] for link in sorted(links)]

    def meters(self) -> dict[str, tuple[int, int]]:
        """Send traffic, and return the packets sent and lost on each segment that counted some."""
        measured = self._live.meters()
        names, parts = self._fabric.switch_names, measured.segments
        found: dict[str, tuple[int, int]] = {}
        for segment in np.flatnonzero(measured.sent).tolist():
            path = [names[s] for s in parts.switches[segment] if s >= 0]
            end = names[parts.downstream[segment]]
            path += [end] if path[-1] != end else []
            found["->".join(path)] = int(measured.sent[segment]), int(measured.lost[segment])
        return found

    def diagnose(self, methods: str) -> dict[str, list[str]]:
        """Send traffic, and return the links that each method blames."""
        verdicts = self._live.diagnose(find_methods(methods) if methods else [])
        names = self._fabric.link_names
        return {
            name: [names[link] for link in np.unique(verdict.flagged).tolist()]
            for name, verdict in verdicts.items()
        }

    def ping_all(self) -> float:
        """Ping each host from each, and return the percentage of packets lost."""
        return self._network.ping_all()

    def iperf(self, source: str, sink: str, seconds: int) -> tuple[float, int]:
        """Return the rate of TCP in bits per second and the segments sent again."""
        return iperf(self._network.host(source), self._network.host(sink), seconds)

    def troubles(self) -> list[str]:
        """Return what is wrong with the network itself."""
        return self._network.degraded


def serve(wire: Connection) -> None:
    """Bring the network up, and answer calls until the other side closes the connection."""
    setLogLevel("error")  # what `pingAll` finds is returned, and not printed
    given: dict[str, Any]
    given, own = wire.recv()
    layout = session_layout(given)
    with tempfile.TemporaryDirectory() as logs, session(layout, Path(logs), own) as up:
        served = Served(*up)
        wire.send(("done", served.names()))
        while True:
            name, *arguments = wire.recv()
            _answer(wire, partial(getattr(served, name), *arguments))


def _answer(wire: Connection, call: partial[Any]) -> None:
    """Send the result of a call, or its error."""
    try:
        answer = ("done", call())
    except Exception as error:
        answer = ("error", error, traceback.format_exc())
    wire.send(answer)


if __name__ == "__main__":
    raise_on_signals()
    with Connection(int(sys.argv[1])) as _wire, suppress(EOFError, BrokenPipeError):
        try:
            serve(_wire)
        except (UserError, OSError) as _error:
            _wire.send(("error", _error, traceback.format_exc()))
