"""Canary's sub-problems (section III-E): they share no link, and large ones are solved in parallel
threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from analysis.solvers.incidence import Incidence
from testbed.arrays import BoolArray, IntArray, LongArray
from testbed.fabric.segments import Segments

FEW = 4_000  # segments of a sub-problem, which are solved before threads have started


def solve_subproblems(
    segments: Segments,
    observed: BoolArray,
    solve: Callable[[LongArray, Incidence], None],
    threads: int | None = None,
) -> None:
    """``solve(numbers of the segments, their links)`` for each sub-problem.

    Args:
        observed: The segments that speak, bool[S].
        threads: Sub-problems solved at the same time; default: one a processor if any is large.
    """

    def one(segment: LongArray) -> None:
        solve(segment, Incidence.of(segments.paths.take(segment)))

    parts = subproblem_segments(segments.subproblem, observed)
    if threads is None and max(map(len, parts), default=0) < FEW:
        for part in parts:
            one(part)
        return
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        list(pool.map(one, parts))


def subproblem_segments(subproblem: IntArray, observed: BoolArray) -> list[LongArray]:
    """The observed segments of each sub-problem, sub-problems that have none left out."""
    segment = np.flatnonzero(observed)
    order = np.argsort(subproblem[segment], kind="stable")
    segment = segment[order]
    cuts = np.flatnonzero(np.diff(subproblem[segment])) + 1
    return [part for part in np.split(segment, cuts) if len(part)]
