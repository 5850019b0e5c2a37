"""What known paths alone tell: where the search among flows of hidden paths begins.

The mixture over paths has many peaks: a search from nothing blames what a flow could have met, and
ends with the planes of a fabric exchanged. Probes know their paths, and their likelihood has one
peak; so the links that they alone blame are where the search begins. What they cannot tell apart,
as the two directions of a link that a probe goes up and back, is one class, of which the hidden
flows then choose (`analysis.methods.mle.mixture_search`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from analysis.methods.mle.problem import Observed, Units, marks, observe
from analysis.methods.mle.search import explain, suspects
from testbed.arrays import FloatArray, IntArray, LongArray
from testbed.fabric.paths import PathSets, pointers


class Start(NamedTuple):
    """The classes that known paths blame, highest rate first: class c is the units
    ``units[ptr[c]:ptr[c + 1]]``, which lose ``rate[c]`` together."""

    ptr: LongArray
    units: IntArray
    rate: FloatArray


def nothing() -> Start:
    return Start(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0))


def start_from(
    known: Sequence[Observed], units: Units, *, fault_rate: float, penalty: float | None
) -> Start:
    """What observations over known paths blame, in classes of the ``units`` of all that was seen.

    Arguments as `analysis.methods.mle.search.explain`'s; penalty None is learned as there.
    """
    parts = [Observed.join([part]) for part in known]
    if not any(len(part.sent) for part in parts):
        return nothing()
    same, _ = marks([PathSets.known(part.paths) for part in parts], len(units.of_link))
    classes = Units.of(same)
    rows = observe(parts, classes)
    may = suspects(rows.lost_over(), rows.arrived, fault_rate)
    found = explain(rows, classes.size, may, fault_rate=fault_rate, penalty=penalty)
    blamed = np.flatnonzero(found.blamed)
    blamed = blamed[np.argsort(-found.x[blamed], kind="stable")]
    links = np.flatnonzero(same)
    pair = np.unique(
        classes.of_link[links].astype(np.int64) * len(units.size) + units.of_link[links]
    )
    of, member = np.divmod(pair, max(len(units.size), 1))
    parts = [member[of == which] for which in blamed]
    return Start(
        pointers(np.array([len(part) for part in parts], np.int64)),
        np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int32),
        found.x[blamed],
    )
