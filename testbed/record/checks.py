# SPDX-License-Identifier: Apache-2.0
"""Checks that the tables of a run agree with each other and the fabric, without loops over rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from testbed.arrays import BoolArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths
from testbed.record.messages import shown
from testbed.record.schema import Column, Numbered, Schema, TableError
from testbed.record.tables import Table


def check_references(
    table: Table,
    schema: Schema,
    values: Mapping[str, Any],
    fabric: Fabric,
    names: tuple[list[str], list[str]],
    count: Callable[[Numbered], int | None],
) -> None:
    """Check that a table's values refer to existing links, hosts, epochs or rows of other tables.

    Args:
        values: The columns of ``table``.
        fabric: The fabric.
        names: The names of the rows of the tables of switches and of links.
        count: Returns the number of links, hosts and so on; None if it is not known.

    Raises:
        TableError: A value refers to nothing, or does not fit the others (one line with the file,
            the row and the reason).
    """
    for column in schema.columns:
        if column.name not in values:
            continue
        value = values[column.name]
        if isinstance(value, Paths):
            _check_paths(table, column, value, fabric, values.get("complete"))
        elif column.numbers is not None:
            n, low = count(column.numbers), -1 if column.null.startswith("-1") else 0
            high, there = (
                (None, "") if n is None else (n - 1, f"there are {n} {_plural(column.numbers)}")
            )
            table.refuse_outside(column.name, value, low, high, there)
    if "sent" in values and "lost" in values:
        table.refuse(values["lost"] > values["sent"], "more packets lost than sent")
    if schema.row_of is not None:
        of_rows = names[schema.row_of == "every link"]
        _check_names(table, values[schema.columns[0].name], of_rows, schema.row_of)
    if len(schema.key) > 1:  # of one column, `Table` has looked
        _check_key(table, schema, values)


def _check_paths(
    table: Table, column: Column, paths: Paths, fabric: Fabric, complete: BoolArray | None
) -> None:
    """Check that paths have links of the fabric, not too few, that join; broken traces need not."""
    short = paths.length < (column.low or 0)
    table.refuse(short, f"{column.name} has no link")
    links = paths.links
    if not len(links):
        return
    if links.min() < 0 or links.max() >= fabric.n_links:
        at = int(np.argmax((links < 0) | (links >= fabric.n_links)))
        reason = f"{column.name} has link {links[at]}: there are {fabric.n_links} links"
        raise table.fail(int(paths.owner[at]), reason)
    apart = fabric.link_dst[links[:-1]] != fabric.link_src[links[1:]]
    ends = paths.ptr[1:-1] - 1
    apart[ends[(ends >= 0) & (ends < len(apart))]] = False  # where another path begins
    if complete is not None and apart.any():
        apart &= complete[paths.owner[:-1]]
    if apart.any():
        row = int(paths.owner[np.argmax(apart)])
        raise table.fail(row, f"the links of {column.name} do not join up")


def _plural(what: Numbered) -> str:
    return "links" if what == "every link" else what


def _check_names(table: Table, found: list[str], names: list[str], what: Numbered) -> None:
    if len(found) != len(names):
        there = f"there are {len(names)} {_plural(what)}"
        raise TableError(f"{table.path} has {len(found)} rows: {there}")
    for row in (r for r, (a, b) in enumerate(zip(found, names, strict=True)) if a != b):
        raise table.fail(row, f"it is of {shown(found[row])}: {shown(names[row])} comes here")


def _check_key(table: Table, schema: Schema, values: Mapping[str, Any]) -> None:
    """Check that no two rows have the same key, whose columns are known to be in range."""
    key = np.zeros(len(values[schema.key[0]]), np.int64)
    for name in schema.key:
        key = key * (int(values[name].max(initial=0)) + 1) + values[name]
    if not (np.diff(key) > 0).all() and len(np.unique(key)) < len(key):
        table.refuse_twice(" and ".join(schema.key), key)
