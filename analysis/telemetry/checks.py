# SPDX-License-Identifier: Apache-2.0
"""Checks of rows of telemetry, for observation files and for parts of segment counts."""

from __future__ import annotations

import numpy as np

from testbed.arrays import BoolArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths
from testbed.record.schema import TableError
from testbed.record.tables import Table

_HOPS = 255  # the most that IPv4's time to live allows


def refuse_broken_paths(
    table: Table, fabric: Fabric, paths: Paths, row_of: LongArray, whole: BoolArray | None = None
) -> None:
    """Raise TableError for the first row with a path that has no link, more than 255 links, or
    links that do not join up.

    Args:
        table: The table, which the message names with the row.
        fabric: The fabric of the links.
        paths: P paths of directed links.
        row_of: The row of each path, int64[P].
        whole: Rows whose paths may not have gaps, bool[rows]; None for all rows.
    """
    length = paths.length
    _refuse(table, row_of[length == 0], "a path has no link")
    longest = int(length.max(initial=0))
    if longest > _HOPS:
        too_long = f"a path has {longest:,} links: no packet crosses more than {_HOPS}"
        _refuse(table, row_of[length == longest], too_long)
    links, owner = paths.links, paths.owner
    broken = (owner[1:] == owner[:-1]) & (fabric.link_dst[links[:-1]] != fabric.link_src[links[1:]])
    row = row_of[owner[1:]]
    if whole is not None:
        broken &= whole[row]
    _refuse(table, row[broken], "the links of a path do not join up")


def refuse_more_lost(
    table: Table,
    sent: LongArray,
    lost: LongArray,
    counted: BoolArray | None = None,
    what: str = "lost",
) -> None:
    """Raise TableError for the first row that lost more packets than it sent.

    Args:
        table: The table, which the message names with the row.
        sent, lost: Packets of each row, int64[rows].
        counted: Rows that give a number of sent packets, bool[rows]; None for all rows.
        what: The name of the column of lost packets in the message.
    """
    more = lost > sent if counted is None else counted & (lost > sent)
    for row in np.flatnonzero(more)[:1]:
        raise table.fail(int(row), f"{what} is {lost[row]}, more than the {sent[row]} sent")


def refuse_large_sum(table: Table, name: str, values: LongArray) -> None:
    """Raise TableError if a column of packets adds up to more than 2^60, so that 64-bit sums stay
    exact."""
    if values.sum(dtype=np.float64) > 2**60:
        raise TableError(f"{table.path}: {name} adds up to more than 10^18 packets")


def _refuse(table: Table, rows: LongArray, reason: str) -> None:
    if len(rows):
        raise table.fail(int(rows.min()), reason)
