# SPDX-License-Identifier: Apache-2.0
"""Comparisons of methods over many runs: their rows, and the statistics of a method's runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.evaluation.columns import BENCHES
from testbed.arrays import BoolArray, FloatArray, IntArray

COLUMNS = (
    "seed",
    "method",
    "own_name",
    "bench",
    "native",
    "faulty",
    "precision",
    "recall",
    "f1",
    "accuracy",
    "class_f1",
    "best_f1",
    "unranked",
    "unobserved",
    "undirected_f1",
    "average_precision",
    "seconds",
    "telemetry_bytes",
    "probe_packets",
    "fed",
    "parameters",
    "parameters_from",
    "found_at",
    "lost_f1",
    "fabric_f1",
    "degraded",
    "tries",
)
"""The columns of a comparison's Parquet file, which has a row for each seed and method. ``bench``
is one of `analysis.methods.registry.Bench`. ``native`` says whether the method is scored on
directed or undirected links. ``precision`` to ``unobserved``, ``faulty`` (the number of faulty
links) and ``found_at`` (see `found_at`) are counted on these; undefined scores are nan, see
`analysis.evaluation.metrics`, and ``unobserved`` is the number of faulty links that were not
observed. ``own_name`` is what the class of a method file calls itself, "" if tables have the method
by that name, and ``unranked`` is 1 if it gave all links the same score. ``fed`` is the share that
the method got of what it asked for, nan if it does not say.
``parameters`` are all its parameters in the grammar of `analysis.methods.parameters`, and
``parameters_from`` says where they come from. ``lost_f1`` is F1 against the links that really lost
packets, nan if the network does not tell, ``fabric_f1`` F1 on the links between switches alone, nan
if no other has a verdict. ``degraded`` says what makes the measurements of the
seed's run incomplete, "" of a good run, and ``tries`` how often the seed was run for a good one."""

Rows = Mapping[str, Any]


def found_at(score: FloatArray, faulty: BoolArray) -> IntArray:
    """Return how many links have to be accused, by descending score, until each faulty link is
    among them: ascending, int32[faulty links]. Links with equal scores are accused together.
    """
    ascending = np.sort(score)
    accused = len(score) - np.searchsorted(ascending, score[faulty], side="left")
    return np.sort(accused).astype(np.int32)


def mean_curve(found: Sequence[npt.NDArray[np.integer]]) -> FloatArray:
    """Return the mean recall and precision along the rankings of several runs, float64[2, points].

    A point accuses, in every run, the same number of links for each faulty one: the first ones of
    its ranking. The curve starts at recall 0 and ends where all faulty links of all runs are
    found. Means at equal recall would lie below a method's own verdicts: where one run ranks a
    faulty link last, they fall to the precision of accusing everything, which no verdict does.

    Args:
        found: `found_at` of each run; runs without faulty links have no curve.

    Returns:
        Recall and precision; no point where no run has a faulty link.
    """
    found = [own for own in found if len(own)]
    if not found:
        return np.zeros((2, 0))
    faulty = np.array([[len(own)] for own in found])
    most = max(int(own[-1]) for own in found)
    deepest = max(own[-1] / len(own) for own in found)
    begin = min(deepest, 2.0)
    depth = np.concatenate([np.linspace(0, begin, 101)[1:], np.geomspace(begin, deepest, 61)[1:]])
    accused = np.clip(np.ceil(depth * faulty - 1e-9), 1, most)
    pairs = zip(found, accused, strict=True)
    hits = np.stack([np.searchsorted(own, n, side="right") for own, n in pairs])
    curve = np.stack([(hits / faulty).mean(axis=0), (hits / accused).mean(axis=0)])
    moved = np.append(True, np.diff(curve).any(axis=0))
    return np.concatenate([[[0.0], curve[1:, 0]], curve[:, moved]], axis=1)


def average_precision(found: npt.NDArray[np.integer]) -> float:
    """Return the area under the precision-recall steps, 0 to 1; 1 if nothing is faulty. ``found``
    is the result of `found_at`."""
    if not len(found):
        return 1.0
    hits = np.searchsorted(found, found, side="right")
    return float((hits / found).mean())


def defined(values: npt.ArrayLike) -> FloatArray:
    """Return the values that are not nan, float64[], in their order."""
    sample = np.asarray(values, np.float64)
    return sample[~np.isnan(sample)]


def mean_of(values: npt.ArrayLike) -> float:
    """Return the mean of the values that are not nan, a number in their unit; nan if all are."""
    known = defined(values)
    return float(known.mean()) if len(known) else math.nan


def degraded_seeds(rows: Rows) -> list[int]:
    """Return the seeds with no good run, ascending numbers; no mean has their figures."""
    pairs = zip(np.asarray(rows["seed"]).tolist(), rows["degraded"], strict=True)
    return sorted({seed for seed, degraded in pairs if degraded})


def good_seeds(rows: Rows) -> list[int]:
    """Return the seeds with a good run, ascending numbers."""
    return sorted(set(np.asarray(rows["seed"]).tolist()) - set(degraded_seeds(rows)))


def fed_share(rows: Rows, method: str) -> float:
    """Return the mean share that a method got of what it asked for; nan if it does not say."""
    own = chosen(rows, method)["fed"]
    return float(np.mean(own)) if own else math.nan


def method_names(rows: Rows) -> list[str]:
    """Return the methods in the order of `BENCHES`, those of a bench as they come in ``rows``."""
    benches = dict(zip(rows["method"], rows["bench"], strict=True))
    return sorted(benches, key=lambda name: list(BENCHES).index(benches[name]))


def bench_in(rows: Rows, method: str) -> str:
    """Return the bench of a method in a comparison, one of `analysis.methods.registry.Bench`."""
    return rows["bench"][list(rows["method"]).index(method)]


def chosen(rows: Rows, method: str) -> dict[str, Any]:
    """Return the rows of one method, of the seeds with a good run, as columns; ``found_at`` becomes
    a list of arrays."""
    pairs = zip(rows["method"], rows["degraded"], strict=True)
    own = [i for i, (name, degraded) in enumerate(pairs) if name == method and not degraded]
    columns: dict[str, Any] = {}
    for name, column in rows.items():
        columns[name] = [column[i] for i in own]
    return columns


def origins(rows: Rows) -> dict[str, str]:
    """Return by method where its parameters come from, see `Parameters.origin`."""
    return dict(zip(rows["method"], rows["parameters_from"], strict=True))
