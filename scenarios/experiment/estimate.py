# SPDX-License-Identifier: Apache-2.0
"""Estimates the processor time and the memory of a run before it begins, from counts of packets,
packet-hops, links and pairs of ToRs and from fitted formulas.

The counts follow from the settings and are good to some percent; the formulas were fitted to runs
with K=4 to 48 (with packets 4 to 24), load 0.01 to 0.6, 1 to 100 epochs and 1 and 10 % of the links
failed, on a 2-core machine of 2024, and are within a factor of two of all of them. With D data
packets of hosts, H packet-hops (arrivals at switches), S switches, R flow records, F flows that
start, B probed paths and hosts, Q pairs of ToRs, E epochs, G segments:

    packets        time    1 s + (0.24 us + 0.15 ns S) H + Flock
                   memory  170 MB + 1.7 MB S + 300 B B + 6 B D
    no packets     time    2.5 s + 0.5 us R + 16 ns F + 0.5 us G E + 1 us B + Flock
                   memory  350 MB + 250 B R + 1.3 kB Q
    real packets   time    the run's own, and 10 s + 0.1 s S to begin and end (BMv2: 0.5 s S)
                   memory  400 MB + 10 MB S (BMv2: 50 MB S)

Flock: each of its failures is tried against the pairs of ToRs through a link, and these against all
their links: 0.7 us of each; from `MANY_PAIRS` on, or with traces from `MANY_TRIED` on, its search
is of fewer, 11 ms a failure and 0.1 ms a link.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from analysis.methods.flock.search import MANY_PAIRS, MANY_TRIED
from scenarios.experiment.inputs import Layout
from scenarios.experiment.settings import SettingsError
from testbed.arrays import BoolArray
from testbed.fabric.clos import Fabric
from testbed.network.flow import flow_records
from testbed.traffic.demand import arrivals
from testbed.traffic.generator import PAYLOAD

LONG_S = 10.0
"""The estimate of a run that takes longer than this many seconds is printed before it begins."""


@dataclass(frozen=True)
class Estimate:
    """The approximate cost of a run.

    Attributes:
        packets: Packets that hosts send, with probes; the packets of a capture are not counted.
        packet_hops: Links between switches that these packets cross (``BACKEND=flow``), or their
            arrivals at switches (other backends).
        links: Directed links between switches.
        pairs: Ordered pairs of ToRs.
        flows: Flow records; only of ``BACKEND=flow``.
        seconds: Seconds of one processor; for real packets also seconds of the clock.
        memory: Peak memory in bytes.
    """

    packets: int
    packet_hops: int
    links: int
    pairs: int
    flows: int
    seconds: float
    memory: int

    def __str__(self) -> str:
        """Return one line such as ``about 40 s and 0.5 GB: 30 million packet-hops, 512 links``."""
        hops = self.packet_hops / 1e6
        amount = f"{hops / 1000:,.3g} billion" if hops >= 1000 else f"{hops:,.3g} million"
        return (
            f"about {_rounded(self.seconds)} and {in_gigabytes(self.memory)}: "
            f"{amount} packet-hops, {self.links:,} links"
        )


def estimate(layout: Layout, probes: int, flock: bool, traced: bool) -> Estimate:
    """Return the estimated cost of a run.

    Args:
        layout: What the run consists of.
        probes: Probes of all plans.
        flock: Whether Flock is among the methods.
        traced: Whether flows that lost packets are traced.
    """
    network, fabric, demand = layout.network, layout.fabric, layout.demand
    counted = _Counts(layout, probes)
    packets = counted.data + counted.probes
    hops = counted.data * counted.data_hops + counted.probes * counted.probe_hops
    if not network.sends_packets:
        seconds, memory = _without_packets(counted, layout.epochs.number)
    elif network.real_time:
        seconds = demand.duration_s + 10 + network.switch_s * fabric.n_switches
        memory = 400e6 + network.switch_bytes * fabric.n_switches
    else:
        seconds = 1 + (0.24e-6 + 0.15e-9 * fabric.n_switches) * hops
        memory = 170e6 + 1.7e6 * fabric.n_switches + 300 * counted.probed + 6 * counted.data
    if flock:
        seconds += counted.flock_seconds(len(layout.plan.links), traced)
    return Estimate(
        packets=round(packets),
        packet_hops=round(hops),
        links=fabric.n_links,
        pairs=counted.pairs,
        flows=round(counted.records),
        seconds=seconds,
        memory=round(memory),
    )


def need_memory(expected: Estimate, available: int | None = None) -> None:
    """Check that a run fits into memory.

    Args:
        available: Memory in bytes; by default what is free now.

    Raises:
        SettingsError: The run needs more memory (one line).
    """
    there = available_bytes() if available is None else available
    if expected.memory > there:
        raise SettingsError(
            f"this run needs about {in_gigabytes(expected.memory)} of memory, and "
            f"{in_gigabytes(there)} is free: use a smaller K or TOPOLOGY, fewer EPOCHS, less LOAD"
        )


def announce(expected: Estimate) -> None:
    """Print the estimate on standard error if the run takes longer than `LONG_S`."""
    if expected.seconds > LONG_S:
        print(expected, file=sys.stderr)


class _Counts:
    """Counts that follow from the settings before any random draw: ``pairs`` of ToRs, ``segments``,
    and mean numbers of ``data`` packets, ``probes``, flow ``records`` and hops."""

    def __init__(self, layout: Layout, probes: int) -> None:
        fabric, demand = layout.fabric, layout.demand
        without = not layout.network.sends_packets
        rng = np.random.default_rng(0)
        process = arrivals(replace(demand, load=min(demand.load, 0.95)), fabric, rng)
        tiers = np.bincount(fabric.tier)
        risen = np.bincount(fabric.tier[fabric.link_src[::2]], minlength=len(tiers))[:-1]
        ups = risen / tiers[:-1]  # links that lead up from a switch of each tier
        top = len(tiers) - 1
        self.fabric = fabric
        self.pairs = fabric.n_tors * (fabric.n_tors - 1)
        self.climbs = fabric.n_tors * float(ups.prod())
        self.probed = self.climbs * fabric.hosts_per_tor
        self.links_of_pair = 2 * float(np.cumprod(ups).sum())
        pods = np.bincount(fabric.pod[: fabric.n_tors]) if top > 1 else np.ones(1)
        self.local = float((pods * (pods - 1)).sum())
        monitor, of_hosts = np.split(layout.monitor, [fabric.n_switches])
        self.segments = _segments(fabric, monitor, tiers, ups) + 2 * len(of_hosts)
        self.probes = probes
        self.probe_hops = 2 * top + (not without)
        self.data_hops = 2 * top - 2 * self.local / max(self.pairs, 1) + (not without)
        self.data = self.records = self.started = 0.0
        if process is not None:
            self.started = process.arrivals * demand.duration_s
            every = process.arrivals * (demand.duration_s + process.mean_duration_s)
            self.records = min(flow_records(fabric.n_hosts), every) if without else 0.0
            per_flow = process.sizes.mean / PAYLOAD + 0.5
            # the run ends before the longest flows do, so only a part of them is sent
            self.data = (self.records / every if without else 1.0) * self.started * per_flow

    def flock_seconds(self, failures: int, traced: bool) -> float:
        """Return the processor seconds of Flock's search."""
        if self.pairs > MANY_PAIRS or (traced and failures * self.pairs > MANY_TRIED):
            return 11e-3 * failures + 1e-4 * self.fabric.n_links
        through = self.pairs * self.links_of_pair / self.fabric.n_links
        return 0.7e-6 * failures * through * self.links_of_pair


def _segments(
    fabric: Fabric, monitor: BoolArray, tiers: npt.NDArray[np.int64], ups: npt.NDArray[np.float64]
) -> float:
    """Return the approximate number of path segments, as if all switches of a tier were alike.

    Args:
        tiers: Number of switches in each tier.
        ups: Mean number of links that lead up from a switch, for each tier but the highest.
    """
    share = np.bincount(fabric.tier, monitor) / tiers
    found, climbs = 0.0, np.zeros(0)
    for tier in range(len(tiers)):
        # ``climbs``: upward paths to this tier that begin at monitors, one entry a lower tier
        found += 2 * share[tier] * climbs.sum()
        if tier:
            here = climbs.sum() / tiers[tier]
            branches = tiers[tier - 1] * ups[tier - 1] / tiers[tier]
            found += (1 - share[tier]) * tiers[tier] * here**2 * (1 - 1 / max(branches, 1))
        if tier < len(ups):
            passing = np.append(climbs * (1 - share[tier]), share[tier] * tiers[tier])
            climbs = passing * ups[tier]
    return found


def _without_packets(counted: _Counts, n_epochs: int) -> tuple[float, float]:
    """Return the processor seconds and the bytes of memory of a run with ``BACKEND=flow``."""
    seconds = 2.5 + 0.5e-6 * counted.records + 16e-9 * counted.started + 1e-6 * counted.probed
    seconds += 0.5e-6 * counted.segments * n_epochs
    memory = 350e6 + 250 * counted.records + 1300 * counted.pairs
    return seconds, memory


def _rounded(seconds: float) -> str:
    """Return a duration in words: seconds in steps of five, minutes, or hours."""
    if seconds < 90:
        return f"{max(5, 5 * round(seconds / 5))} s"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def available_bytes(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int:
    """Return the bytes that a new process can use without swapping, within the limit of its
    container (cgroup v2); all of the machine's where the system, such as macOS, has no ``meminfo``.
    """
    if not meminfo.exists():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fields = (line.split() for line in meminfo.read_text().splitlines())
    there = 1024 * next(int(value[0]) for name, *value in fields if name == "MemAvailable:")
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        fields = (line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        files = next(int(value) for name, value in fields if name == "inactive_file")
    except (OSError, ValueError, StopIteration):  # no container, or "max": no limit
        return there
    return min(there, limit - used + files)


def in_gigabytes(n: float) -> str:
    """Return a number of bytes as text, such as ``1.2 GB``, or ``350 MB`` below one gigabyte."""
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"
