# SPDX-License-Identifier: Apache-2.0
"""The likelihood of known and hidden paths together, along one unit's rate, and its updates.

A path's rate is X_p = mean * hops + sum of the x of its blamed units: healthy links are taken to
lose all alike here. A flow of a packets that arrived and k that were lost, on one of w paths, adds

    ln((1/w) sum_p e^(-a X_p) (1 - e^(-X_p))^k),

a lossy known path its one term. If the rate of one unit changes, only the terms of the paths over
it do: with c the paths over it whose other units lose nothing, and d the others, the sum is

    left + c e^(-a (b + x)) (1 - e^(-b - x))^k + sum over d of the same with their rates added,

b the background. So a unit's likelihood at any rate takes one look at the flows of the sets it is
on. A flow reported only because it lost packets is divided by what its pair of ToRs would lose,
(1/w) sum_p (1 - e^(-n X_p)): the same form, subtracted.

**The start** of the search among flows of hidden paths is what known paths alone tell. The mixture
over paths has many peaks: a search from nothing blames what a flow could have met, and ends with
the planes of a fabric exchanged. Probes know their paths, and their likelihood has one peak; so the
links that they alone blame are where the search begins. What they cannot tell apart, as the two
directions of a link that a probe goes up and back, is one class, of which the hidden flows then
choose (`analysis.methods.mle.mixture_search`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from analysis.methods.mle.hidden import HiddenFlows
from analysis.methods.mle.problem import Observed, Rows, Units, marks, observe
from analysis.methods.mle.search import explain, suspects
from testbed.arrays import BoolArray, FloatArray, FloatMatrix, IntArray, LongArray
from testbed.fabric.paths import pointers
from testbed.kernels import Bound, Kernels

KERNELS = Kernels.beside(__file__)


@dataclass(frozen=True)
class Mixture:
    """Rows of known paths, sets of hidden ones, and the rates x float64[U] of blamed units, else 0.

    Rows as in `Rows`, with ``row_hops`` float64[R] links each and their rates ``total``; sets as in
    `HiddenFlows`. Unit i is on the paths ``over[over_ptr[i]:over_ptr[i + 1]]``, ascending; path p
    is of set ``set_of[p]`` and its blamed units' rates sum up to ``rate[p]``; ``log_sum`` is the
    logarithm of each flow's sum over paths. ``mean`` float64[1] is a healthy link's rate.
    ``size_of`` int32[F] numbers loss-free flows by size, those of a number being equally large; it
    is -1 of others. ``on`` bool[P], ``room`` and ``alike`` are scratch.
    """

    ptr: LongArray
    units: IntArray
    unit_ptr: LongArray
    rows: IntArray
    lost: FloatArray
    arrived: FloatArray
    size: FloatArray
    row_hops: FloatArray
    total: FloatArray
    hidden: HiddenFlows
    over_ptr: LongArray
    over: IntArray
    set_of: IntArray
    rate: FloatArray
    log_sum: FloatArray
    x: FloatArray
    mean: FloatArray
    size_of: IntArray
    on: BoolArray
    room: FloatMatrix
    alike: FloatMatrix

    @property
    def n_units(self) -> int:
        """Return the number of units."""
        return len(self.x)

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.lost)

    @cached_property
    def bound(self) -> Bound:
        """Return this mixture in the form that kernels take."""
        return KERNELS.bound("Mixture", self)

    @property
    def room_width(self) -> int:
        """Return the number of columns of ``room``."""
        return self.room.shape[1]


def make_mixture(rows: Rows, size: FloatArray, hidden: HiddenFlows) -> Mixture:
    """Return a mixture with no unit blamed; the caller sets the mean, see `set_mean`. ``size``,
    float64[U], is the number of links of each unit."""
    n_paths = len(hidden.many)
    over_ptr, over = _paths_over(len(size), hidden)
    row_hops = np.bincount(
        np.repeat(np.arange(len(rows.lost)), np.diff(rows.ptr)), size[rows.units], len(rows.lost)
    )
    widest = int(np.diff(hidden.set_ptr).max(initial=0))
    hidden, size_of = _by_size(hidden)
    return Mixture(
        ptr=rows.ptr,
        units=rows.units,
        unit_ptr=rows.unit_ptr,
        rows=rows.rows,
        lost=rows.lost,
        arrived=rows.arrived,
        size=size,
        row_hops=row_hops.astype(np.float64),
        total=np.zeros(len(rows.lost)),
        hidden=hidden,
        over_ptr=over_ptr,
        over=over,
        set_of=np.repeat(
            np.arange(len(hidden.set_ptr) - 1, dtype=np.int32), np.diff(hidden.set_ptr)
        ),
        rate=np.zeros(n_paths),
        log_sum=np.zeros(len(hidden.times)),
        x=np.zeros(len(size)),
        mean=np.zeros(1),
        size_of=size_of,
        on=np.zeros(n_paths, np.bool_),
        room=np.zeros((3 + RATES, widest + 1)),
        alike=np.zeros((SIZES * SHARES, 3)),
    )


def _paths_over(n_units: int, hidden: HiddenFlows) -> tuple[LongArray, IntArray]:
    """Return where the paths of each unit begin, and the paths of all units, ascending."""
    paths, count = {"path_ptr": hidden.path_ptr, "units": hidden.units}, np.zeros(n_units, np.int64)
    KERNELS.count_paths_over(**paths, count=count)
    over_ptr = pointers(count)
    over = np.empty(over_ptr[-1], np.int32)
    KERNELS.write_paths_over(**paths, free_place=over_ptr[:-1].copy(), over=over)
    return over_ptr, over


def _by_size(hidden: HiddenFlows) -> tuple[HiddenFlows, IntArray]:
    """Replace the sizes of loss-free flows that agree within a factor of two by their mean; return
    also the number of each flow's size, -1 for other flows."""
    free = (hidden.lost == 0.0) & (hidden.arrived >= 1.0)
    size = np.minimum(np.log2(np.maximum(hidden.arrived, 1.0)).astype(np.int32), SIZES - 1)
    packets = np.bincount(size[free], (hidden.times * hidden.arrived)[free], SIZES)
    flows = np.bincount(size[free], hidden.times[free], SIZES)
    mean = packets / np.maximum(flows, 1e-300)
    arrived = np.where(free, mean[size], hidden.arrived)
    return hidden._replace(arrived=arrived), np.where(free, size, -1).astype(np.int32)


RATES = 12
"""The most rates at which the gains of a unit are computed in one call; also in mixture.h."""

SIZES, SHARES = 64, 4
"""How many sizes of loss-free flows, and shares of their paths over a unit, are distinguished; also
in mixture.h."""


def set_mean(mean: float, mix: Mixture) -> float:
    """Set the rate of healthy links to ``mean``; return the log-likelihood of all observations,
    without the constant of the number of paths of each set."""
    return KERNELS.set_mean(mean=mean, mix=mix.bound)


class Start(NamedTuple):
    """The classes that known paths blame, highest rate first: class c has the units
    ``units[ptr[c]:ptr[c + 1]]``, whose rates add up to ``rate[c]``."""

    ptr: LongArray
    units: IntArray
    rate: FloatArray

    @property
    def n_classes(self) -> int:
        """Return the number of classes."""
        return len(self.rate)


def nothing() -> Start:
    """Return a start of the search without any blamed class."""
    return Start(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0))


def start_from(
    known: Sequence[Observed], units: Units, *, fault_rate: float, penalty: float | None
) -> Start:
    """Return what observations over known paths blame, as classes of ``units`` with their rates.

    The other arguments are those of `analysis.methods.mle.search.explain`.
    """
    parts = [Observed.join([part]) for part in known]
    if not any(len(part.sent) for part in parts):
        return nothing()
    same = marks([part.paths for part in parts], len(units.of_link))
    classes = Units.of(same)
    rows = observe(parts, classes)
    candidate = suspects(rows.lost_over(), rows.arrived, fault_rate)
    found = explain(rows, classes.size, candidate, fault_rate=fault_rate, penalty=penalty)
    blamed = np.flatnonzero(found.blamed)
    blamed = blamed[np.argsort(-found.x[blamed], kind="stable")]
    links = np.flatnonzero(same)
    pair = np.unique(
        classes.of_link[links].astype(np.int64) * len(units.size) + units.of_link[links]
    )
    merged, member = np.divmod(pair, max(len(units.size), 1))
    parts = [member[merged == which] for which in blamed]
    return Start(
        pointers(np.array([len(part) for part in parts], np.int64)),
        np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int32),
        found.x[blamed],
    )


def add_up(mix: Mixture) -> None:
    """Set the rate of each hidden path to the sum of its units' rates."""
    KERNELS.add_up(mix=mix.bound, rate=mix.rate)


def fit_mean(mix: Mixture, low: float, high: float) -> float:
    """Set the mean rate of healthy links to the most likely value from ``low`` to ``high``, to
    within 1 %, and return it."""
    from scipy.optimize import minimize_scalar  # takes long to load, and few runs need it

    found: Any = minimize_scalar(
        lambda at: -set_mean(math.exp(at), mix),
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": 0.01},
    )
    mean = math.exp(found.x)
    set_mean(mean, mix)
    return mean
