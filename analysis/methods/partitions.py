# SPDX-License-Identifier: Apache-2.0
"""Canary's and canary-mle's diagnosis of counts in parts (`analysis.telemetry.parts`).

Each part stays in the process that read it. Messages are as large as the number of links of the
fabric and, for `canary-mle`, of lossy segments. The diagnosis is that of the whole, bit for bit.

Canary's sub-problems are independent of each other. Those of canary-mle share the law of healthy
links and the penalty. So each part adds up its observations over classes of links that are numbered
for all parts, one process searches for the explanation of all sums, and each part then estimates
from it whether its losses are correlated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from analysis.methods.canary import Canary
from analysis.methods.classes import with_classes, with_unseen
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.mle.black_holes import correlated, weigh_until_settled
from analysis.methods.mle.devices import failed_devices
from analysis.methods.mle.likelihood import Problem
from analysis.methods.mle.mle import CanaryMle, verdict_of
from analysis.methods.mle.problem import Observed, Rows, Units, marks, observe
from analysis.methods.mle.search import explain, suspects
from analysis.solvers.stages import n_stages
from analysis.telemetry.identifiability import Identifiability
from analysis.telemetry.parts import read_part
from analysis.telemetry.telemetry import SegmentCounts, Telemetry
from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths
from testbed.record.schema import TableError

Result = TypeVar("Result")


class Part(NamedTuple):
    """One part as a worker holds it: its counts, and their sums over the epochs as observations."""

    counts: SegmentCounts
    observed: Observed


class Parts(Protocol):
    """The interface that local parts and parts on a cluster have in common."""

    def each(self, function: Callable[..., Result], *shared: Any) -> Sequence[Result]:
        """Return the results of ``function(part, *shared)`` for all parts, in order."""
        ...


def load_part(path: Path, fabric: Fabric) -> Part:
    """Read and return the part in the file ``path``, of segments of ``fabric``.

    Raises:
        TableError: The file cannot be read, or its content is invalid (one line).
    """
    counts = read_part(path, fabric)
    sums = (count.sum(axis=0) * 1.0 for count in (counts.sent, counts.lost))
    return Part(counts, Observed.join([Observed(counts.segments.paths, *sums)]))


def observed_segments(part: Part) -> int:
    """Return in how many cells, each a segment in an epoch, packets were counted."""
    return int((part.counts.sent > 0).sum())


def _of_parts(diagnosis: Diagnosis, parts: Parts, fabric: Fabric) -> Diagnosis:
    """Return the diagnosis over the classes of links that the parts tell apart; these are the
    classes of each part, because no two parts share a link."""
    found = Identifiability.nothing(fabric.n_links)
    for links, classes in parts.each(_observed_links, fabric):
        found.observed[links] = True
        found.classes[links] = classes
    nothing = Telemetry(fabric, "given")
    return with_unseen(with_classes(diagnosis, found, fabric), nothing, ("segments",))


def _observed_links(part: Part, fabric: Fabric) -> tuple[LongArray, IntArray]:
    """Return the ids of the links that a part observes, ascending, and the class of each."""
    tells = Identifiability.of(fabric.n_links, [part.counts])
    links = np.flatnonzero(tells.observed)
    return links, tells.classes[links]


# ---- Canary ----------------------------------------------------------------------------------


def diagnose_canary(parts: Parts, method: Canary, fabric: Fabric) -> Diagnosis:
    """Return Canary's diagnosis; each part is solved in the process that holds it."""
    success = np.full(fabric.n_links, np.nan)
    stages: list[list[IntArray]] = [[] for _ in range(n_stages(method.groups))]
    for links, through, blamed in parts.each(_solve, method, fabric):
        success[links] = through
        for stage, found in zip(stages, blamed, strict=True):
            stage.append(found)
    every = [np.concatenate([np.zeros(0, np.int32), *stage]) for stage in stages]
    diagnosis = method.diagnosis(fabric, every[-1], success=success, stages=every)
    return _of_parts(diagnosis, parts, fabric)


def _solve(
    part: Part, method: Canary, fabric: Fabric
) -> tuple[LongArray, FloatArray, tuple[IntArray, ...]]:
    found = method.infer(part.counts, fabric)  # `_of_parts` adds the classes of all parts
    links = np.flatnonzero(~np.isnan(found.success))
    return links, found.success[links], found.stages


# ---- canary-mle ------------------------------------------------------------------------------


def diagnose_mle(parts: Parts, method: CanaryMle, fabric: Fabric) -> Diagnosis:
    """Return canary-mle's diagnosis, as `analysis.methods.mle.mle.Mle.infer` computes it.

    Raises:
        TableError: Two parts have a link in common.
    """
    units = _units(parts.each(_classes, fabric.n_links), fabric.n_links)

    def explain_again(found: Problem) -> tuple[BoolArray, Problem | None]:
        """Return the units that lose whole flows, bool[U], and the explanation of the observations
        weighted by the correlation of their losses; None if every weight is 1."""
        weighed = parts.each(_weigh, units, found)
        in_flows = np.any([part.in_flows for part in weighed], axis=0)
        if not any(part.changed for part in weighed):
            return in_flows, None
        return in_flows, _explanation([part.sums for part in weighed], units, method)

    first = _explanation(parts.each(_add_up, units), units, method)
    found, in_flows = weigh_until_settled(first, explain_again)
    failed = failed_devices(found, fabric, units, penalty=method.penalty)
    in_flows &= found.blamed
    diagnosis = verdict_of(method, fabric, units, found, failed, in_flows)
    return _of_parts(diagnosis, parts, fabric)


class _Sums(NamedTuple):
    """A part's `Rows` as a message: its lossy paths over units, the packets that each lost, the
    units that packets arrived over, and how many arrived over each."""

    paths: Paths
    lost: FloatArray
    unit: LongArray
    arrived: FloatArray


class _Weighed(NamedTuple):
    sums: _Sums
    in_flows: BoolArray
    changed: bool


def _classes(part: Part, n_links: int) -> tuple[LongArray, LongArray]:
    """Return the ids of the links that a part observed, and a class number, from 0, of each."""
    same = marks([part.observed.paths], n_links)
    links = np.flatnonzero(same)
    return links, np.unique(same[links], return_inverse=True)[1].reshape(-1)


def _units(classes: Sequence[tuple[LongArray, LongArray]], n_links: int) -> Units:
    mark, first = np.zeros(n_links, np.uint64), 1
    for links, number in classes:
        if mark[links].any():
            raise TableError("two parts have a link in common: put them into one file")
        mark[links] = number + first
        first += int(number.max(initial=-1)) + 1
    return Units.of(mark)


def _add_up(part: Part, units: Units) -> _Sums:
    return _sums(observe([part.observed], units))


def _sums(rows: Rows) -> _Sums:
    unit = np.flatnonzero(rows.arrived)
    return _Sums(Paths(rows.ptr, rows.units), rows.lost, unit, rows.arrived[unit])


def _weigh(part: Part, units: Units, found: Problem) -> _Weighed:
    weighed = correlated([part.observed], units, found)
    return _Weighed(_sums(observe(weighed.parts, units)), weighed.in_flows, weighed.any)


def _explanation(sums: Sequence[_Sums], units: Units, method: CanaryMle) -> Problem:
    rows = _rows(sums, len(units.size))
    candidate = suspects(rows.lost_over(), rows.arrived, method.fault_rate)
    return explain(
        rows, units.size, candidate, fault_rate=method.fault_rate, penalty=method.penalty
    )


def _rows(sums: Sequence[_Sums], n_units: int) -> Rows:
    """Return the rows of all parts; `observe` returns the same for all observations at once."""
    arrived = np.zeros(n_units)
    for part in sums:
        arrived[part.unit] = part.arrived
    length = np.concatenate([np.zeros(0, np.int64), *(part.paths.length for part in sums)])
    over = np.concatenate([np.zeros(0, np.int32), *(part.paths.links for part in sums)])
    lost = np.concatenate([np.zeros(0), *(part.lost for part in sums)])
    paths = Paths(np.concatenate((np.zeros(1, np.int64), np.cumsum(length))), over)
    # Each unit is passed as a link of its own, so that `observe` sorts the rows of all parts.
    alone = Units(np.arange(n_units, dtype=np.int32), np.ones(n_units))
    return observe([Observed(paths, lost, lost)], alone)._replace(arrived=arrived)
