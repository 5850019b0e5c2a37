# SPDX-License-Identifier: Apache-2.0
"""007's path discovery without packets: which connections are traced, and how far the traces get.

It does what `testbed.measurements.traces.path_discovery` does with packets: a host traces its
connections that lost packets, C_t a second, one after another, and a switch answers T_max a second.
A trace has a packet for each hop. The packet and its answer, which returns the same way, are lost
with the loss rates of the links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import FloatArray, IntArray, product
from testbed.dataplane.adapted import IcmpLimit
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.host_links import HostFabric
from testbed.fabric.paths import Paths
from testbed.measurements.traces.path_discovery import max_hops
from testbed.traffic.generator import serialise


@dataclass(frozen=True)
class Traces:
    """The results of tracing.

    Attributes:
        flow: The traced flows, int64[C].
        paths: The links that each trace found, from the first on.
        complete: Whether they are the whole path, bool[C].
        packets: The number of packets that the traces sent.
        answers: The number of ICMP messages that switches sent.
        refused: The number of answers that a switch's limit suppressed.
    """

    flow: npt.NDArray[np.int64]
    paths: Paths
    complete: npt.NDArray[np.bool_]
    packets: int
    answers: int
    refused: int


def trace(
    ecmp: Ecmp,
    loss: FloatArray,
    host: IntArray,
    time_s: FloatArray,
    end_s: FloatArray,
    paths: Paths,
    lost: npt.NDArray[np.int64],
    *,
    hosts: HostFabric | None = None,
    epoch_s: float,
    until_s: float,
    per_s: float,
    icmp: IcmpLimit,
    rng: np.random.Generator,
) -> Traces:
    """Return traces of the flows that lost packets, within the hosts' and the switches' limits.

    A switch that did not answer is filled in if the fabric leaves one possibility: between a ToR
    and the switch where the path turns, or from the aggregation switch at the path's other end.

    Args:
        ecmp: The equal-cost paths of the fabric.
        loss: The loss rates in each epoch, float64[1 or E, n_links].
        host, time_s, end_s, paths, lost: The sender of each flow, when it begins and ends to send
            (s), its path, and the packets that it lost, [F] each.
        hosts: The fabric with its hosts, whose links a trace and its answers cross, too; None if
            these lose nothing. Connections within a rack are then traced, too; their traces have no
            link of the fabric.
        epoch_s, until_s: The length of an epoch, and the end of the run, in seconds.
        per_s: C_t, the number of traceroutes that each host may send in a second.
        icmp: The limit of ICMP messages of a switch.
        rng: Draws which packets and answers are lost.
    """
    candidates = np.flatnonzero((lost > 0) & (paths.length > 0))
    # the first of n losses, each at any time of the flow; a host's traces wait for one another
    span = end_s[candidates] - time_s[candidates]
    first = 1 - rng.random(len(candidates)) ** (1 / lost[candidates])
    noticed_ns = ((time_s[candidates] + span * first) * 1e9).astype(np.int64)
    each_ns = np.full(len(candidates), round(1e9 / per_s))
    start_s = serialise(host[candidates].astype(np.int32), noticed_ns, each_ns) / 1e9
    in_time = np.flatnonzero(start_s < until_s)
    in_time = in_time[np.argsort(start_s[in_time], kind="stable")]
    flow, start_s = candidates[in_time], start_s[in_time]
    links = paths.take(flow).padded()
    of_host = None if hosts is None else _host_loss(hosts, loss, host[flow], start_s, epoch_s)
    answered, answers, refused = _answers(ecmp, loss, links, start_s, epoch_s, icmp, rng, of_host)
    found = _found(ecmp, links, answered)
    order = np.argsort(flow)
    kept = np.where(np.arange(links.shape[1]) < found[:, None], links, -1)[order]
    traced, complete = flow[order], (found == (links >= 0).sum(axis=1))[order]
    if hosts is not None:
        within = np.flatnonzero((lost > 0) & (paths.length == 0))
        traced, order = np.append(traced, within), np.argsort(np.append(traced, within))
        kept = np.concatenate((kept, np.full((len(within), kept.shape[1]), -1, kept.dtype)))[order]
        traced, complete = traced[order], np.append(complete, np.zeros(len(within), bool))[order]
    return Traces(
        traced,
        Paths.from_padded(kept),
        complete,
        packets=len(flow) * max_hops(ecmp.fabric),
        answers=answers,
        refused=refused,
    )


def _answers(
    ecmp: Ecmp,
    loss: FloatArray,
    links: IntArray,
    time_s: FloatArray,
    epoch_s: float,
    icmp: IcmpLimit,
    rng: np.random.Generator,
    of_host: tuple[FloatArray, FloatArray] | None,
) -> tuple[npt.NDArray[np.bool_], int, int]:
    """Return which switches' answers arrived, how many were sent, and how many suppressed.

    The first is bool[C, H], for the switch at the end of each link of each path. ``of_host`` has
    the loss rates of the sender's links, up and down, float64[C] each.
    """
    n, hops = links.shape
    there = links >= 0
    epoch = np.minimum((time_s / epoch_s).astype(np.int64), len(loss) - 1)[:, None]
    onward = np.where(there, 1 - loss[epoch, links], 0.0)
    back = np.where(there, 1 - loss[epoch, links ^ 1], 0.0)
    if of_host is not None and hops:
        onward[:, 0] *= 1 - of_host[0]
        back[:, 0] *= 1 - of_host[1]
    reached = rng.random((n, hops)) < np.cumprod(onward, axis=1)
    returned = rng.random((n, hops)) < np.cumprod(back, axis=1)
    # the first of each switch and window answer, by the time they were asked
    row, hop = np.nonzero(reached)
    switch = ecmp.fabric.link_dst[links[row, hop]]
    window = (time_s[row] / icmp.window_s).astype(np.int64)
    order = np.lexsort((time_s[row], window, switch))
    key = switch[order].astype(np.int64) * (int(window.max(initial=0)) + 1) + window[order]
    place = np.arange(len(key)) - np.searchsorted(key, key)
    late = order[place >= icmp.messages]
    reached[row[late], hop[late]] = False
    return reached & returned, len(row) - len(late), len(late)


def _host_loss(
    hosts: HostFabric, loss: FloatArray, host: IntArray, time_s: FloatArray, epoch_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return the loss rates of the links of some hosts, up and down, at some times in seconds,
    float64[C] each."""
    epoch = np.minimum((time_s / epoch_s).astype(np.int64), len(loss) - 1)
    up = hosts.switches_only.n_links + 2 * host
    return loss[epoch, up], loss[epoch, up + 1]


def _found(ecmp: Ecmp, links: IntArray, answered: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return how many links of its path, from the first on, each trace makes known, int64[C].

    The link behind the last switch that answered is known as well if it is the only one.
    """
    n, hops = links.shape
    if not n:
        return np.zeros(0, np.int64)
    length = (links >= 0).sum(axis=1)
    at = np.arange(hops)
    known = answered & (links >= 0)
    last = np.where(known, at, -1).max(axis=1, initial=-1)
    turn = length // 2 - 1
    rows = np.arange(n)
    fabric = ecmp.fabric
    src, dst = fabric.link_src[links[:, 0]], fabric.link_dst[links[rows, length - 1]]
    top = fabric.link_dst[links[rows, turn]]
    turned = known[rows, turn]
    for tor, side in ((src, at < turn[:, None]), (dst, at > turn[:, None])):
        only = turned & (ecmp.count[tor, top] == 1)
        known |= only[:, None] & side
    if hops == 4:  # through a highest tier: the aggregation switches follow from each other
        across = length == 4
        partners = _partners(ecmp)
        for here, tor, there in ((0, src, 2), (2, dst, 0)):
            switch = fabric.link_dst[links[:, there]]
            known[:, here] |= across & answered[:, there] & (partners[tor, switch] == 1)
    known[rows, length - 1] |= known[rows, np.maximum(length - 2, 0)]
    known &= at <= np.minimum(last + 1, length - 1)[:, None]
    return np.cumprod(known, axis=1).sum(axis=1)


def _partners(ecmp: Ecmp) -> npt.NDArray[np.float32]:
    """Return the number of aggregation switches above each ToR that share a core with each switch.

    float32[n_tors, n_switches]; 0 for a switch that is no aggregation switch.
    """
    fabric = ecmp.fabric
    middle, top = (np.flatnonzero(fabric.tier == tier) for tier in (1, 2))
    linked = np.zeros((fabric.n_switches, fabric.n_switches), np.bool_)
    linked[fabric.link_src[::2], fabric.link_dst[::2]] = True
    uplinks = linked[np.ix_(middle, top)].astype(np.float32)
    together = (product(uplinks, uplinks.T) > 0).astype(np.float32)
    partners = np.zeros((fabric.n_tors, fabric.n_switches), np.float32)
    tors = linked[np.ix_(np.arange(fabric.n_tors), middle)].astype(np.float32)
    partners[:, middle] = product(tors, together)
    return partners
