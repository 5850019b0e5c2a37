# SPDX-License-Identifier: Apache-2.0
"""Paths as arrays: many paths of directed links, and many sets of possible paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray, LongArray
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)


def pointers(length: npt.ArrayLike) -> LongArray:
    """Return the CSR pointers of rows of these lengths (int[N]), int64[N + 1].

    Row ``i`` is at ``ptr[i]:ptr[i + 1]`` of the flat array.

    >>> pointers([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate(([0], np.cumsum(length))).astype(np.int64)


@dataclass(frozen=True)
class Paths:
    """Paths as a CSR array of directed link ids, in the order a packet takes them.

    Path ``p`` is ``links[ptr[p]:ptr[p + 1]]``; ``ptr`` is int64[P + 1], ``links`` int32[ptr[-1]].

    >>> paths = Paths.from_padded(np.array([[4, 9, -1], [0, 2, 5]]))
    >>> len(paths), paths[1].tolist(), paths.length.tolist()
    (2, [0, 2, 5], [2, 3])
    """

    ptr: LongArray
    links: IntArray

    @classmethod
    def from_padded(cls, padded: npt.NDArray[np.integer]) -> Paths:
        """Return the paths of rows of links, int[P, H], in which -1 marks "no link"."""
        keep = padded >= 0
        return cls(pointers(keep.sum(axis=1)), padded[keep].astype(np.int32))

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def __getitem__(self, path: int) -> IntArray:
        return self.links[self.ptr[path] : self.ptr[path + 1]]

    @cached_property
    def owner(self) -> IntArray:
        """Return the path that each entry of ``links`` belongs to, int32[len(links)]."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.length)

    @property
    def length(self) -> LongArray:
        """Return the number of links of each path, int64[P]."""
        return np.diff(self.ptr)

    def take(self, rows: npt.NDArray[np.integer]) -> Paths:
        """Return the paths with the indices ``rows`` (int[R]), in that order; rows may repeat."""
        ptr = pointers(self.length[rows])
        links = np.empty(ptr[-1], self.links.dtype)
        _KERNELS.copy(first=self.ptr[:-1][rows], links=self.links, ptr=ptr, taken=links)
        return Paths(ptr, links)

    def padded(self) -> IntArray:
        """Return a row of links for each path, padded with -1 to the longest, int32[P, H]."""
        rows = np.full((len(self), int(self.length.max(initial=0))), -1, np.int32)
        rows[self.owner, np.arange(len(self.links)) - self.ptr[self.owner]] = self.links
        return rows


@dataclass(frozen=True)
class PathSets:
    """Sets of possible paths: set ``s`` is the paths ``ptr[s]`` to ``ptr[s + 1]`` of ``paths``.

    ``ptr`` is int64[S + 1]. A known path is a set of one; a pair of switches that no path joins has
    a set of none; a path within a rack has no link.
    """

    ptr: LongArray
    paths: Paths

    @classmethod
    def known(cls, paths: Paths) -> PathSets:
        """Return one set for each path, which contains that path alone."""
        return cls(np.arange(len(paths) + 1, dtype=np.int64), paths)

    @classmethod
    def join(cls, parts: Sequence[PathSets]) -> PathSets:
        """Return the sets of all parts, concatenated in order."""
        width = [np.zeros(0, np.int64), *(part.width for part in parts)]
        length = [np.zeros(0, np.int64), *(part.paths.length for part in parts)]
        links = [np.zeros(0, np.int32), *(part.paths.links for part in parts)]
        return cls(
            pointers(np.concatenate(width)),
            Paths(pointers(np.concatenate(length)), np.concatenate(links)),
        )

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def __getitem__(self, path_set: int) -> Paths:
        return self.paths.take(np.arange(self.ptr[path_set], self.ptr[path_set + 1]))

    @cached_property
    def owner(self) -> IntArray:
        """Return the number of the set that each path belongs to, int32[len(paths)]."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.width)

    @property
    def width(self) -> LongArray:
        """Return the number of paths of each set, int64[S]."""
        return np.diff(self.ptr)

    @property
    def n_entries(self) -> LongArray:
        """Return the total number of links of each set's paths, int64[S]."""
        return np.diff(self.paths.ptr[self.ptr])

    def take(self, rows: npt.NDArray[np.integer]) -> PathSets:
        """Return the sets with the indices ``rows`` (int[R]), in that order; rows may repeat."""
        width = self.width[rows]
        ptr = pointers(width)
        path = np.arange(ptr[-1]) + np.repeat(self.ptr[:-1][rows] - ptr[:-1], width)
        return PathSets(ptr, self.paths.take(path))
