"""Which links a path uses and which paths use a link, as two CSR arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.topology import Paths

__all__ = ["Incidence"]

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Incidence:
    """Paths over locally numbered links, in both directions of look-up.

    Path ``p`` uses local links ``links[path_ptr[p]:path_ptr[p + 1]]``; local link ``i`` is on paths
    ``paths[link_ptr[i]:link_ptr[i + 1]]``. ``link_ids`` gives the original id of each local link.
    A path that uses a link twice holds it once.
    """

    path_ptr: LongArray
    links: IntArray
    link_ptr: LongArray
    paths: IntArray
    link_ids: IntArray

    @classmethod
    def of(cls, paths: Paths) -> Incidence:
        """Number the links that occur in ``paths`` densely and invert, in O(E log E)."""
        link_ids, local = np.unique(paths.links, return_inverse=True)
        n_links = len(link_ids)
        pair = np.unique(paths.owner.astype(np.int64) * max(n_links, 1) + local)
        owner, links = pair // max(n_links, 1), pair % max(n_links, 1)
        by_link = np.argsort(links, kind="stable")
        return cls(
            _pointers(owner, len(paths)),
            links.astype(np.int32),
            _pointers(links, n_links),
            owner[by_link].astype(np.int32),
            link_ids.astype(np.int32),
        )

    @property
    def n_paths(self) -> int:
        return len(self.path_ptr) - 1

    @property
    def n_links(self) -> int:
        return len(self.link_ids)

    def paths_with(self, marked: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """The paths that use any marked local link (bool[n_links]): bool[n_paths]."""
        hit = np.zeros(self.n_paths, np.bool_)
        hit[np.repeat(np.arange(self.n_paths), np.diff(self.path_ptr))[marked[self.links]]] = True
        return hit


def _pointers(group: LongArray, n_groups: int) -> LongArray:
    return np.concatenate(([0], np.cumsum(np.bincount(group, minlength=n_groups)))).astype(np.int64)
