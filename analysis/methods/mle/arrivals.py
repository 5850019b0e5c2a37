"""Loss-free flows of hidden paths: where their packets arrived, given the rates (an EM).

A flow of a packets that took one of w paths and lost none has the likelihood
(1/w) sum_p exp(-a X_p). If q_p = exp(-a X_p) / sum_p' exp(-a X_p') is its share of path p at the
present rates, then sum_p q_p (-a X_p) is, but for what does not depend on the rates, a lower bound
of the logarithm that touches it there (Jensen). So with a q_p packets that arrived on each path the
problem is that of known paths, and whatever gains there gains at least as much in truth: rates,
shares and rates again, in turns, climb to a peak.

The turns begin from equal shares. These have too many packets arrive over a lossy link, as flows
without loss mostly missed it: its rate begins too low by up to a half, and none is blamed for that.
"""

from __future__ import annotations

import numpy as np

from analysis.methods.mle.hidden import HiddenFlows
from analysis.methods.mle.likelihood import Problem
from analysis.methods.mle.problem import Rows
from analysis.methods.mle.search import explain, resume
from testbed.arrays import BoolArray, FloatArray
from testbed.fabric.compiled import kernel

TURNS = 30


def explain_loss_free(
    rows: Rows,
    size: FloatArray,
    may: BoolArray,
    hidden: HiddenFlows,
    *,
    fault_rate: float,
    penalty: float | None,
) -> Problem:
    """As `analysis.methods.mle.search.explain`, where no flow of a hidden path lost packets."""
    first = rows.arrived + expected_arrivals(hidden, np.zeros(len(size)))
    known = rows._replace(arrived=first)
    found = explain(known, size, may, fault_rate=fault_rate, penalty=penalty)
    for _ in range(TURNS):
        if not resume(found, rows.arrived + expected_arrivals(hidden, found.x), penalty=penalty):
            break
    return found


def expected_arrivals(hidden: HiddenFlows, x: FloatArray) -> FloatArray:
    """Packets of loss-free flows that arrived over each unit, given the rates: float64[U] both."""
    arrived = np.zeros(len(x))
    widest = int(np.diff(hidden.set_ptr).max(initial=0))
    _share_out(hidden, x, np.zeros(widest), np.zeros(widest), arrived)
    return arrived


@kernel
def _share_out(h, x, rate, over, arrived):
    """``rate`` and ``over`` are room for the rates of a set's paths and what arrived over each."""
    for g in range(len(h.set_ptr) - 1):
        first = h.set_ptr[g]
        n = h.set_ptr[g + 1] - first
        least = 1e300
        for p in range(n):
            rate[p] = over[p] = 0.0
            for e in range(h.path_ptr[first + p], h.path_ptr[first + p + 1]):
                rate[p] += x[h.units[e]]
            least = min(least, rate[p])
        for f in range(h.flow_ptr[g], h.flow_ptr[g + 1]):
            whole = 0.0
            for p in range(n):
                whole += h.many[first + p] * np.exp(-h.arrived[f] * (rate[p] - least))
            each = h.times[f] * h.arrived[f] / whole
            for p in range(n):
                over[p] += each * np.exp(-h.arrived[f] * (rate[p] - least))
        for p in range(n):
            total = h.many[first + p] * over[p]
            for e in range(h.path_ptr[first + p], h.path_ptr[first + p + 1]):
                arrived[h.units[e]] += total
