# SPDX-License-Identifier: Apache-2.0
"""The path segments between monitor switches of any Clos, and how much traffic crosses each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from testbed.arrays import BoolArray, FloatArray, IntArray
from testbed.fabric.climbs import Climbs
from testbed.fabric.clos import Fabric, TopologyError
from testbed.fabric.components import components
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.paths import Paths, pointers

MOST_ENTRIES = 200_000_000  # links of all segments: 0.8 GB


@dataclass(frozen=True)
class Segments:
    """All path segments between monitor switches (Canary, section III-A), as parallel arrays.

    ``upstream`` and ``downstream`` are switch indices int32[S]; ``switches`` int32[S, H] holds the
    switches that encode themselves into pathBF (the upstream and those between, -1 padded);
    ``subproblem`` int32[S] numbers the disjoint sub-problem (section III-E) of each segment. Hosts
    with meters have the indices behind those of the switches.
    """

    upstream: IntArray
    downstream: IntArray
    switches: IntArray
    paths: Paths
    subproblem: IntArray

    def __len__(self) -> int:
        return len(self.upstream)

    def through(self, switch: int) -> BoolArray:
        """Return whether each segment begins at, ends at or crosses a switch, bool[S]."""
        return (self.switches == switch).any(axis=1) | (self.downstream == switch)


def segments(ecmp: Ecmp, monitor: BoolArray) -> Segments:
    """Return every path segment between monitor switches (Canary, section III-A).

    A segment leads up from a monitor to the next, down, or up to a switch that is none and down
    again, if some pair of ToRs has such a path. Those that turn come first, the lower ones before
    the higher; then those that lead up, then the same downwards.

    A sub-problem (section III-E) is a pod with its links to the highest tier, or as many pods as
    segments join: one with ToR and core switches as monitors, all of them with ToRs alone.

    If hosts are monitors, each of their links is a segment; these come last, in the order of
    `testbed.fabric.host_links`.

    Args:
        monitor: Which switches host meters, bool[n_switches], or switches and then hosts,
            bool[n_switches + n_hosts] (`testbed.fabric.monitors.monitor_switches`).

    Raises:
        TopologyError: There are too many.
    """
    fabric = ecmp.fabric
    hosts = len(monitor) > fabric.n_switches
    monitor = monitor[: fabric.n_switches]
    starts = np.flatnonzero(monitor).astype(np.int32)
    climbs = Climbs.of(starts, ~monitor, fabric.link_src, fabric.link_dst)
    turns = [_turning(ecmp, climbs, starts, monitor, tier) for tier in range(1, ecmp.top + 1)]
    _see_that_they_fit(ecmp, turns)
    upstream, downstream, paths = [], [], []
    for turn in turns:
        found = turn.climbs.path_sets(turn.src, turn.dst)
        upstream.append(starts[turn.src[found.owner]])
        downstream.append(starts[turn.dst[found.owner]])
        paths.append(found.paths)
    rising = np.flatnonzero(monitor[climbs.end] & (climbs.links.length > 0))
    up, low, high = climbs.links.take(rising), starts[climbs.start[rising]], climbs.end[rising]
    paths += [up, Paths(up.ptr, _reversed(up))]
    found = _segments_of(
        ecmp,
        np.concatenate([*upstream, low, high]),
        np.concatenate([*downstream, high, low]),
        _joined(paths),
    )
    return _with_hosts(ecmp, found) if hosts else found


def _joined(paths: list[Paths]) -> Paths:
    length = np.concatenate([each.length for each in paths])
    return Paths(pointers(length), np.concatenate([each.links for each in paths]))


def _with_hosts(ecmp: Ecmp, found: Segments) -> Segments:
    """Return the segments with those of the hosts' links, up and down, behind them."""
    fabric = ecmp.fabric
    n = 2 * fabric.n_hosts
    tor, up = np.repeat(np.arange(fabric.n_tors), 2 * fabric.hosts_per_tor), np.arange(n) % 2 == 0
    host = fabric.n_switches + np.arange(n) // 2
    upstream = np.where(up, host, tor).astype(np.int32)
    switches = np.full((n, found.switches.shape[1]), -1, np.int32)
    switches[:, 0] = upstream
    links = Paths(np.arange(n + 1), np.arange(fabric.n_links, fabric.n_links + n, dtype=np.int32))
    own = _subproblem_of_pods(ecmp, found.paths)[fabric.pod[tor]]
    return Segments(
        np.append(found.upstream, upstream),
        np.append(found.downstream, np.where(up, tor, host).astype(np.int32)),
        np.concatenate((found.switches, switches)),
        _joined([found.paths, links]),
        np.append(found.subproblem, own),
    )


def with_meters(fabric: Fabric, segments: Segments) -> int:
    """Return the number of switches and, if these host meters, of hosts."""
    hosts = len(segments) and segments.upstream.max() >= fabric.n_switches
    return fabric.n_switches + (fabric.n_hosts if hosts else 0)


@dataclass(frozen=True)
class _Turning:
    """The segments that turn at one tier.

    Attributes:
        climbs: The climbs to the switches of this tier that are no monitors.
        src, dst: The pairs of starts of such climbs that have segments, int32[P].
        number, links: The number of these segments, and of the links of all of them.
    """

    climbs: Climbs
    src: IntArray
    dst: IntArray
    number: int
    links: int


def _turning(
    ecmp: Ecmp, climbs: Climbs, starts: IntArray, monitor: BoolArray, tier: int
) -> _Turning:
    fabric = ecmp.fabric
    here = climbs.only((fabric.tier[climbs.end] == tier) & ~monitor[climbs.end])
    begin = np.flatnonzero(np.diff(here.ptr))
    row = np.repeat(np.arange(len(begin)), np.diff(here.ptr)[begin])
    reach = csr_array(
        (np.ones(len(row), np.int64), (row, here.end)), shape=(len(begin), fabric.n_switches)
    )
    # Two monitors have such segments if packets between ToRs below them turn at this tier.
    below = csr_array(ecmp.count[:, starts[begin]] > 0, dtype=np.float32)
    used = below.T @ (ecmp.turn == tier).astype(np.float32) @ below > 0
    ways = csr_array((reach @ reach.T).multiply(used))
    ways.eliminate_zeros()
    ways.sort_indices()
    src, dst = np.repeat(np.arange(len(begin)), np.diff(ways.indptr)), ways.indices
    number = ways.data
    rise = tier - fabric.tier[starts[begin]].astype(np.int64)
    links = int((number * (rise[src] + rise[dst])).sum())
    src, dst = (begin[each].astype(np.int32) for each in (src, dst))
    return _Turning(here, src, dst, int(number.sum()), links)


def _see_that_they_fit(ecmp: Ecmp, turns: list[_Turning]) -> None:
    if sum(turn.links for turn in turns) > MOST_ENTRIES:
        raise TopologyError(
            f"MONITORS makes {sum(turn.number for turn in turns):,} segments of "
            f"{ecmp.fabric.title}: use more monitors, such as tor+core"
        )


def _reversed(climbs: Paths) -> IntArray:
    """Return the links of each climb in reverse, which is its descent, concatenated, int32[]."""
    position = np.arange(len(climbs.links)) - climbs.ptr[climbs.owner]
    last = climbs.ptr[1:][climbs.owner] - 1
    return climbs.links[last - position] ^ 1


def _segments_of(ecmp: Ecmp, upstream: IntArray, downstream: IntArray, paths: Paths) -> Segments:
    links = paths.padded()
    switches = np.where(links >= 0, ecmp.fabric.link_src[links], -1).astype(np.int32)
    return Segments(upstream, downstream, switches, paths, _subproblems(ecmp, paths))


def _subproblems(ecmp: Ecmp, paths: Paths) -> IntArray:
    """Return the sub-problem of each segment, int32[S]: pods joined by segments."""
    return _subproblem_of_pods(ecmp, paths)[_pods(ecmp.fabric)[paths.links[paths.ptr[:-1]]]]


def _subproblem_of_pods(ecmp: Ecmp, paths: Paths) -> IntArray:
    """Return the sub-problem of each pod, int32[pods]: segments join pods."""
    pod = _pods(ecmp.fabric)
    first, last = pod[paths.links[paths.ptr[:-1]]], pod[paths.links[paths.ptr[1:] - 1]]
    return components(first, last, int(pod.max(initial=0)) + 1)


def _pods(fabric: Fabric) -> IntArray:
    """Return the pod of each link, which is that of its lower end, int32[n_links]."""
    lower = np.where(np.arange(fabric.n_links) % 2, fabric.link_dst, fabric.link_src)
    return fabric.pod[lower]


def segment_share(ecmp: Ecmp, pair_share: FloatArray, found: Segments) -> FloatArray:
    """Return the share of all flows that crosses each segment, float64[S].

    Args:
        pair_share: The share of the flows from ToR to ToR, float64[n_tors, n_tors]; ECMP spreads
            those of a pair uniformly over its paths, and hosts of a ToR send alike.
        found: What `segments` returned.
    """
    fabric, share = ecmp.fabric, np.zeros(len(found))
    if of_hosts := 2 * (with_meters(fabric, found) - fabric.n_switches):
        own = np.repeat(
            np.stack((pair_share.sum(1), pair_share.sum(0)), 1), fabric.hosts_per_tor, 0
        )
        share[-of_hosts:] = own.reshape(-1) / fabric.hosts_per_tor
    tier = fabric.tier.astype(np.int64)
    spread = pair_share / ecmp.width
    n = len(found) - of_hosts
    up, down = found.upstream[:n], found.downstream[:n]
    peak = (found.paths.length[:n] + tier[up] + tier[down]) // 2
    for top in range(1, ecmp.top + 1):
        flows = np.where(ecmp.turn == top, spread, 0.0)  # those whose paths turn at this tier
        rows = np.flatnonzero((peak == top) & (peak > tier[up]) & (peak > tier[down]))
        ends, at = np.unique(down[rows], return_inverse=True)
        share[rows] = _crossing(ecmp, flows @ csr_array(ecmp.count[:, ends]), up[rows], at)
        for low, high, flow in ((up, down, flows), (down, up, flows.T)):
            rows = np.flatnonzero((peak == tier[high]) & (peak <= top))
            ends, at = np.unique(high[rows], return_inverse=True)
            share[rows] += _crossing(ecmp, flow @ _ways_down(ecmp, ends, top), low[rows], at)
    return share


def _crossing(
    ecmp: Ecmp, flows: FloatArray, begin: IntArray, at: npt.NDArray[np.intp]
) -> FloatArray:
    """Return the share of flows that crosses each segment, float64[R].

    Args:
        ecmp: The equal-cost paths of the fabric.
        flows: The share that each ToR sends through each end, float64[n_tors, E].
        begin, at: The switch where each segment begins, and the index of its end, int[R].
    """
    begins, row = np.unique(begin, return_inverse=True)
    return (csr_array(ecmp.count[:, begins]).T @ flows)[row, at]


def _ways_down(ecmp: Ecmp, switches: IntArray, top: int) -> FloatArray:
    """Return the number of ways from switches to each ToR that turn at a tier.

    float64[n_tors, E].
    """
    fabric = ecmp.fabric
    tier = fabric.tier[switches]
    ways = ecmp.count[:, switches].astype(np.float64)
    if (tier == top).all():
        return ways
    ends = fabric.link_src[::2], fabric.link_dst[::2]
    shape = (fabric.n_switches,) * 2
    rise = csr_array(coo_array((np.ones(fabric.n_edges), ends), shape=shape))
    ahead, there = rise, csr_array(ecmp.count * (fabric.tier == top), dtype=np.float64)
    for below in range(top - 1, -1, -1):  # ``ahead``: the climbs from this tier to the top
        here = tier == below
        ways[:, here] = there @ csr_array(ahead[switches[here]]).toarray().T
        ahead = rise @ ahead
    return ways
