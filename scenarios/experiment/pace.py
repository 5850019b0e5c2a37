"""The pace of runs on real packets: as many packets a second as this machine can carry now.

What it cannot carry in time it carries late or loses, which no fault did. So the defaults of such a
run send the same packets over more time where there are too many: hosts send less a second, and
epochs are that much longer.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from scenarios.experiment.run import expected_of
from scenarios.experiment.settings import Settings
from testbed.fabric.topologies import make_fabric
from testbed.network.speed import slowness

PACKET_S = {"softswitch": 100e-6, "bmv2": 750e-6}
"""Processor seconds of a packet from host to host, all that belongs to it: switches, the hosts'
agents, its share of the controller's work and of real TCP. Of the soft switch measured (K=4 and
K=6: 110 and 76 us), of BMv2 what the defaults of K=4 were found to need."""

BUSY = 0.65
"""Of the processors that are to be had this share is used: bursts are several times the mean."""

LONGEST_EPOCH_MS = 60_000

_LOOKING_S = 0.3


def at_this_pace(settings: Settings, named: Collection[str], free: float | None = None) -> Settings:
    """Return settings with the load and the epochs that this machine can carry in real time now,
    and budgets a second that fit.

    It depends on the fabric, on how fast the processors are and on what else they do. What was
    changed is printed in one line.

    Args:
        settings: Those of the run.
        named: Which of them somebody named: they stay.
        free: Processors that the run can have; by default those that are free now.
    """
    if not settings.real_time:
        return settings
    fabric = make_fabric(settings.topology, settings.k, settings.seed)
    seconds = settings.epochs * settings.epoch_ms / 1000
    wanted = expected_of(settings, fabric, 0, flock=False).packets / seconds
    free = free_processors() if free is None else free
    carried = free * BUSY / (PACKET_S[settings.backend] * slowness())
    slow = max(slowness(), math.ceil(10 * wanted / carried) / 10)
    paced = {
        "load": max(round(settings.load / slow, 3), 0.001),
        "epoch_ms": min(round(settings.epoch_ms * slow), LONGEST_EPOCH_MS),
        "icmp_per_s": max(round(settings.icmp_per_s / slow, 3), 0.1),
    }
    changes = {name: value for name, value in paced.items() if name not in named}
    if slow == 1 or not changes:
        return settings
    said = " ".join(f"{name.upper()}={value}" for name, value in changes.items())
    print(
        f"this machine carries about {carried:,.0f} packets a second on this fabric now, and "
        f"{wanted:,.0f} were wanted: {said}",
        flush=True,
    )
    return replace(settings, **changes)


def free_processors() -> float:
    """Return how many processors a network would get now: those that idle, and half of what others
    use, as its switches have the weight of many processes."""
    before = _idle_s()
    time.sleep(_LOOKING_S)
    cores = len(os.sched_getaffinity(0))
    idle = min(1.0, (_idle_s() - before) / _LOOKING_S / (os.cpu_count() or 1))
    return cores * (idle + (1 - idle) / 2)


def _idle_s() -> float:
    """Seconds in which the machine's processors had nothing to do, in all."""
    _, _, _, _, idle, waiting, *_ = Path("/proc/stat").read_text().split(maxsplit=7)
    return (int(idle) + int(waiting)) / os.sysconf("SC_CLK_TCK")
