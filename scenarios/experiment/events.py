"""Carries out what EVENTS says, and brings switches that restarted back to where they were.

A switch that restarts is empty until the controller's next look, at most a fiftieth of an epoch
later in virtual time, and until its process is up in real time. What it drops meanwhile is lost.
The controller compares what it has with what was written to it, and installs what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from testbed.control.epochs import EpochClock
from testbed.control.forwarding import Uplinks
from testbed.control.selection import FlowSelector
from testbed.control.switch import SwitchControl
from testbed.faults.events import Event
from testbed.network.network import Network


@dataclass
class Restart:
    """A switch that restarted.

    Attributes:
        event: Why.
        unread: The first epoch whose meters had not been read then.
        back_ns: When the switch had everything again, 0 before.
        missing: Entries, members and groups that it lacked.
        dropped: Packets that it dropped meanwhile, where a network tells.
    """

    event: Event
    unread: int
    back_ns: int = 0
    missing: int = 0
    dropped: int = 0


@dataclass
class Events:
    """Carries out events.

    Attributes:
        uplinks: The ECMP group of each switch, None where it has none.
        restarts: The switches that restarted so far.
    """

    network: Network
    controls: Sequence[SwitchControl]
    uplinks: Sequence[Uplinks | None]
    selector: FlowSelector
    clock: EpochClock
    restarts: list[Restart] = field(default_factory=list)
    _carried_out: list[Event] = field(default_factory=list)
    _read: int = 0

    def carry_out(self, event: Event) -> None:
        """Do what an event asks for."""
        self._carried_out.append(event)
        if event.kind == "reboot":
            self.controls[event.target].give_up("it restarts")
            self.network.restart(event.target)
            self.selector.restarted(event.target)
            self.restarts.append(Restart(event, self._read))
            return
        uplinks = self.uplinks[int(self.network.topology.link_src[event.target])]
        assert uplinks is not None  # as `parse_events` has checked
        (uplinks.drain if event.kind == "drain" else uplinks.undrain)(event.target)

    def look(self) -> None:
        """Bring back the switches that are up again."""
        for restart in self.restarts:
            switch = restart.event.target
            if restart.back_ns or self.network.now_ns <= restart.event.time_ns:
                continue
            if self.network.answers(switch):
                restart.missing = self.controls[switch].restore()
                self.selector.restarted(switch)
                restart.back_ns = self.network.now_ns
                drops = self.network.drops()
                drops = drops[drops["time_ns"] >= restart.event.time_ns]
                restart.dropped = int((drops["switch"] == switch).sum())

    def epoch_read(self, epoch: int) -> None:
        """The meters of an epoch have been read."""
        self._read = epoch + 1

    def void(self, epochs: int) -> list[tuple[int, int]]:
        """The (epoch, switch) of the first epochs in which a switch had restarted before its meters
        were read: what it counted or forwarded then is not known."""
        found = set()
        for restart in self.restarts:
            end = restart.back_ns or self.network.now_ns
            last = min(self.clock.latest(end), epochs - 1)
            found |= {(epoch, restart.event.target) for epoch in range(restart.unread, last + 1)}
        return sorted(found)

    def told(self) -> list[str]:
        """What happened, an event a line."""
        back = {id(restart.event): restart for restart in self.restarts}
        return [_told(event, back.get(id(event))) for event in self._carried_out]


def _told(event: Event, restart: Restart | None) -> str:
    text = f"{event.seconds:g} s: {event.kind} {event.name}"
    if restart is None:
        return text
    if not restart.back_ns:
        return f"{text}, which did not come back"
    took = (restart.back_ns - event.time_ns) / 1e6
    dropped = f" and dropped {restart.dropped:,} packets" if restart.dropped else ""
    return f"{text}: it lacked {restart.missing} entries for {took:.0f} ms{dropped}"
