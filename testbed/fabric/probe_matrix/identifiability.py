# SPDX-License-Identifier: Apache-2.0
"""Identifiability of a probe matrix: whether combinations of failed links lose different probes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.errors import UserError
from testbed.fabric.components import components
from testbed.fabric.paths import Paths

_MAX_COUNTED = 5_000_000


class PlanError(UserError):
    """No probe matrix can be computed for these arguments."""


def combinations(n: int, beta: int) -> int:
    """Return the number of sets of 1 to ``beta`` out of ``n`` links (deTector, section 4.2).

    They are the physical and the virtual links; for ``beta`` 0 the physical ones count.
    """
    sizes = [n, n * (n - 1) // 2, n * (n - 1) * (n - 2) // 6]
    return sum(sizes[: max(beta, 1)])


def identifies(paths: Paths, n_edges: int, beta: int) -> bool:
    """Return True if no two sets of 1 to ``beta`` links are on the same paths.

    Links of parts that share no path cannot be confused, so each part is checked on its own, and
    parts with the same pattern of links and paths are checked once.
    """
    edge = paths.links >> 1
    label = components(paths.owner, len(paths) + edge, len(paths) + n_edges)
    by_part = np.argsort(label[paths.owner], kind="stable")
    begin = np.concatenate(([0], np.flatnonzero(np.diff(label[paths.owner][by_part])) + 1))
    known: set[bytes] = set()
    for rows in np.split(by_part, begin[1:]):
        _, path = np.unique(paths.owner[rows], return_inverse=True)
        _, link = np.unique(edge[rows], return_inverse=True)
        on = np.zeros((int(link.max()) + 1, int(path.max()) + 1), np.bool_)
        on[link, path] = True
        bits = np.packbits(on, axis=1)
        key = bits.tobytes() + bytes(str(on.shape), "ascii")
        if key in known:
            continue
        known.add(key)
        if not _all_differ(bits, beta):
            return False
    return True


def _all_differ(bits: npt.NDArray[np.uint8], beta: int) -> bool:
    """Return True if the unions of 1 to ``beta`` rows of packed bits are all different."""
    n = len(bits)
    if combinations(n, beta) > _MAX_COUNTED:
        raise PlanError(
            f"identifiability {beta} of {n} links cannot be counted: "
            f"{combinations(n, beta):,} combinations"
        )
    unions = [bits]
    if beta >= 2:
        low, high = np.triu_indices(n, 1)
        unions.append(bits[low] | bits[high])
    if beta >= 3:
        for link in range(n - 2):
            low, high = np.triu_indices(n - link - 1, 1)
            unions.append(bits[link] | bits[link + 1 + low] | bits[link + 1 + high])
    every = np.ascontiguousarray(np.concatenate(unions))
    words = every.view(np.dtype((np.void, every.shape[1])))
    return len(np.unique(words)) == len(every)
