"""Coordinate descent over links, exactly in order and yet on all cores.

Links that share no path do not see each other's steps. A large problem is therefore swept layer by
layer, each link in a layer after those of all lower links that share a path with it; the links of a
layer are then free to go in any order, and the outcome is that of one link after the other. In a
Clos whose links are numbered tier by tier the layers are the tiers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from analysis.solvers.incidence import Incidence
from analysis.solvers.parts import in_parts
from testbed.arrays import IntArray
from testbed.fabric.compiled import kernel

LARGE = 1_000_000
"""Links of all paths, as often as these are observed, from which on threads pay."""

MOST_LAYERS = 64
"""More layers than this leave too little to do in each."""


class Sweeps:
    """How to go over the paths and the links of a problem.

    Functions are compiled with ``nogil`` and take ``part, parts`` first, as those of `in_parts`.
    """

    def __init__(self, incidence: Incidence) -> None:
        work = int((np.diff(incidence.path_ptr) * np.diff(incidence.row_ptr)).sum())
        self.work = work if work >= LARGE else 0
        layers = _layers(incidence) if self.work else None
        self.work_of_layers = self.work if layers else 0
        self.layers = layers or [np.arange(incidence.n_links, dtype=np.int32)]

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The function's result for each part, in order."""
        return in_parts(self.work, function, *arguments)

    def sweep(self, function: Callable[..., None], *arguments: Any) -> None:
        """``function(part, parts, links, *arguments)`` over all links, as if in ascending order."""
        for links in self.layers:
            in_parts(self.work_of_layers, function, links, *arguments)


def _layers(incidence: Incidence) -> list[IntArray] | None:
    """The links in layers; None where the layers would be many."""
    layer = np.zeros(incidence.n_links, np.int32)
    for _ in range(MOST_LAYERS):
        if not _raise_layers(incidence, layer):
            if layer.max(initial=0) >= MOST_LAYERS:
                return None
            order = np.argsort(layer, kind="stable").astype(np.int32)
            return np.split(order, np.flatnonzero(np.diff(layer[order])) + 1)
    return None


@kernel
def _raise_layers(incidence, layer):
    """One pass over the paths; whether any link rose."""
    path_ptr, links = incidence.path_ptr, incidence.links
    rose = False
    for j in range(len(path_ptr) - 1):
        for e in range(path_ptr[j] + 1, path_ptr[j + 1]):
            if layer[links[e]] <= layer[links[e - 1]]:
                layer[links[e]] = layer[links[e - 1]] + 1
                rose = True
    return rose
