"""Canary's segment counts in parts, a file each, for fabrics whose counts no one machine holds.

No two parts have a link in common, as those of two pods: a sub-problem (section III-E of the
paper) is whole in one file. A row is a segment: ``path``, the numbers of its links in order, and
``sent-0``, ``lost-0``, ``sent-1`` and so on, the packets of each epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from analysis.telemetry.telemetry import SegmentCounts
from testbed.fabric.paths import Paths
from testbed.fabric.segments import Segments
from testbed.record.columns import read_columns, write_columns
from testbed.record.schema import TableError


def part_files(folder: Path) -> list[Path]:
    """The files of a folder of parts, by name.

    Raises:
        TableError: There is none.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise TableError(f"{folder} has no .parquet file")
    return files


def write_parts(folder: Path, counts: SegmentCounts) -> list[Path]:
    """Write one file a sub-problem, ``part-000.parquet`` and on; the folder must be new.

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
    """Write the segments of a part, ``sent`` and ``lost`` int[E, S].

    Raises:
        TableError: The file cannot be written.
    """
    columns: dict[str, Any] = {"path": paths}
    for epoch, counted in enumerate(zip(sent, lost, strict=True)):
        for name, values in zip(("sent", "lost"), counted, strict=True):
            columns[f"{name}-{epoch}"] = np.asarray(values, np.int64)
    write_columns(path, columns)


def read_part(path: Path, n_links: int) -> SegmentCounts:
    """Read a part of a fabric of ``n_links`` links. It says nothing of its segments' ends.

    Raises:
        TableError: It is unreadable, or makes no sense (one line).
    """
    columns = read_columns(path)
    epochs = (len(columns) - 1) // 2
    named = [f"{name}-{epoch}" for epoch in range(epochs) for name in ("sent", "lost")]
    paths = columns.get("path")
    if not epochs or set(columns) != {"path", *named} or not isinstance(paths, Paths):
        raise TableError(f"{path} is no part: path, sent-0, lost-0 and so on are its columns")
    if paths.links.size and not 0 <= paths.links.min() <= paths.links.max() < n_links:
        raise TableError(f"{path}: a link is none of the fabric's {n_links:,}")
    sent, lost = (
        np.stack([columns[f"{name}-{epoch}"] for epoch in range(epochs)])
        for name in ("sent", "lost")
    )
    none = np.full(len(paths), -1, np.int32)
    segments = Segments(none, none, none[:, None], paths, np.zeros(len(paths), np.int32))
    try:
        return SegmentCounts(segments, sent, lost)
    except ValueError as error:
        raise TableError(f"{path}: {error}") from None
