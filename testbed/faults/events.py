# SPDX-License-Identifier: Apache-2.0
"""Operator events of a run: ``EVENTS='0.45 drain tor0_0->agg0_1; 0.5 reboot core0'``.

The text is a list of ``SECONDS WORD NAME``, separated by semicolons:

    0.45 drain tor0_0->agg0_1     take this link out of the ECMP group of the switch it leaves
    0.7 undrain tor0_0->agg0_1    put it back
    0.5 reboot core0              this switch restarts, without tables and with its meters at zero

A drained link carries no more flows, but still the probes that are sent over it on purpose.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np

from testbed.errors import UserError
from testbed.fabric.packet_fabric import PacketFabric
from testbed.faults.plan import FaultError
from testbed.faults.specification import named_links, named_switch

Kind = Literal["drain", "undrain", "reboot"]

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
        kind: ``drain``, ``undrain`` or ``reboot``.
        target: The directed link that is drained or undrained, or the switch that restarts.
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
    for item, event in read:
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
        target = named_switch(topology, name) if kind == "reboot" else _uplink(topology, name)
    except FaultError as error:
        raise _wrong(item, str(error)) from None
    names = topology.switch_names if kind == "reboot" else topology.link_names
    return Event(float(seconds), cast(Kind, kind), target, names[target])


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
