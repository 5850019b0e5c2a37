# SPDX-License-Identifier: Apache-2.0
"""Correlated losses, as those of a black hole, and the weight of observations that have them.

**Trials.** Where some flows lose every packet and others none, all packets of a flow give no more
evidence than one of them. Counted packet by packet, a flow of a thousand lost packets would be a
thousand pieces of evidence against links that loss-free flows crossed as well. So each flow, or
each path of a prober, counts as one packet.

The trace of a flow that loses every packet ends at the fault: 007's agent sees the path up to there
(section 4.2), so that the equal-cost paths with this beginning remain possible.

**Correlated losses.** A black hole drops every packet of some flows and none of the others. A path
over it then loses far more, or far less, than if packets were lost independently; a binomial
likelihood takes such differences for evidence of a second faulty link. If the losses
among the n packets of an observation are correlated by r, the number lost has the variance n p (1 -
p) (1 + (n - 1) r), that of a beta-binomial law, and weighs as much as n / (1 + (n - 1) r)
independent packets (Williams, Applied Statistics 31, 1982, method III). At r = 1 each flow or path
counts as one trial, however large it is.

r is estimated for each blamed unit and each part of the telemetry, because probes of one port may
meet another black hole than flows do. The estimate uses the observations over the unit with its own
mean rate there and all other rates fixed: r = (S - V) / sum (n - 1) v with S = sum (k - n p)^2 and
V = sum v, v = n p (1 - p). It is 0 unless S exceeds what independent losses give by ten standard
deviations (the variance of S is at most sum (2 v^2 + v)), so that independent losses keep their
weight. The correlation of an observation is the mean of its units', weighted by their rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from analysis.methods.mle.likelihood import Problem
from analysis.methods.mle.problem import Observed, Units, over_units
from analysis.telemetry.telemetry import Connections, Flows
from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import PathSets, pointers
from testbed.kernels import Kernels

KERNELS = Kernels.beside(__file__)

LARGE = 8
"""A flow of this many packets is very unlikely to lose all of them by chance."""


def die_whole(flows: Flows, traced: Connections | None) -> bool:
    """Return whether most lossy flows of at least `LARGE` packets lost all packets. If flows are
    known by their traces alone, return whether no trace is complete."""
    if not len(flows):
        return traced is not None and len(traced) > 0 and not traced.complete.any()
    large = (flows.lost > 0) & (flows.sent >= LARGE)
    return bool(2 * (flows.lost[large] == flows.sent[large]).sum() > large.sum())


def as_trials(flows: Flows, traced: Connections | None) -> Flows:
    """Return each flow as one packet, which is lost if most of the flow's packets were.

    If a pair of ToRs has n incomplete traces, n of its lost flows get the paths that begin with
    these traces; which flows makes no difference, since all are equal now.
    """
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
    """Return the traced flows, each as one packet that was lost."""
    one, own = np.ones(len(traced), np.int64), np.ones(len(traced), np.bool_)
    sets = possible_paths(fabric, traced)
    return Flows.of(fabric, traced.src_tor, traced.dst_tor, own, sets, one, one)


def possible_paths(fabric: Fabric, traced: Connections) -> PathSets:
    """Return the equal-cost paths of each connection that begin with its trace; all its equal-cost
    paths if none does."""
    pair = traced.src_tor.astype(np.int64) * fabric.n_tors + traced.dst_tor
    number, pair_of_flow = np.unique(pair, return_inverse=True)
    src, dst = (end.astype(np.int32) for end in np.divmod(number, fabric.n_tors))
    every = fabric.path_sets(src, dst).take(pair_of_flow.reshape(-1))
    owner = every.owner
    compared = np.minimum(traced.paths.length[owner], every.paths.length)
    same = np.ones(len(every.paths), np.bool_)
    for nth in range(int(compared.max(initial=0))):
        far = np.flatnonzero(compared > nth)
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
    """Return a number for each row that encodes its key and how many equal keys come before it:
    int64[rows]."""
    order = np.argsort(key, kind="stable")
    first = np.searchsorted(key[order], key[order])
    nth = np.empty(len(key), np.int64)
    nth[order] = np.arange(len(key)) - first
    return key * (1 << 32) + nth


ROUNDS = 4
"""The most explanations; each uses the weights that follow from the one before."""

CLEAR = 10.0  # standard deviations
IN_FLOWS = 0.05
"""The squared coefficient of variation of the loss rates of paths over a unit from which on whole
flows are said to be lost there."""


class Correlated(NamedTuple):
    """Observations weighted by the correlation of their losses.

    Attributes:
        parts: The observations with their weights.
        in_flows: The units that lose whole flows, bool[U].
        any: Whether any weight differs from 1.
    """

    parts: list[Observed]
    in_flows: BoolArray
    any: bool


def correlated(parts: Sequence[Observed], units: Units, found: Problem) -> Correlated:
    """Return the observations weighted by the correlation of their losses, which is estimated given
    an explanation of them."""
    in_flows = np.zeros(len(units.size), np.bool_)
    weighed, changed = [], False
    for part in parts:
        r, varied = _estimate(part, units, found)
        in_flows |= varied > IN_FLOWS
        if r.any():
            ptr, over = over_units(part.paths, units)
            owner = np.repeat(np.arange(len(part.sent)), np.diff(ptr))
            total, mixed = (
                np.bincount(owner, found.x[over] * each, len(part.sent))
                for each in (np.ones(len(over)), r[over])
            )
            of_row = mixed / np.maximum(total, 1e-300)
            weight = 1.0 / (1.0 + np.maximum(part.sent - 1.0, 0.0) * of_row)
            part = Observed(part.paths, part.sent * weight, part.lost * weight)
            changed = True
        weighed.append(part)
    return Correlated(weighed, in_flows, changed)


def weigh_until_settled(
    found: Problem, explain_again: Callable[[Problem], tuple[BoolArray, Problem | None]]
) -> tuple[Problem, BoolArray]:
    """Weigh observations and explain them again until the blamed units stay the same, at most
    `ROUNDS` times. Return the last explanation, and the blamed units that lose whole flows.

    Args:
        found: The explanation of unweighted observations.
        explain_again: From an explanation, returns the units that lose whole flows, bool[U], and
            the explanation of the observations weighted by it, or None if every weight is 1.
    """
    in_flows = np.zeros(len(found.x), np.bool_)
    for _ in range(ROUNDS):
        in_flows, after = explain_again(found)
        in_flows = in_flows & found.blamed
        if after is None:
            break
        settled = bool((after.blamed == found.blamed).all())
        found = after
        if settled:
            break
    return found, in_flows


def _estimate(part: Observed, units: Units, found: Problem) -> tuple[FloatArray, FloatArray]:
    """Return the correlation of each unit's losses and the squared variation of the loss rates of
    the paths over it: float64[U] each."""
    n_units = len(found.x)
    unit, row, rest = _main_faults(part, units, found)
    sent, lost = part.sent[row], part.lost[row]

    def summed(values: FloatArray) -> FloatArray:
        """Return the sums over each unit, float64[U], of a value for each pair of a path and a
        unit."""
        return np.bincount(unit, values, n_units).astype(np.float64)

    rate, others, arrived = np.zeros(n_units), -np.maximum(rest, 0.0), summed(sent - lost)
    for _ in range(12):  # Newton from below: the sum of the misfits is convex and falls
        through = summed(sent * np.exp(others - rate[unit]))
        rate += (through - arrived) / np.maximum(through, 1e-300)
        rate = np.clip(rate, 0.0, 50.0)
    p = -np.expm1(others - rate[unit])
    v = sent * p * (1 - p)
    count = np.bincount(unit, minlength=n_units)
    misfit = summed((lost - sent * p) ** 2) * count / np.maximum(count - 1, 1)
    excess = misfit - summed(v)
    clear = (count > 1) & (excess > CLEAR * np.sqrt(summed(2 * v * v + v)))
    r = excess / np.maximum(summed(np.maximum(sent - 1, 0) * v), 1e-300)
    r = np.where(clear, np.clip(r, 0.0, 1.0), 0.0)
    mean = summed(sent * p) / np.maximum(summed(sent), 1e-300)
    return r, r * (1 - mean) / np.maximum(mean, 1e-300)


def _main_faults(
    part: Observed, units: Units, found: Problem
) -> tuple[IntArray, LongArray, FloatArray]:
    """Return each pair of a path and a blamed unit that causes at least half of its losses: the
    unit, the path, and the rate of the path's other units."""
    longest, room = int(np.diff(part.paths.ptr).max(initial=0)), 1024
    while True:
        unit, row, rest = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room)
        n = KERNELS.main_faults(
            ptr=part.paths.ptr,
            links=part.paths.links,
            of_link=units.of_link,
            blamed=found.blamed,
            x=found.x,
            last=np.full(len(found.x), -1, np.int64),
            over=np.empty(longest, np.int32),
            units=unit,
            rows=row,
            rests=rest,
        )
        if n <= room:
            return unit[:n], row[:n], rest[:n]
        room = n
