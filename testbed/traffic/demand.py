# SPDX-License-Identifier: Apache-2.0
"""Interprets the setting TRAFFIC: a flow-size distribution, a collective of training, a list of
flows, or a capture to replay."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.fabric.clos import Fabric
from testbed.fabric.names import plain
from testbed.fabric.packet_fabric import PacketFabric
from testbed.traffic.capture import BEYOND
from testbed.traffic.collectives import (
    COLLECTIVES,
    Collective,
    collective,
    iterations,
    send_collective,
)
from testbed.traffic.distributions import WORKLOADS, size_file
from testbed.traffic.flow_list import FlowList, read_flow_list
from testbed.traffic.flows import Traffic
from testbed.traffic.generator import (
    FAST_FLOWS,
    WIRE_BITS,
    FlowProcess,
    Pattern,
    TrafficError,
    flow_process,
    generate,
)
from testbed.traffic.replay import Account, replay

log = logging.getLogger(__name__)

PACKETS_AN_EPOCH = 65
"""Full packets that a flow sends in an epoch, if FLOW_RATE is not given.

With fewer, a flow is not large (ETA); with more, a segment of a fat-tree with k=8 has fewer flows
than BETA at the default LOAD."""

SLOWEST = 0.0001

_CAPTURES = (".pcap", ".pcapng", ".cap", ".pcap.gz", ".pcapng.gz", ".cap.gz")


@dataclass(frozen=True)
class Demand:
    """The traffic that hosts send.

    Attributes:
        traffic: The setting TRAFFIC: a workload, a collective, or a file of flow sizes, flows or
            captures.
        load: Share of ``line_rate_bps`` that each host sends, from 0 to 1; for workloads and
            collectives only.
        line_rate_bps: Rate of the hosts' links in bits per second.
        duration_s: Length of the run in seconds.
        seed: Seed of the random draw of flows.
        flow_rate: The lowest and the highest rate of a flow, as shares of ``line_rate_bps``.
        locality: The share of the traffic that goes to other racks of the sender's pod; None if it
            goes to all other racks alike. For workloads only.
    """

    traffic: str
    load: float
    line_rate_bps: float
    duration_s: float
    seed: int
    flow_rate: tuple[float, float] = FAST_FLOWS
    locality: float | None = None


def flow_rates(
    text: str, traffic: str, epoch_s: float, line_rate_bps: float
) -> tuple[float, float]:
    """Return the lowest and the highest rate of a flow that the setting FLOW_RATE describes, as
    shares of the line rate.

    ``auto`` is the rate of `PACKETS_AN_EPOCH`, but at most the highest of `FAST_FLOWS`; for a list
    of flows it is `FAST_FLOWS`.

    Args:
        text: The setting.
        traffic: The setting TRAFFIC.
        epoch_s: The length of an epoch in seconds.
        line_rate_bps: The rate of the hosts' links in bits per second.

    Raises:
        TrafficError: It is neither ``auto``, nor a rate, nor a range of rates (one line).
    """
    if text == "auto":
        if flow_file(traffic) is not None:
            return FAST_FLOWS
        rate = min(PACKETS_AN_EPOCH * WIRE_BITS / epoch_s / line_rate_bps, FAST_FLOWS[1])
        return rate, rate
    low, dots, high = text.partition("..")
    try:
        rates = float(low), float(high if dots else low)
    except ValueError:
        raise TrafficError(
            f"FLOW_RATE={text} is not a share of the line rate: use auto, 0.001, or 0.001..0.004 "
            "to draw a rate for each flow"
        ) from None
    if not SLOWEST <= rates[0] <= rates[1] <= 1:
        raise TrafficError(
            f"FLOW_RATE={text} is out of range: use {SLOWEST:g} to 1, the lower rate first"
        )
    return rates


def locality_share(text: str) -> float | None:
    """Return the share of the traffic that stays in its pod, as the setting LOCALITY describes it;
    None for ``uniform``.

    Raises:
        TrafficError: It is neither ``uniform`` nor a share (one line).
    """
    if text == "uniform":
        return None
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise TrafficError(f"LOCALITY={text} is unknown: use uniform, or a share from 0 to 1")
    return share


def capture_file(traffic: str) -> Path | None:
    """Return the path of the capture that ``traffic`` names, or None if it names none."""
    name = traffic.removesuffix(":fit").removesuffix(":inner").removesuffix(":fit")
    return Path(name) if name.lower().endswith(_CAPTURES) else None


def flow_file(traffic: str) -> Path | None:
    """Return the path of the list of flows that ``traffic`` names, or None if it names none."""
    return Path(traffic) if traffic.lower().endswith(".csv") else None


def traffic_file(traffic: str) -> Path | None:
    """Return the path of the file that ``traffic`` names, whatever its kind, or None."""
    named = workload(traffic)
    if named is not None and (sizes := size_file(named[0])) is not None:
        return sizes[0]
    return flow_file(traffic) or capture_file(traffic)


def workload(traffic: str) -> tuple[str, Pattern] | None:
    """Return the workload or file of flow sizes that ``traffic`` names and the pattern of senders
    and receivers; None if it names neither."""
    skewed = traffic.endswith(":skewed")
    name = traffic.removesuffix(":skewed").removesuffix(":uniform")
    if name not in WORKLOADS and size_file(name) is None:
        return None
    return name, "skewed" if skewed else "uniform"


def arrivals(demand: Demand, fabric: Fabric, rng: np.random.Generator) -> FlowProcess | None:
    """Return the random process by which flows of a workload arrive; None if ``traffic`` names no
    workload.

    Args:
        rng: Draws the racks that are busy in skewed traffic.

    Raises:
        TrafficError: Links cannot carry the load (one line).
    """
    named = workload(demand.traffic)
    if named is None:
        return None
    kind, pattern = named
    return flow_process(
        fabric,
        kind,
        demand.load,
        rng,
        pattern,
        demand.line_rate_bps,
        demand.flow_rate,
        demand.locality,
    )


def arrivals_without_packets(demand: Demand, fabric: Fabric) -> FlowProcess:
    """Return the random process by which flows arrive in a run without packets.

    Raises:
        TrafficError: ``traffic`` names a capture, a list of flows, a collective or nothing, or
            links cannot carry the load (one line).
    """
    named_packets = (
        ("a capture", capture_file),
        ("a list of flows", flow_file),
        ("a collective", collective),
    )
    for what, named_one in named_packets:
        if named_one(demand.traffic) is not None:
            raise TrafficError(
                f"TRAFFIC={demand.traffic} is {what}, and BACKEND=flow sends no packets: use "
                "BACKEND=virtual"
            )
    process = arrivals(demand, fabric, np.random.default_rng([demand.seed, 0xF10, 0]))
    if process is None:
        raise TrafficError(
            f"TRAFFIC={demand.traffic} is unknown on BACKEND=flow: use {', '.join(WORKLOADS)} "
            "or a .txt file of flow sizes (with :skewed)"
        )
    return process


def make_traffic(
    demand: Demand,
    topology: PacketFabric,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[Traffic, Account | None]:
    """Generate or replay the traffic of a run; for a capture, also return what became of its
    frames.

    ``traffic`` is ``hadoop``, ``websearch``, ``storage``, ``pareto`` or a ``.txt`` file of flow
    sizes, with ``:skewed`` for half of the traffic among 5 % of the racks; a collective
    (`testbed.traffic.collectives`); a ``.csv`` list of flows (`testbed.traffic.flow_list`); or a
    capture file, with ``:fit`` to stretch or squeeze its timing to the run's duration instead of
    cutting it off there. A warning is logged if that cuts packets off, or if the run ends within
    the first iteration of a collective.

    Args:
        demand: The traffic that hosts send in the run.
        topology: The fabric of the run.
        progress: Called with the share of a capture that was read, from 0 to 1.

    Raises:
        ValueError: ``traffic`` is none of these, or a file cannot be read (one line).
    """
    path = capture_file(demand.traffic)
    if path is not None:
        wishes = demand.traffic.removeprefix(str(path)).split(":")
        fit, inner = "fit" in wishes, "inner" in wishes
        traffic, account = replay(
            path, topology, demand.seed, demand.duration_s, fit, progress, inner=inner
        )
        _warn_of_what_is_cut_off(demand, account)
        return traffic, account
    path = flow_file(demand.traffic)
    if path is not None:
        flows = read_flow_list(
            path,
            topology,
            demand.duration_s,
            demand.seed,
            demand.line_rate_bps,
            demand.flow_rate,
        )
        _warn_of_what_is_not_sent(demand, flows)
        return flows.traffic, None
    if (wanted := collective(demand.traffic)) is not None:
        return _collective(demand, wanted, topology), None
    named = workload(demand.traffic)
    if named is None:
        raise TrafficError(
            f"TRAFFIC={demand.traffic} is unknown: use {', '.join(WORKLOADS)} or a .txt file of "
            f"flow sizes (with :skewed), {' or '.join(COLLECTIVES)}, a .csv list of flows, or a "
            ".pcap or .pcapng file, also .gz (with :fit)"
        )
    kind, pattern = named
    traffic = generate(
        topology,
        kind,
        demand.load,
        demand.duration_s,
        demand.seed,
        pattern,
        host_rate_bps=demand.line_rate_bps,
        flow_rate=demand.flow_rate,
        locality=demand.locality,
    )
    return traffic, None


def _collective(demand: Demand, wanted: Collective, topology: PacketFabric) -> Traffic:
    """Return the packets of a collective; log a warning if the run has less than an iteration."""
    rate, seconds = demand.line_rate_bps, demand.duration_s
    whole = iterations(wanted, topology.n_hosts, demand.load, seconds, rate)
    if whole < 1:
        log.warning(
            "the run of %g s has %.2g of an iteration of TRAFFIC=%s: use a smaller mb=, more LOAD "
            "or more EPOCHS",
            seconds,
            whole,
            plain(demand.traffic),
        )
    return send_collective(wanted, topology, demand.load, seconds, demand.seed, rate)


def _warn_of_what_is_not_sent(demand: Demand, flows: FlowList) -> None:
    """Log a warning about flows of a list that the run does not send."""
    if flows.late:
        log.warning(
            "%s of the %s flows of %s begin after the run of %g s and are not sent: use more "
            "EPOCHS or a longer EPOCH_MS",
            f"{flows.late:,}",
            f"{flows.listed:,}",
            plain(demand.traffic),
            demand.duration_s,
        )
    if flows.within_a_rack:
        log.warning(
            "%s of the %s flows of %s stay within a rack and are not sent: they cross no link "
            "between switches",
            f"{flows.within_a_rack:,}",
            f"{flows.listed:,}",
            plain(demand.traffic),
        )


def _warn_of_what_is_cut_off(demand: Demand, account: Account) -> None:
    """Log a warning if the run ends before the capture does."""
    if account.fit or (account.share == 1.0 and BEYOND not in account.refused):
        return
    if account.share == 1.0:
        total = f"{account.frames:,} frames in {account.seconds:.3g} s"
    else:
        total = f"all, for which {100 * account.share:.2g} % of the file were read"
    log.warning(
        "capture %s is longer than the run of %g s: %s of %s are replayed; use TRAFFIC=%s:fit to "
        "fit it into the run, or more EPOCHS or a longer EPOCH_MS",
        plain(account.file),
        demand.duration_s,
        f"{account.replayed:,}",
        total,
        plain(demand.traffic),
    )
