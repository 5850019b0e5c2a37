"""Flows that die whole, as in a black hole: each is one trial, not as many as it has packets.

Where some flows lose every packet and others none, the packets of a flow say no more than one of
them: read one by one, a flow of a thousand that died is a thousand proofs against whatever
loss-free flows crossed as well. So each flow, or probed path of a prober, is read as one packet.

A flow that dies whole takes its trace with it: 007's agent sees the path up to there (section 4.2),
which leaves those of the equal-cost paths that begin so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.telemetry.telemetry import Connections, Flows
from testbed.arrays import LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import PathSets, pointers

LARGE = 8
"""Packets of a flow that are hardly all lost by chance."""


def die_whole(flows: Flows, traced: Connections | None) -> bool:
    """Whether most of the flows that lost packets, of those large enough to tell, lost all; where
    flows are only known by their traces, whether all of these broke off."""
    if not len(flows):
        return traced is not None and len(traced) > 0 and not traced.complete.any()
    large = (flows.lost > 0) & (flows.sent >= LARGE)
    return bool(2 * (flows.lost[large] == flows.sent[large]).sum() > large.sum())


def as_trials(flows: Flows, traced: Connections | None) -> Flows:
    """Each flow as one packet, which is lost if most of the flow's were. Of a pair of ToRs as many
    flows that died as have a trace that broke off get the paths that begin so: which flow it was
    makes no difference any more."""
    sent = np.minimum(flows.sent, 1)
    flows = replace(flows, sent=sent, lost=sent * (2 * flows.lost > flows.sent))
    sets = flows.sets
    if traced is None or not isinstance(sets, PairSets):
        return flows
    part = _taken(traced, np.flatnonzero(~traced.complete & (traced.src_tor != traced.dst_tor)))
    died = np.flatnonzero((flows.path_set < len(sets.src_tor)) & (flows.lost > 0))
    pair, n_tors = flows.path_set[died], sets.fabric.n_tors
    of_flow = _numbered(sets.src_tor[pair].astype(np.int64) * n_tors + sets.dst_tor[pair])
    of_trace = _numbered(part.src_tor.astype(np.int64) * n_tors + part.dst_tor)
    _, flow, trace = np.intersect1d(of_flow, of_trace, return_indices=True)
    path_set = flows.path_set.copy()
    path_set[died[flow]] = len(sets) + np.arange(len(flow))
    listed = PathSets.join([sets.listed, possible_paths(sets.fabric, _taken(part, trace))])
    return replace(flows, sets=replace(sets, listed=listed), path_set=path_set)


def connections_as_trials(fabric: Fabric, traced: Connections) -> Flows:
    """The flows that were traced, each as one packet that was lost."""
    one, own = np.ones(len(traced), np.int64), np.ones(len(traced), np.bool_)
    sets = possible_paths(fabric, traced)
    return Flows.of(fabric, traced.src_tor, traced.dst_tor, own, sets, one, one)


def possible_paths(fabric: Fabric, traced: Connections) -> PathSets:
    """The equal-cost paths of each connection that begin with its trace; all, if none does."""
    pair = traced.src_tor.astype(np.int64) * fabric.n_tors + traced.dst_tor
    number, of = np.unique(pair, return_inverse=True)
    src, dst = (end.astype(np.int32) for end in np.divmod(number, fabric.n_tors))
    every = fabric.path_sets(src, dst).take(of.reshape(-1))
    owner = every.owner
    seen = np.minimum(traced.paths.length[owner], every.paths.length)
    same = np.ones(len(every.paths), np.bool_)
    for nth in range(int(seen.max(initial=0))):
        far = np.flatnonzero(seen > nth)
        there = every.paths.links[every.paths.ptr[far] + nth]
        same[far] &= there == traced.paths.links[traced.paths.ptr[owner[far]] + nth]
    none = np.bincount(owner[same], minlength=len(every)) == 0
    kept = np.flatnonzero(same | none[owner])
    width = np.bincount(owner[kept], minlength=len(every))
    return PathSets(pointers(width), every.paths.take(kept))


def _taken(traced: Connections, rows: LongArray) -> Connections:
    return replace(
        traced,
        src_tor=traced.src_tor[rows],
        dst_tor=traced.dst_tor[rows],
        lost=traced.lost[rows],
        paths=traced.paths.take(rows),
        complete=traced.complete[rows],
    )


def _numbered(key: LongArray) -> LongArray:
    """A number of each row that says its key and how many of equal key come before."""
    order = np.argsort(key, kind="stable")
    first = np.searchsorted(key[order], key[order])
    nth = np.empty(len(key), np.int64)
    nth[order] = np.arange(len(key)) - first
    return key * (1 << 32) + nth
