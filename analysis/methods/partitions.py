"""Canary's and canary-mle's diagnosis of counts in parts (`analysis.telemetry.parts`).

Each part stays where it was read; what comes and goes is as large as the links of the fabric, and
for `canary-mle` as the lossy segments. The verdicts are those of the whole, to the last bit.

Canary's sub-problems know nothing of each other. Those of canary-mle have the law of healthy links
and the penalty in common. So the parts add up what they observed, over classes of links numbered
for all, the explanation is sought of these sums together, and the parts say then whether losses
are correlated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from analysis.methods.base import Diagnosis, with_classes, with_unseen
from analysis.methods.canary import Canary
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
    """What a worker holds of a part: its counts, their sums, and what weighs these sums."""

    counts: SegmentCounts
    observed: Observed


class Parts(Protocol):
    """Parts wherever they are."""

    def each(self, function: Callable[..., Result], *shared: Any) -> Sequence[Result]:
        """``function(part, *shared)`` of each part, in order."""
        ...


def load_part(path: Path, fabric: Fabric) -> Part:
    """Read a part.

    Raises:
        TableError: It is unreadable, or makes no sense (one line).
    """
    counts = read_part(path, fabric)
    sums = (count.sum(axis=0) * 1.0 for count in (counts.sent, counts.lost))
    return Part(counts, Observed.join([Observed(counts.segments.paths, *sums)]))


def observed_segments(part: Part) -> int:
    """Segments and epochs in which packets were counted."""
    return int((part.counts.sent > 0).sum())


def _of_parts(diagnosis: Diagnosis, parts: Parts, fabric: Fabric) -> Diagnosis:
    """The verdict of classes: of what the parts together observe and tell apart, as no two have a
    link in common."""
    found = Identifiability.nothing(fabric.n_links)
    for links, classes in parts.each(_seen, fabric):
        found.observed[links] = True
        found.classes[links] = classes
    nothing = Telemetry(fabric, "given")
    return with_unseen(with_classes(diagnosis, found), nothing, ("segments",))


def _seen(part: Part, fabric: Fabric) -> tuple[LongArray, IntArray]:
    """The links that a part observes, and the class of each."""
    tells = Identifiability.of(fabric.n_links, [part.counts])
    links = np.flatnonzero(tells.observed)
    return links, tells.classes[links]


# ---- Canary ----------------------------------------------------------------------------------


def diagnose_canary(parts: Parts, method: Canary, fabric: Fabric) -> Diagnosis:
    """Canary's verdict, each part solved where it is."""
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
    found = method.infer(part.counts, fabric)  # classes follow, of all parts together
    links = np.flatnonzero(~np.isnan(found.success))
    return links, found.success[links], found.stages


# ---- canary-mle ------------------------------------------------------------------------------


def diagnose_mle(parts: Parts, method: CanaryMle, fabric: Fabric) -> Diagnosis:
    """canary-mle's verdict, see `analysis.methods.mle.mle.Mle.infer`.

    Raises:
        TableError: Two parts have a link in common.
    """
    units = _units(parts.each(_classes, fabric.n_links), fabric.n_links)

    def explain_again(found: Problem) -> tuple[BoolArray, Problem | None]:
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
    """A part's `Rows`: its lossy paths and what they lost, and what arrived over its units."""

    paths: Paths
    lost: FloatArray
    unit: LongArray
    arrived: FloatArray


class _Weighed(NamedTuple):
    sums: _Sums
    in_flows: BoolArray
    changed: bool


def _classes(part: Part, n_links: int) -> tuple[LongArray, LongArray]:
    """The links of a part that were observed, and the class of each."""
    same = marks([part.observed.paths], n_links)
    links = np.flatnonzero(same)
    return links, np.unique(same[links], return_inverse=True)[1].reshape(-1)


def _units(classes: Sequence[tuple[LongArray, LongArray]], n_links: int) -> Units:
    mark, first = np.zeros(n_links, np.uint64), 1
    for links, number in classes:
        if mark[links].any():
            raise TableError("two parts have a link in common: give these in one file")
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
    """The rows of all parts, as `observe` would have them of all observations."""
    arrived = np.zeros(n_units)
    for part in sums:
        arrived[part.unit] = part.arrived
    length = np.concatenate([np.zeros(0, np.int64), *(part.paths.length for part in sums)])
    over = np.concatenate([np.zeros(0, np.int32), *(part.paths.links for part in sums)])
    lost = np.concatenate([np.zeros(0), *(part.lost for part in sums)])
    paths = Paths(np.concatenate((np.zeros(1, np.int64), np.cumsum(length))), over)
    # Of units alone each is its own link: so their rows come in the order that the paths have.
    alone = Units(np.arange(n_units, dtype=np.int32), np.ones(n_units))
    return observe([Observed(paths, lost, lost)], alone)._replace(arrived=arrived)
