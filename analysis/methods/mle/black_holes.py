"""Losses that are not independent packets, as those of a black hole, and what they weigh.

**Trials.** Where some flows lose every packet and others none, the packets of a flow say no more
than one of them: read one by one, a flow of a thousand that died is a thousand proofs against
whatever loss-free flows crossed as well. So each flow, or probed path of a prober, is read as one
packet.

A flow that dies whole takes its trace with it: 007's agent sees the path up to there (section 4.2),
which leaves those of the equal-cost paths that begin so.

**Correlated losses.** A black hole swallows every packet of some flows and none of the others. A
path over it then loses far more, or far less, than packets that fall one by one: to a binomial
likelihood, paths over one link that differ so are proof of a second faulty link. If the losses
among the n packets of an observation are correlated by r, the number lost has the variance n p (1 -
p) (1 + (n - 1) r), that of a beta-binomial law, and weighs as much as n / (1 + (n - 1) r)
independent packets (Williams, Applied Statistics 31, 1982, method III). At r = 1 each flow or path
is one coin, however large.

r is estimated for each blamed unit and each part of the telemetry, as probes of one port know
another hole than flows do: from the observations over the unit with its own mean rate there, the
others' rates held, r = (S - V) / sum (n - 1) v with S = sum (k - n p)^2 and V = sum v, v = n p
(1 - p). It is 0 unless S is out of what independent losses make of it, by ten standard deviations
(the variance of S is at most sum (2 v^2 + v)); so where losses are independent nothing changes.
An observation has the correlation of its units, in proportion to their rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from analysis.methods.mle.likelihood import Problem
from analysis.methods.mle.problem import Observed, Units, over_units
from analysis.telemetry.telemetry import Connections, Flows
from testbed.arrays import BoolArray, FloatArray, LongArray
from testbed.compiled import njit
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


ROUNDS = 4
"""Explanations at most, each with the weights that the last one gave the observations."""

CLEAR = 10.0  # standard deviations
IN_FLOWS = 0.05
"""The squared variation of the rates of paths over a unit from which on its losses are said to come
in flows."""


class Correlated(NamedTuple):
    """``parts``: the observations with their weights; ``in_flows`` bool[U]: the units whose losses
    come in flows; ``any``: whether a weight is not 1."""

    parts: list[Observed]
    in_flows: BoolArray
    any: bool


def correlated(parts: Sequence[Observed], units: Units, found: Problem) -> Correlated:
    """Weigh observations by how their losses are correlated, given an explanation of them."""
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
    """Explain again until what is blamed stays the same, at most `ROUNDS` times. Returns the
    explanation, and the blamed units that lose packets in flows.

    Args:
        found: The explanation of observations that all weigh alike.
        explain_again: Given an explanation, the units that lose packets in flows, and the
            explanation of observations weighed by that; None where none of them weighs less.
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
    """The correlation of each unit's losses, and by how much the rates of paths over it vary."""
    n_units = len(found.x)
    last, most = np.full(n_units, -1, np.int64), int(np.diff(part.paths.ptr).max(initial=0))
    room = np.zeros(most, np.int32)
    paths = part.paths.ptr, part.paths.links, units.of_link
    unit, row, rest = _main_faults(*paths, found.blamed, found.x, last, room)
    sent, lost = part.sent[row], part.lost[row]

    def summed(values: FloatArray) -> FloatArray:
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


@njit
def _main_faults(path_ptr, links, of_link, blamed, x, last, over):
    """The blamed units that cause half or more of what their paths lose: of each the unit, the
    path, and the rate of the others on it. ``last`` and ``over`` are room for a path's units."""
    units, rows, rests = [], [], []
    for p in range(len(path_ptr) - 1):
        total, n, any_blamed = 0.0, 0, False
        for e in range(path_ptr[p], path_ptr[p + 1]):
            i = of_link[links[e]]
            if last[i] != p:
                last[i] = p
                over[n] = i
                n += 1
                total += x[i]
                any_blamed |= blamed[i]
        if any_blamed:
            for i in over[:n]:
                if blamed[i] and 2 * x[i] >= total:
                    units.append(i)
                    rows.append(p)
                    rests.append(total - x[i])
    return np.array(units, np.int32), np.array(rows, np.int64), np.array(rests)
