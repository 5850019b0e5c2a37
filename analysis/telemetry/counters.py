# SPDX-License-Identifier: Apache-2.0
"""Counters at both ends of links, which are read at different times."""

from __future__ import annotations

import numpy as np

from testbed.arrays import BoolArray, LongArray
from testbed.fabric.paths import PathSets
from testbed.record.tables import Table


def without_skew(
    table: Table,
    polled: BoolArray,
    set_of: LongArray,
    sets: PathSets,
    sent: LongArray,
    lost: LongArray,
) -> tuple[LongArray, LongArray, int]:
    """Return ``sent`` and ``lost`` of all rows with the counters of each link as one row, and the
    most packets by which the two ends of a link differ because they were read at different times.

    ``lost`` of counters is sent minus arrived. Polls of a link add up, so that only the first and
    the last reading are apart. The offset of a link is a nuisance parameter: nothing is known of it
    but its size, as losses never make the difference negative, and offsets are as often positive as
    negative. The likelihood is highest at the offset that leaves least to be explained by losses,
    so up to twice the largest negative difference counts as one.
    """
    rows = np.flatnonzero(polled)
    link = sets.take(set_of[rows]).paths.links
    several = sets.take(set_of[rows]).paths.length != 1
    wrong = np.zeros(len(table), np.bool_)
    wrong[rows] = several
    table.refuse(wrong, "a counter is at both ends of one link")
    each, first, nth = np.unique(link, return_index=True, return_inverse=True)
    sums = [np.zeros(len(each), np.int64) for _ in range(2)]
    for cells, column in zip(sums, (sent, lost), strict=True):
        np.add.at(cells, nth.reshape(-1), column[rows])
    skew = max(0, -int(sums[1].min(initial=0)))
    sent, lost = sent.copy(), lost.copy()
    sent[rows] = lost[rows] = 0
    sent[rows[first]] = sums[0]
    lost[rows[first]] = np.clip(sums[1] - 2 * skew, 0, sums[0])
    return sent, lost, skew
