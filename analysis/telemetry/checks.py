"""What a row of telemetry must hold, in a file of its own and in a part of many alike."""

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
    """Raise TableError for the first row with a path of no link, of too many, or of links that do
    not lead from one to the next.

    Args:
        table: Names the row.
        fabric: Has the links.
        paths: P paths of its links.
        row_of: The row of each path, int64[P].
        whole: The rows whose paths have no gap, bool[rows]. None: all.
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
    """Raise TableError for the first row that lost more than it sent.

    ``counted`` are the rows that say how much they sent, None: all; ``what`` they lost is called.
    """
    more = lost > sent if counted is None else counted & (lost > sent)
    for row in np.flatnonzero(more)[:1]:
        raise table.fail(int(row), f"{what} is {lost[row]}, more than the {sent[row]} sent")


def refuse_large_sum(table: Table, name: str, values: LongArray) -> None:
    """Raise TableError if the packets of all rows together are more than sums stay exact for."""
    if values.sum(dtype=np.float64) > 2**60:
        raise TableError(f"{table.path}: {name} adds up to more than 10^18 packets")


def _refuse(table: Table, rows: LongArray, reason: str) -> None:
    if len(rows):
        raise table.fail(int(rows.min()), reason)
