# SPDX-License-Identifier: Apache-2.0
"""The budgets of measurements: how much each may send, store and install in a run.

A method reads measurements. Each measurement has budgets, in the units of the paper that it is
from; most are settings of a run. How much of each budget a run requested and used is in its
``summary.json``. A method that got less than `ENOUGH` of its request is starved: its scores show
the budget and not the method. ``python -m scenarios.command.budgets`` prints the table in
`docs/reference/measurements.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Measurement = Literal["segments", "probes", "detector", "connections", "flows", "roundtrips"]

TCP = 6
"""The IP protocol whose connections 007 watches."""

FLOW_RECORDS = 4_000_000
"""The most flow records kept of a run without packets on a fabric of few hosts; more flows are
sampled."""

RECORDS_OF_HOST = 256
"""The records for each host from which that limit is larger, as each host keeps those of its own
flows: from 15,625 hosts on, so with K=48. By default a host begins some 190 flows in a run."""

ENOUGH = 0.9
"""The share of its request that a method needs; with less it is starved."""

MEASUREMENTS: Mapping[Measurement, str] = {
    "segments": "Canary's meters at both ends of each segment",
    "probes": "NetBouncer's probes: from each host to each core switch and back",
    "detector": "deTector's probes: over the paths of its matrix, both ways",
    "connections": "007's traceroutes of the connections that lost packets",
    "flows": "the end hosts' records of their flows",
}
"""A description of each measurement of a run, by the name that methods use."""


UNSEEN: Mapping[Measurement, str] = {
    "segments": "a smaller ETA, a larger ALPHA or more LOAD lets meters count more flows; probes "
    "cross links that lose every packet",
    "probes": "PROBES above 0 sends probes over every link",
    "detector": "PROBES above 0 sends probes over every link",
    "connections": "more LOAD, or traffic of TCP, lets hosts watch connections over them",
    "flows": "more LOAD, or probes as of TELEMETRY=A1+A2+P, crosses them",
    "roundtrips": "pings between more pairs of ToRs cross them",
}
"""What would measure the links that a measurement has not observed."""


@dataclass(frozen=True)
class Budget:
    """A limit of a measurement.

    Attributes:
        name: Its name in ``summary.json``.
        measurement: The measurement that it limits.
        does: ``sends``, ``stores`` or ``installs``; ``wants`` for a target that traffic may miss.
        what: The limited quantity, in the plural: ``traceroutes``.
        per: The unit that the limit is for: ``second and host``.
        option: The setting, or "" if the program fixes the limit.
        fixed: The limit if there is no setting.
        paper: The paper and the section that define it.
        feeds: The settings that give a starved method more.
        counted: The quantity that is counted as its use, if it differs from ``what``.
    """

    name: str
    measurement: Measurement
    does: Literal["sends", "stores", "installs", "wants"]
    what: str
    per: str
    option: str
    paper: str
    feeds: str = ""
    fixed: str = ""
    counted: str = ""


BUDGETS = (
    Budget(
        name="meters",
        measurement="segments",
        does="stores",
        what="buckets",
        per="meter and epoch",
        option="",
        fixed="3 rows of 1,024",
        counted="readings of a switch's meters",
        paper="Canary, section IV-A",
        feeds="a longer EPOCH_MS, or a smaller K",
    ),
    Budget(
        name="rules",
        measurement="segments",
        does="installs",
        what="rules",
        counted="flows that were to get rules",
        per="table and switch",
        option="",
        fixed="4,096",
        paper="Canary, section III-D",
        feeds="a smaller BETA or DELTA",
    ),
    Budget(
        name="alpha",
        measurement="segments",
        does="wants",
        what="packets counted",
        per="segment and epoch",
        option="alpha",
        paper="Canary, section III-D and table III",
    ),
    Budget(
        name="beta",
        measurement="segments",
        does="wants",
        what="flows counted",
        per="segment and epoch",
        option="beta",
        paper="Canary, section III-D and table III",
    ),
    Budget(
        name="selection",
        measurement="segments",
        does="installs",
        what="flows",
        per="segment and request",
        option="delta",
        paper="Canary, section III-D and table III",
    ),
    Budget(
        name="probes",
        measurement="probes",
        does="sends",
        what="probes",
        per="path, host and run",
        option="probes",
        paper="NetBouncer, section 6.1",
        feeds="a smaller LOAD",
    ),
    Budget(
        name="matrix probes",
        measurement="detector",
        does="sends",
        what="probes",
        per="run, in all as many as NetBouncer's",
        option="probes",
        paper="this project, so that plans are compared at equal cost",
        feeds="a smaller LOAD",
    ),
    Budget(
        name="traceroutes",
        measurement="connections",
        does="sends",
        what="traceroutes",
        per="second and host",
        option="traces_per_s",
        paper="007, section 4.1, theorem 1",
        feeds="a larger ICMP_PER_S or TRACES_PER_S, or the same packets in more time: a longer "
        "EPOCH_MS and as much less LOAD",
    ),
    Budget(
        name="ICMP messages",
        measurement="connections",
        does="sends",
        what="ICMP messages",
        per="second and switch",
        option="icmp_per_s",
        paper="007, section 4.1",
        feeds="a larger ICMP_PER_S, or the same packets in more time: a longer EPOCH_MS and as "
        "much less LOAD",
    ),
    Budget(
        name="flow records",
        measurement="flows",
        does="stores",
        what="flow records",
        per="run",
        option="",
        fixed=f"{FLOW_RECORDS:,} without packets, or {RECORDS_OF_HOST} a host if that is more; "
        "else all",
        paper="Flock, section 3.1; the limit is this project's",
        feeds="a smaller LOAD or fewer EPOCHS",
    ),
)
"""Every budget, in the order of `MEASUREMENTS`."""


def flow_records(n_hosts: int) -> int:
    """Return the most flow records kept of a run without packets on a fabric of ``n_hosts``."""
    return max(FLOW_RECORDS, RECORDS_OF_HOST * n_hosts)


def budget(name: str) -> Budget:
    """Return the budget called ``name``; raise KeyError if there is none."""
    return {each.name: each for each in BUDGETS}[name]
