# SPDX-License-Identifier: Apache-2.0
"""The code of a path, the uplinks that it takes, and the path of a code."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.arrays import LongArray
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths

BITS = 6
"""The bits of a packet that a code may take: what the shim has in reserve."""


def link_codes(fabric: Fabric) -> LongArray:
    """Return the bits that each directed link adds to the code of a path, int64[n_links]; links
    that lead down add none.

    The uplinks of a switch are numbered from 0, and each tier has bits of its own.

    Raises:
        UserError: A path takes more than `BITS` bits (one line).

    >>> from testbed.fabric.clos import leaf_spine
    >>> link_codes(leaf_spine(2, 3)).tolist()
    [0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 2, 0]
    """
    codes, used = np.zeros(fabric.n_links, np.int64), 0
    up = np.arange(0, fabric.n_links, 2)
    up = up[np.argsort(fabric.link_src[up], kind="stable")]
    switch = fabric.link_src[up]
    nth = np.arange(len(up)) - np.searchsorted(switch, switch)
    for tier in range(int(fabric.tier.max())):
        at = fabric.tier[switch] == tier
        codes[up[at]] = nth[at] << used
        used += int(nth[at].max(initial=0)).bit_length()
    if used > BITS:
        raise UserError(
            f"int has {BITS} bits in a packet for its path, and {fabric.title} needs {used}: use "
            "fewer uplinks"
        )
    return codes


def paths_of_codes(
    fabric: Fabric,
    codes: LongArray,
    src_tor: npt.NDArray[np.integer],
    dst_tor: npt.NDArray[np.integer],
    code: LongArray,
) -> tuple[LongArray, Paths]:
    """Return the rows whose code is that of an equal-cost path of their ToRs, ascending, and the
    path of each.

    Args:
        codes: What `link_codes` returned.
        src_tor, dst_tor, code: The two ToRs, which differ, and the code of each row, int[R].
    """
    pair = src_tor.astype(np.int64) * fabric.n_tors + dst_tor
    pairs, nth = np.unique(pair, return_inverse=True)
    sets = fabric.path_sets(*np.divmod(pairs, fabric.n_tors))
    own = np.zeros(len(sets.paths), np.int64)
    np.bitwise_or.at(own, sets.paths.owner, codes[sets.paths.links])
    key = sets.owner.astype(np.int64) << BITS | own
    order = np.argsort(key)
    wanted = nth.reshape(-1) << BITS | code
    at = np.searchsorted(key[order], wanted)
    path = np.append(order, -1)[at]
    known = np.flatnonzero(np.append(key, -1)[path] == wanted)
    return known, sets.paths.take(path[known])
