# SPDX-License-Identifier: Apache-2.0
"""Adapts a run on real packets to the number of packets per second that this machine can carry.

Packets beyond that number are late or lost without a fault. If the defaults of a run would send too
many, it sends the same packets over more time: hosts send fewer packets per second, and epochs are
longer by the same factor.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from scenarios.experiment.inputs import Layout, layout_of
from scenarios.experiment.request import Request
from scenarios.experiment.run import check, expected_of
from scenarios.experiment.settings import Settings
from testbed.cores import usable_cores
from testbed.network.speed import slowness

BUSY = 0.65
"""Share of the free processors that a run plans to use: bursts are several times the mean."""

LONGEST_EPOCH_MS = 60_000

_LOOKING_S = 0.3


def paced_layout(request: Request, settings: Settings) -> Layout:
    """Return what a run consists of at a pace that this machine can carry, and check that it can
    make the run.

    Args:
        request: The scenario, and what the user asked for.
        settings: The settings of the run.

    Raises:
        ValueError: It cannot, or the settings do not fit together (one line).
    """
    layout = layout_of(settings, request.scenario, request.name)
    check(layout)
    paced = at_this_pace(settings, layout, request.named)
    if paced is settings:
        return layout
    return layout_of(paced, request.scenario, request.name, layout.fabric)


def at_this_pace(
    settings: Settings, layout: Layout, named: Collection[str], free: float | None = None
) -> Settings:
    """Return settings with the load, the epoch length and the ICMP budget that this machine can
    carry in real time now.

    They depend on the fabric, on the speed of the processors and on their other work. Changes are
    printed in one line.

    Args:
        settings: The settings of the run.
        layout: What they lay out.
        named: The names of settings that the user gave; these do not change.
        free: Number of processors that the run can have; by default those that are free now.
    """
    if not settings.network.packet_s:
        return settings
    wanted = expected_of(layout, flock=False).packets / layout.duration_s
    free = free_processors() if free is None else free
    carried = free * BUSY / (settings.network.packet_s * slowness())
    slow = max(slowness(), math.ceil(10 * wanted / carried) / 10)
    paced = {
        "load": max(round(settings.load / slow, 3), 0.001),
        "epoch_ms": min(round(settings.epoch_ms * slow), LONGEST_EPOCH_MS),
        "icmp_per_s": max(round(settings.answers_per_s(layout.fabric) / slow, 3), 0.1),
    }
    changes = {name: value for name, value in paced.items() if name not in named}
    if slow == 1 or not changes:
        return settings
    changed = " ".join(f"{name.upper()}={value}" for name, value in changes.items())
    print(
        f"this machine carries about {carried:,.0f} packets a second on this fabric now, and "
        f"{wanted:,.0f} are needed: {changed}",
        flush=True,
    )
    return replace(settings, **changes)


def free_processors() -> float:
    """Return the number of processors that a network would get now, which may be a fraction: the
    idle ones and half of those that other processes use, because its many switches have the weight
    of many processes."""
    before = _idle_s()
    time.sleep(_LOOKING_S)
    cores = usable_cores()
    idle = min(1.0, (_idle_s() - before) / _LOOKING_S / cores)
    return cores * (idle + (1 - idle) / 2)


def _idle_s() -> float:
    """Return the seconds that the processors that this process may use have been idle since the
    machine started."""
    ticks = 0
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *spent = line.split()
        if name in usable:
            ticks += int(spent[3]) + int(spent[4])  # idle, and waiting for disks
    return ticks / os.sysconf("SC_CLK_TCK")
