# SPDX-License-Identifier: Apache-2.0
"""Joins the tables that several measurements write, such as those of probes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from testbed.fabric.paths import Paths, PathSets
from testbed.record.run_tables import of
from testbed.record.tables import Columns


def joined(parts: Iterable[Mapping[str, Columns]]) -> dict[str, Columns]:
    """Return the tables of all parts, one part's rows after another's.

    A column that numbers the rows of another table of the same part, such as the path of a probe,
    continues to number them.
    """
    blocks: dict[str, list[Columns]] = {}
    for part in parts:
        before = {name: sum(map(_length, blocks.get(name, ()))) for name in part}
        for name, columns in part.items():
            blocks.setdefault(name, []).append(_renumbered(name, columns, before))
    return {name: _one(some) for name, some in blocks.items()}


def _renumbered(name: str, columns: Columns, before: Mapping[str, int]) -> Columns:
    """Return columns whose references to rows of tables in ``before`` are moved by the rows that
    these have already."""
    moved = dict(columns)
    for column in of(name).columns:
        rows = before.get(column.numbers or "", 0)
        if rows and column.name in columns:
            moved[column.name] = np.asarray(columns[column.name]) + rows
    return moved


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def _one(blocks: list[Columns]) -> Columns:
    if len(blocks) == 1:
        return blocks[0]
    return {name: _together([block[name] for block in blocks]) for name in blocks[0]}


def _together(parts: list[Any]) -> Any:
    if isinstance(parts[0], Paths):
        return PathSets.join([PathSets.known(paths) for paths in parts]).paths
    if isinstance(parts[0], list):
        return [value for part in parts for value in part]
    return np.concatenate(parts)
