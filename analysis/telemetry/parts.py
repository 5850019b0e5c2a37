# SPDX-License-Identifier: Apache-2.0
"""Canary's segment counts in several files, for fabrics whose counts do not fit on one machine.

A part is one file. No two parts share a link, as those of two pods do not: each sub-problem
(section III-E of the paper) is complete in one file. A row is a segment: ``path``, the numbers of
its links in order, and ``sent-0``, ``lost-0``, ``sent-1`` and so on, the packets of each epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from analysis.telemetry.checks import refuse_broken_paths, refuse_large_sum, refuse_more_lost
from analysis.telemetry.telemetry import SegmentCounts
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths
from testbed.fabric.segments import Segments
from testbed.record.files import column_names, read_arrow, table_files, write_columns
from testbed.record.foreign import SUFFIXES, is_foreign_text
from testbed.record.schema import COUNT_LIMIT, Column, Schema, TableError
from testbed.record.tables import Table


def holds_parts(folder: Path) -> bool:
    """Return True if a folder holds parts of segment counts, False if it holds observations.

    Raises:
        TableError: The folder holds no table.
    """
    first = table_files(folder, SUFFIXES)[0]
    return not is_foreign_text(first) and "path" in column_names(first)


def write_parts(folder: Path, counts: SegmentCounts) -> list[Path]:
    """Write one file for each sub-problem, ``part-000.parquet`` and so on; return their paths. The
    folder must not exist.

    Raises:
        TableError: A file cannot be written.
    """
    folder.mkdir()
    files = []
    for number in np.unique(counts.segments.subproblem):
        rows = np.flatnonzero(counts.segments.subproblem == number)
        path = folder / f"part-{number:03}.parquet"
        paths = counts.segments.paths.take(rows)
        write_part(path, paths, counts.sent[:, rows], counts.lost[:, rows])
        files.append(path)
    return files


def write_part(path: Path, paths: Paths, sent: np.ndarray, lost: np.ndarray) -> None:
    """Write the S segments of a part, with the packets ``sent`` and ``lost`` in each of E epochs:
    int[E, S].

    Raises:
        TableError: The file cannot be written.
    """
    columns: dict[str, Any] = {"path": paths}
    for epoch, counted in enumerate(zip(sent, lost, strict=True)):
        for name, values in zip(("sent", "lost"), counted, strict=True):
            columns[f"{name}-{epoch}"] = np.asarray(values, np.int64)
    write_columns(path, columns)


def read_part(path: Path, fabric: Fabric) -> SegmentCounts:
    """Read and return a part of a fabric's segments. A part does not record at which switches its
    segments end; these are -1 in the result.

    Raises:
        TableError: The file cannot be read, or a row is invalid (one line).
    """
    data = read_arrow(path)
    epochs = (len(data.column_names) - 1) // 2
    named = [f"{name}-{epoch}" for epoch in range(epochs) for name in ("sent", "lost")]
    if not epochs or sorted(data.column_names) != sorted(["path", *named]):
        raise TableError(
            f"{path} is not a part: it needs the columns path, sent-0, lost-0 and so on"
        )
    counts = [
        Column(name, "int64", "packets of an epoch", low=0, high=COUNT_LIMIT) for name in named
    ]
    columns = (Column("path", "path", "links of the segment"), *counts)
    table = Table(path, Schema("part", "segments of some sub-problems", columns), data)
    paths: Paths = table.values("path")
    links = paths.links
    for entry in np.flatnonzero((links < 0) | (links >= fabric.n_links))[:1]:
        raise table.fail(int(paths.owner[entry]), f"link {links[entry]} is not in the fabric")
    refuse_broken_paths(table, fabric, paths, np.arange(len(paths)))
    read = {name: table.values(name) for name in named}
    for name, values in read.items():
        refuse_large_sum(table, name, values)
    sent, lost = (
        np.stack([read[f"{name}-{epoch}"] for epoch in range(epochs)]) for name in ("sent", "lost")
    )
    for epoch in range(epochs):
        refuse_more_lost(table, sent[epoch], lost[epoch], what=f"lost-{epoch}")
    none = np.full(len(paths), -1, np.int32)
    segments = Segments(none, none, none[:, None], paths, np.zeros(len(paths), np.int32))
    return SegmentCounts(segments, sent, lost)
