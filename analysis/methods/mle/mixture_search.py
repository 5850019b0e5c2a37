# SPDX-License-Identifier: Apache-2.0
"""The search for the links to blame if flows that lost packets may have taken several paths.

It starts with the links that known paths alone blame (`analysis.methods.mle.mixture`); of links
that these do not tell apart, the hidden flows choose one. The search is then greedy: it blames the
link, with the rate, that gains most, and fits the rates one by one. At the end it tries to release
each blamed unit. The unit stays released if the others, fitted again, or another unit in its place
explain the losses as well, up to the penalty. All healthy links have the same mean rate, which
begins at half the rate of a fault and falls to the most likely value as links are blamed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from analysis.methods.mle.hidden import HiddenFlows
from analysis.methods.mle.mixture import (
    RATES,
    Mixture,
    Start,
    add_up,
    fit_mean,
    make_mixture,
    nothing,
    set_mean,
)
from analysis.methods.mle.problem import Rows
from analysis.methods.mle.search import NARROWEST
from testbed.arrays import BoolArray, FloatArray, FloatMatrix
from testbed.kernels import Kernels

KERNELS = Kernels.beside(__file__)

SWEEPS = 3
"""The most rounds in which each class of the start chooses its unit."""


class Found(NamedTuple):
    """The explanation: the ``mean`` rate of healthy links; the rate ``x`` of each unit, float64[U];
    whether it is ``blamed``, bool[U]; and ``gains``, float64[U], the nats that its release would
    cost or its blame would gain."""

    mean: float
    x: FloatArray
    blamed: BoolArray
    gains: FloatArray


class _Search(NamedTuple):
    """The state of the search: ``expected_gain`` is what blaming each unit would gain in
    nats and ``at`` its rate then, up to date where ``current``. The other arrays are scratch."""

    candidate: BoolArray
    fault: float
    penalty: float
    expected_gain: FloatArray
    at: FloatArray
    current: BoolArray
    share: FloatArray
    shared: FloatArray
    rates: FloatArray
    gain: FloatArray
    kept: FloatArray
    before: FloatMatrix
    known: BoolArray


def explain_hidden(
    rows: Rows,
    size: FloatArray,
    candidate: BoolArray,
    hidden: HiddenFlows,
    start: Start | None = None,
    *,
    fault_rate: float,
    penalty: float,
) -> Found:
    """Return the explanation of observations over known and hidden paths. The search begins at
    ``start``; ``size``, float64[U], is the number of links of each unit, and the other arguments
    are those of `analysis.methods.mle.search.explain`."""
    n, fault = len(size), -math.log1p(-fault_rate)
    mix = make_mixture(rows, size, hidden)
    state = _Search(
        candidate=candidate,
        fault=fault,
        penalty=penalty,
        expected_gain=np.zeros(n),
        at=np.zeros(n),
        current=np.zeros(n, np.bool_),
        share=np.zeros(n),
        shared=np.zeros(n),
        rates=np.zeros(RATES),
        gain=np.zeros(RATES),
        kept=np.zeros(n),
        before=np.zeros((2, n)),
        known=np.zeros(n, np.bool_),
    )
    _place(start or nothing(), mix, state)
    mean = fit_mean(mix, fault / NARROWEST, 0.5 * fault)
    KERNELS.fit_all(mix=mix.bound, state=state)
    state.current[:] = False
    for _ in range(8):
        KERNELS.grow(mix=mix.bound, state=state)
        before, mean = mean, fit_mean(mix, fault / NARROWEST, 0.5 * fault)
        if abs(mean - before) >= 0.05 * before:
            state.current[:] = False
            continue
        if not KERNELS.improve(mix=mix.bound, state=state):
            break
        KERNELS.fit_all(mix=mix.bound, state=state)
    KERNELS.finish(mix=mix.bound, state=state)
    return Found(mean, mix.x, mix.x > 0.0, state.expected_gain)


def _place(start: Start, mix: Mixture, state: _Search) -> None:
    """Blame, of each class of the start, the unit that makes the hidden flows most likely."""
    set_mean(state.fault / NARROWEST, mix)
    size = np.diff(start.ptr)
    mix.x[start.units] = np.maximum(np.repeat(start.rate / np.maximum(size, 1), size), state.fault)
    add_up(mix)
    set_mean(state.fault / NARROWEST, mix)
    for _ in range(SWEEPS):
        if not KERNELS.choose(start=start, mix=mix.bound, state=state):
            break
