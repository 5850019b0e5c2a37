# SPDX-License-Identifier: Apache-2.0
"""Operator events of a run: ``EVENTS='0.45 drain tor0_0->agg0_1; 0.5 reboot core0'``.

The text is a list of ``SECONDS WORD NAME``, separated by semicolons:

    0.45 drain tor0_0->agg0_1     take this link out of the ECMP group of the switch it leaves
    0.7 undrain tor0_0->agg0_1    put it back
    0.5 reboot core0              this switch restarts, without tables and with its meters at zero

A drained link carries no more flows, but still the probes that are sent over it on purpose.

On real packets also:

    0.5 down agg0_0-core0         switch this cable off; h0_0_0: that of a host
    0.8 up agg0_0-core0           and on again
    0.5 stop core0                end this switch; h0_0_0: cut this host off, and end its programs
    0.8 start core0               and start it again, without tables and with its meters at zero

What was switched off is no fault: it counts as not observed in the whole run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np

from testbed.errors import UserError
from testbed.fabric.packet_fabric import PacketFabric
from testbed.faults.plan import FaultError
from testbed.faults.specification import named_links, named_switch

Kind = Literal["drain", "undrain", "reboot", "down", "up", "stop", "start"]

REAL: tuple[Kind, ...] = ("down", "up", "stop", "start")
"""Events that need a network of real packets."""

_SWITCHES: tuple[Kind, ...] = ("reboot", "stop", "start")
_BEFORE: Mapping[Kind, Kind] = {"up": "down", "start": "stop"}

_EXAMPLE = "none, or 0.45 drain tor0_0->agg0_1; 0.7 undrain tor0_0->agg0_1; 0.5 reboot core0"
_ITEM = re.compile(r"(?P<seconds>\S+)\s+(?P<kind>\S+)\s+(?P<name>\S.*)")
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?")
_SHOWN = 80  # characters of an item in a message


class EventError(UserError):
    """EVENTS cannot be understood, or asks for what the run does not have. One line."""


@dataclass(frozen=True)
class Event:
    """An operator event at a given time of the run.

    Attributes:
        seconds: Its time in seconds from the run's beginning.
        kind: What happens, see the module.
        target: The directed link; of a link that goes down or up one of its two directions, or, for
            that of a host, the number of links plus that of the host; or the switch, or, for a host
            that is stopped or started, the number of switches plus that of the host.
        name: The name of the target.
    """

    seconds: float
    kind: Kind
    target: int
    name: str

    @property
    def time_ns(self) -> int:
        """Return the time of the event in nanoseconds from the run's beginning."""
        return round(self.seconds * 1e9)


def parse_events(text: str, topology: PacketFabric, duration_s: float) -> tuple[Event, ...]:
    """Return the events that the setting EVENTS describes.

    Args:
        text: The value of EVENTS: ``none``, or a list; see the module.
        topology: The fabric of the run.
        duration_s: The run's length.

    Returns:
        The events in the order of time, those of the same time as they are listed.

    Raises:
        EventError: One line saying what is wrong and what would be right.
    """
    if text.strip().lower() == "none":
        return ()
    read = [(item, _read(item, topology, duration_s)) for item in map(str.strip, text.split(";"))]
    read.sort(key=lambda pair: pair[1].seconds)
    drained: set[int] = set()
    off: set[tuple[Kind, int]] = set()
    for item, event in read:
        if event.kind in ("down", "stop"):
            if (event.kind, event.target) in off:
                raise _wrong(item, f"{event.name} is already off: switch it on before")
            off.add((event.kind, event.target))
        elif event.kind in _BEFORE:
            if (_BEFORE[event.kind], event.target) not in off:
                before = _BEFORE[event.kind]
                raise _wrong(item, f"{event.name} is on at that time: {before} it before")
            off.remove((_BEFORE[event.kind], event.target))
        if event.kind == "drain":
            _check_drain(item, event, drained, topology)
            drained.add(event.target)
        elif event.kind == "undrain":
            if event.target not in drained:
                raise _wrong(item, f"{event.name} is not drained at that time: drain it before")
            drained.remove(event.target)
    return tuple(event for _, event in read)


def _read(item: str, topology: PacketFabric, duration_s: float) -> Event:
    found = _ITEM.fullmatch(item)
    if found is None:
        raise _wrong(item, f"use {_EXAMPLE}")
    seconds, kind, name = found["seconds"], found["kind"], found["name"]
    if not _SECONDS.fullmatch(seconds):
        raise _wrong(item, f"{_short(seconds)} is not a time in seconds: use {_EXAMPLE}")
    if kind not in get_args(Kind):
        raise _wrong(item, f"{_short(kind)} is unknown: use {', '.join(get_args(Kind))}")
    if float(seconds) >= duration_s:
        end = f"the run ends at {duration_s:g} s"
        raise _wrong(item, f"{end}: use an earlier time or more EPOCHS")
    try:
        name = name[:_SHOWN]
        if kind in ("stop", "start") and name in topology.host_names:
            target = topology.n_switches + topology.host_names.index(name)
            names = [*topology.switch_names, *topology.host_names]
        elif kind in _SWITCHES:
            target, names = named_switch(topology, name), topology.switch_names
        elif kind in ("down", "up"):
            target = _cable(topology, name)
            names = [*topology.link_names, *topology.host_names]
        else:
            target, names = _uplink(topology, name), topology.link_names
    except FaultError as error:
        raise _wrong(item, str(error)) from None
    return Event(float(seconds), cast(Kind, kind), target, names[target])


def _cable(topology: PacketFabric, name: str) -> int:
    """Return the link that a name stands for, of its two directions the one with the even number,
    or, for a host, the number of links plus that of the host."""
    if name in topology.host_names:
        return topology.n_links + topology.host_names.index(name)
    return named_links(topology, name)[0] & ~1


def _uplink(topology: PacketFabric, name: str) -> int:
    """Return the link that a name stands for; of ``a-b`` the direction upwards, as only uplinks can
    be drained."""
    links = named_links(topology, name)
    tier = topology.tier
    return max(
        links, key=lambda link: tier[topology.link_dst[link]] - tier[topology.link_src[link]]
    )


def _check_drain(item: str, event: Event, drained: set[int], topology: PacketFabric) -> None:
    """Check that a link may be drained: it is in an ECMP group, and not its last active member.

    Raises:
        EventError: It may not be drained.
    """
    if event.target in drained:
        raise _wrong(item, f"{event.name} is already drained: undrain it before")
    switch = topology.link_src[event.target]
    upward = topology.tier[topology.link_src] < topology.tier[topology.link_dst]
    group = np.flatnonzero(upward & (topology.link_src == switch))
    name = topology.switch_names[switch]
    if event.target not in group:
        others = f", such as {topology.link_names[group[0]]}" if len(group) else ""
        raise _wrong(item, f"{event.name} is in no ECMP group: drain a link upwards{others}")
    if set(group.tolist()) <= drained | {event.target}:
        raise _wrong(item, f"it is the last uplink of {name}: undrain another before")


def _wrong(item: str, what: str) -> EventError:
    return EventError(f"EVENTS item {_short(item)}: {what}")


def _short(text: str) -> str:
    """Return a text in quotes, shortened to 80 characters."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
