# SPDX-License-Identifier: Apache-2.0
"""Carries out the events of the setting EVENTS, and restores switches that restarted or were taken
by another controller.

A switch that restarts has empty tables. In virtual time the controller notices this at most a
fiftieth of an epoch later; in real time, as soon as the switch's process is up. The switch drops
packets until then. A switch that another controller takes, as `make shell FORCE=1` does, continues
to forward packets, but gets no rules and keeps its epoch until the other controller leaves. In both
cases the controller then compares the switch's tables with what was written to it, and installs the
missing entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from testbed.control.epochs import EpochClock
from testbed.control.forwarding import Uplinks
from testbed.control.switch import SwitchControl
from testbed.faults.events import REAL, Event
from testbed.measurements.measurement import Running
from testbed.network.network import Network, Switchable


@dataclass
class Absence:
    """A period in which the controller did not control a switch.

    Attributes:
        switch: The switch's number.
        what: What happened to the switch, such as ``"reboot core0"``.
        begin_ns: Time at which the period began, in ns.
        unread: The first epoch whose meters had not been read at that time.
        restarted: Whether the switch lost its tables and registers.
        back_ns: Time at which all entries were restored, in ns; 0 before that.
        missing: Number of table entries, members and groups that were restored.
        dropped: Packets that the switch dropped meanwhile, if the network reports them.
    """

    switch: int
    what: str
    begin_ns: int
    unread: int
    restarted: bool
    back_ns: int = 0
    missing: int = 0
    dropped: int = 0

    def in_words(self) -> str:
        """Return one line that says what happened, for how many ms, and what was lost."""
        text = f"{self.begin_ns / 1e9:g} s: {self.what}"
        if not self.back_ns:
            return f"{text}; it did not come back"
        took = (self.back_ns - self.begin_ns) / 1e6
        dropped = f" and dropped {self.dropped:,} packets" if self.dropped else ""
        return f"{text}: it lacked {self.missing} entries for {took:.0f} ms{dropped}"


@dataclass
class Events:
    """Carries out events on a running network.

    Attributes:
        uplinks: The ECMP group of each switch; None for a switch without one.
        measured: The measurements of the run.
        absences: The periods so far in which a switch restarted or was taken.
    """

    network: Network
    controls: Sequence[SwitchControl]
    uplinks: Sequence[Uplinks | None]
    measured: Sequence[Running]
    clock: EpochClock
    absences: list[Absence] = field(default_factory=list)
    _happened: list[Absence | str] = field(default_factory=list)
    _links_off: set[int] = field(default_factory=set)
    _hosts_off: set[int] = field(default_factory=set)
    _rerouted: dict[int, int] = field(default_factory=dict)  # by switch the first epoch
    _read: int = 0

    def carry_out(self, event: Event) -> None:
        """Restart a switch, take a link out of its ECMP group or put it back, or switch a cable or
        switch off or on."""
        what = f"{event.kind} {event.name}"
        if event.kind in REAL:
            self._switch(event, what)
            return
        if event.kind == "reboot":
            self.controls[event.target].give_up("it restarts")
            self.network.restart(event.target)
            self.restarted(event.target)
            self._absent(event.target, what, event.time_ns, restarted=True)
            return
        self._happened.append(f"{event.seconds:g} s: {what}")
        switch = int(self.network.topology.link_src[event.target])
        self._rerouted.setdefault(switch, self._read)
        uplinks = self.uplinks[switch]
        assert uplinks is not None  # `parse_events` has checked this
        (uplinks.drain if event.kind == "drain" else uplinks.undrain)(event.target)

    def _switch(self, event: Event, what: str) -> None:
        """Switch a cable, a switch or a host of a real network off or on."""
        network, fabric = self.network, self.network.topology
        assert isinstance(network, Switchable)  # `Settings` has checked this
        host = event.target - fabric.n_switches if event.kind in ("stop", "start") else -1
        if event.kind == "stop" and host < 0:
            network.stop_switch(event.target)
            self.restarted(event.target)
            self._absent(event.target, what, event.time_ns, restarted=True)
        else:
            self._happened.append(f"{event.seconds:g} s: {what}")
        if host >= 0:
            (network.stop_host if event.kind == "stop" else network.start_host)(host)
        elif event.kind == "start":
            network.start_switch(event.target)
        elif event.kind in ("down", "up"):
            if event.target < fabric.n_links:
                ends = tuple(fabric.link_names[event.target].split("->"))
            else:
                host = event.target - fabric.n_links
                ends = fabric.host_names[host], fabric.switch_names[fabric.host_tor[host]]
            network.set_cable(ends[0], ends[1], event.kind == "up")
        self.switched_off()

    def restarted(self, switch: int) -> None:
        """Tell the measurements that the counters of a switch begin at 0 again."""
        for each in self.measured:
            each.restarted(switch)

    def switched_off(self) -> tuple[set[int], set[int]]:
        """Return the directed links that were switched off at some time until now, and the hosts
        that were cut off; none in virtual time."""
        if isinstance(self.network, Switchable):
            links, hosts = self.network.switched_off()
            self._links_off |= links
            self._hosts_off |= hosts
        return self._links_off, self._hosts_off

    def forget_switched_off(self) -> None:
        """Let `switched_off` return only what is off from now on."""
        self._links_off.clear()
        self._hosts_off.clear()

    def reconcile(self) -> None:
        """Restore the switches that are up again, and notice those that another controller took."""
        now_ns = self.network.now_ns
        absent = {absence.switch: absence for absence in self.absences if not absence.back_ns}
        for switch, control in enumerate(self.controls):
            absence = absent.get(switch)
            if absence is None:
                if not control.is_primary():
                    name = self.network.topology.switch_names[switch]
                    self._absent(switch, f"another controller took {name}", now_ns, restarted=False)
            elif now_ns > absence.begin_ns and self._is_back(absence, control):
                absence.missing = control.restore()
                self.restarted(switch)
                absence.back_ns = self.network.now_ns
                drops = self.network.drops()
                drops = drops[drops["time_ns"] >= absence.begin_ns]
                absence.dropped = int((drops["switch"] == switch).sum())

    def _is_back(self, absence: Absence, control: SwitchControl) -> bool:
        """Return True if the switch answers again after a restart, or if this controller is primary
        again."""
        return self.network.answers(absence.switch) if absence.restarted else control.is_primary()

    def _absent(self, switch: int, what: str, begin_ns: int, restarted: bool) -> None:
        """Note that a switch restarted or was taken at ``begin_ns``."""
        absence = Absence(switch, what, begin_ns, self._read, restarted)
        if not restarted:
            self._rerouted.setdefault(switch, self._read)
        self.absences.append(absence)
        self._happened.append(absence)

    def epoch_read(self, epoch: int) -> None:
        """Note that the meters of an epoch have been read."""
        self._read = epoch + 1

    def void(self, epochs: int) -> list[tuple[int, int]]:
        """Return the pairs (epoch, switch), of the first ``epochs`` epochs, in which a switch
        restarted or was taken before its meters were read, so that its counts are not known."""
        found = set()
        for absence in self.absences:
            end = absence.back_ns or self.network.now_ns
            last = min(self.clock.latest(end), epochs - 1)
            found |= {(epoch, absence.switch) for epoch in range(absence.unread, last + 1)}
        return sorted(found)

    def rerouted(self, epochs: int) -> list[tuple[int, int]]:
        """Return the pairs (epoch, switch), of the first ``epochs`` epochs, in which flows with
        rules may have left their segments at a switch.

        This is so from the change of its routes to the end of the run: a rule stays as long as its
        flow sends, and the flow may not come back. Another controller may change routes, too.
        """
        found = set(self.void(epochs))
        for switch, first in self._rerouted.items():
            found |= {(epoch, switch) for epoch in range(first, epochs)}
        return sorted(found)

    def in_words(self) -> list[str]:
        """Return the events so far in order, each as one line."""
        return [what if isinstance(what, str) else what.in_words() for what in self._happened]
