# SPDX-License-Identifier: Apache-2.0
"""Flock's probabilistic model (its section 3.2) as arrays: components, path sets, likelihoods.

A flow takes one of w possible paths. Under a hypothesis (a set of failed components, links and
devices) b of them are bad, and equation 1 says

    P = (1 - b/w) pg^r (1-pg)^(t-r) + (b/w) pb^r (1-pb)^(t-r).

Relative to the no-failure hypothesis its logarithm is ln(1 - b/w + (b/w) e^s) with the flow's
score s = r ln(pb/pg) + (t-r) ln((1-pb)/(1-pg)), which does not overflow however many packets a
flow has. Flows with the same set of possible paths have the same b under every hypothesis: they are
one *group* (`analysis.methods.flock.likelihood` has the two kinds).

If all flows lost packets, only such flows were reported (telemetry A2). A ``conditional`` model
then scores flows with a known path given that they lost some: s less ln((1 - (1-pb)^t) / (1 -
(1-pg)^t)). The paper does not do so and compensates with a small prior, which must fit the number
of flows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from analysis.methods.flock.flow_values import Counts, FlowValues, Loss, flow_values
from analysis.methods.flock.listed import (
    Components,
    Listed,
    listed_groups,
    make_listed,
    occurrences,
)
from analysis.methods.flock.pairs import Climbs, Pairs, with_members
from analysis.telemetry.telemetry import Flows, Probes
from testbed.arrays import FloatArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import PathSets, pointers


@dataclass(frozen=True)
class FlockModel:
    """Groups of flows over components: links (directed or not), then switches.

    Attributes:
        listed, pairs: The groups, in the state of no failure.
        prior: Log-odds of each component's failure, float64[n_components].
        n_links: How many components are links; the others are switches.
        ends: The components of each link's two switches, int32[n_links, 2]; without rows if
            switches are not components.
        undirected: Whether a link stands for both its directions.
    """

    listed: Listed
    pairs: Pairs
    prior: FloatArray
    n_links: int
    ends: IntArray
    undirected: bool = False

    @property
    def n_components(self) -> int:
        """Return the number of links and switches that may fail."""
        return len(self.prior)

    def without_pairs(self) -> FlockModel:
        """Return the same model with the listed groups alone."""
        return replace(self, pairs=no_pairs(self.n_components))

    @classmethod
    def of(
        cls,
        sets: PathSets,
        path_set: LongArray,
        sent: LongArray,
        lost: LongArray,
        loss: Loss,
        prior: FloatArray,
    ) -> FlockModel:
        """Return a model of F flows over any components, without a fabric.

        Args:
            sets: Sets of possible paths; a path is a list of different components.
            path_set: The set of each flow, int64[F].
            sent, lost: Packets of each flow, int64[F].
            loss: Loss rates of bad and good paths.
            prior: Log-odds of each component's failure, float64[n_components].
        """
        counts = Counts(sent, lost, np.zeros(len(sent), np.bool_))
        values = flow_values(path_set, sets.width, counts, loss)
        listed = make_listed(sets.ptr, sets.paths, values, len(prior))
        ends = np.zeros((0, 2), np.int32)
        return cls(listed, no_pairs(len(prior)), prior, len(prior), ends)


def build_model(
    topology: Fabric,
    flows: Flows | None,
    probes: Probes | None,
    *,
    loss: Loss,
    link_prior: float,
    device_prior: float,
    undirected: bool,
    conditional: bool = False,
    listed: bool = False,
    groups: Listed | None = None,
) -> FlockModel:
    """Return the model of flows and probes together; a probe is a flow with a known path.

    Args:
        topology: The fabric, whose links and switches are the components.
        flows, probes: The telemetry; either may be None.
        loss: Loss rates of bad and good paths.
        link_prior, device_prior: Log-odds of the failure of a link and of a switch.
        undirected: Whether the two directions of a link are one component.
        conditional: See the module's text.
        listed: List the paths of pairs of ToRs, too, as some searches need it.
        groups: The listed groups, if a caller has computed them already.

    Raises:
        ValueError: A flow is between ToRs that no path joins.
    """
    components = Components.of(topology, undirected=undirected)
    prior = np.repeat((link_prior, device_prior), (components.n_links, topology.n_switches))
    ecmp = None
    if flows is not None and isinstance(flows.sets, PairSets):
        ecmp = None if listed else flows.sets.climbs()
    if flows is not None and isinstance(flows.sets, PairSets) and ecmp is None:
        flows = Flows(flows.sets.expanded(), flows.path_set, flows.sent, flows.lost)
    if groups is None:
        groups = listed_groups(flows, probes, components, len(prior), loss, conditional)
    pairs = no_pairs(len(prior))
    if flows is not None and ecmp is not None:
        pairs = pair_groups(ecmp, flows, components, len(prior), loss)
    up = np.arange(0, topology.n_links, 1 << components.shift)
    ends = np.stack((topology.link_src[up], topology.link_dst[up]), axis=1) + components.n_links
    return FlockModel(groups, pairs, prior, components.n_links, ends.astype(np.int32), undirected)


def pair_groups(
    ecmp: Ecmp, flows: Flows, components: Components, n_components: int, loss: Loss
) -> Pairs:
    """Return the groups of flows that may take any equal-cost path of their pair of ToRs."""
    n_tors = ecmp.fabric.n_tors
    assert isinstance(flows.sets, PairSets)
    src, dst = flows.sets.src_tor, flows.sets.dst_tor
    of_pair = (flows.sent > 0) & (flows.path_set < len(src))
    of_pair[of_pair] = (src != dst)[flows.path_set[of_pair]]
    flow = np.flatnonzero(of_pair)
    cell = (src.astype(np.int64) * n_tors + dst)[flows.path_set[flow]]
    used = np.zeros(n_tors**2, np.bool_)
    used[cell] = True
    group = (np.cumsum(used, dtype=np.int32) - 1)[cell]
    src, dst = np.divmod(np.flatnonzero(used), n_tors)
    turn = ecmp.turn[src, dst].astype(np.int64)
    up, down = (turn - 1) * n_tors + src, (turn - 1) * n_tors + dst
    down += ecmp.top * n_tors
    n_lists = 2 * ecmp.top * n_tors
    both = np.concatenate((up, down))
    order = np.argsort(both, kind="stable")
    width = ecmp.width[src, dst].astype(np.int64)
    counts = Counts(flows.sent[flow], flows.lost[flow], np.zeros(len(flow), np.bool_))
    return _lists(ecmp, components, n_components)._replace(
        up=up.astype(np.int32),
        down=down.astype(np.int32),
        group_ptr=np.searchsorted(both[order], np.arange(n_lists + 1)).astype(np.int64),
        groups=(order % max(len(up), 1)).astype(np.int32),
        others=np.concatenate((down, up))[order].astype(np.int32),
        values=flow_values(group, width, counts, loss),
        bad=np.zeros(len(up), np.int32),
    )


def _lists(ecmp: Ecmp, number: Components, n_components: int) -> Pairs:
    """Return the lists of climbs of every ToR to every tier, once as the way up and once as the way
    down, without any group.

    The list of a way (0 up, 1 down), tier and ToR is ``(way * ecmp.top + tier - 1) * n_tors +
    tor``. The switch at the top is a component of the way up only.
    """
    fabric = ecmp.fabric
    parts, lengths, tops = [], [], []
    for down, tier in product((0, 1), range(1, ecmp.top + 1)):
        low, high = ecmp.ptr[:, tier], ecmp.ptr[:, tier + 1]
        row = np.concatenate([np.zeros(0, np.int64), *map(np.arange, low, high)])
        links = ecmp.climbs.take(row).links.reshape(len(row), tier)
        over = number.n_links + fabric.link_dst[links]
        tor = number.n_links + ecmp.tor[row][:, None]
        over = over[:, : tier - down]
        parts.append(np.concatenate(((links ^ down) >> number.shift, tor, over), axis=1))
        nth = np.cumsum(fabric.tier == tier) - 1
        tops.append(nth[ecmp.end[row]])
        lengths.append(high - low)
    list_ptr = pointers(np.concatenate([np.zeros(0, np.int64), *lengths]))
    top = np.concatenate([np.zeros(0, np.int64), *tops])
    climb_ptr = pointers(np.concatenate([np.full(len(part), part.shape[1]) for part in parts]))
    components = np.concatenate([part.reshape(-1) for part in parts]).astype(np.int32)
    component_ptr, lists = occurrences(list_ptr, climb_ptr, components, n_components)
    found = no_pairs(n_components)
    climbs = found.climbs._replace(
        list_ptr=list_ptr,
        climb_ptr=climb_ptr,
        components=components,
        top=top.astype(np.int32),
        component_ptr=component_ptr,
        lists=lists,
    )
    found = found._replace(climbs=climbs, failures=np.zeros(len(top), np.int32))
    if ecmp.count.max(initial=0) > 1:
        return _with_ways(found)
    return with_members(_with_bits(found), n_components)


def _with_ways(lists: Pairs) -> Pairs:
    """Return ``lists`` with ``ways``, the number of climbs of each list to each top, all good."""
    of_list = np.repeat(np.arange(len(lists.climbs.list_ptr) - 1), np.diff(lists.climbs.list_ptr))
    ways = np.zeros(
        (len(lists.climbs.list_ptr) - 1, int(lists.climbs.top.max(initial=-1)) + 1), np.int32
    )
    np.add.at(ways, (of_list, lists.climbs.top), 1)
    return lists._replace(ways=ways)


def _with_bits(lists: Pairs) -> Pairs:
    """Return ``lists`` with the words that hold each list's bits; all of its tops are good."""
    ptr, top = lists.climbs.list_ptr, lists.climbs.top.astype(np.int64)
    length = np.diff(ptr)
    first, last = np.zeros(len(length), np.int64), np.full(len(length), -1)
    some = length > 0
    first[some] = top[ptr[:-1][some]] // 64
    last[some] = top[ptr[1:][some] - 1] // 64
    word_ptr = pointers(last - first + 1)
    of_list = np.repeat(np.arange(len(length)), length)
    word = word_ptr[of_list] + top // 64 - first[of_list]
    climb_at = np.full((int(word_ptr[-1]), 64), -1, np.int32)
    climb_at[word, top % 64] = np.arange(len(top))
    good = np.zeros(len(climb_at), np.uint64)
    np.bitwise_or.at(good, word, np.uint64(1) << (top % 64).astype(np.uint64))
    climbs = lists.climbs._replace(
        word_ptr=word_ptr, first_word=first.astype(np.int32), climb_at=climb_at
    )
    return lists._replace(climbs=climbs, good=good, single=np.zeros_like(good))


def no_pairs(n_components: int) -> Pairs:
    """Return pairs of ToRs without any group or list, for a fabric in which the number of
    components is ``n_components``."""
    nothing, none = np.zeros(0, np.int32), np.zeros(1, np.int64)
    bits = np.zeros(0, np.uint64)
    empty = np.zeros(0)
    values = FlowValues(
        ptr=none,
        score=empty,
        bent=empty,
        times=empty,
        width=np.zeros(0, np.int64),
        memo_ptr=none,
        memo=np.zeros((0, 2)),
    )
    climbs = Climbs(
        list_ptr=none,
        climb_ptr=none,
        components=nothing,
        word_ptr=none,
        first_word=nothing,
        climb_at=np.zeros((0, 64), np.int32),
        top=nothing,
        component_ptr=np.zeros(n_components + 1, np.int64),
        lists=nothing,
        member_ptr=none,
        members=nothing,
        nth=nothing,
    )
    return Pairs(
        climbs=climbs,
        up=nothing,
        down=nothing,
        group_ptr=none,
        groups=nothing,
        others=nothing,
        values=values,
        failures=nothing,
        good=bits,
        single=bits,
        ways=np.zeros((0, 0), np.int32),
        bad=nothing,
        counted=np.zeros(0, np.bool_),
        usual=nothing,
        numbers=nothing,
        n_numbers=nothing,
    )
