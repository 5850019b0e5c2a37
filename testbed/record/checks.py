"""Whether the values of a run's table are those that the schema allows; nothing loops over rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths
from testbed.record.messages import shown
from testbed.record.schema import Column, Numbered, Schema, TableError
from testbed.record.tables import Table


def check_values(
    table: Table,
    schema: Schema,
    values: Mapping[str, Any],
    fabric: Fabric,
    count: Callable[[Numbered], int | None],
) -> None:
    """Check the values of a table against the schema and what they refer to.

    Args:
        values: The columns of ``table``.
        count: How many there are of what columns number; None: not known.

    Raises:
        TableError: A value is out of its range, refers to nothing, or does not fit the others (one
            line with the file, the row and the reason).
    """
    for column in schema.columns:
        if column.name not in values:
            continue
        value = values[column.name]
        if isinstance(value, Paths):
            _check_paths(table, column, value, fabric, values.get("complete"))
        elif column.words:
            _check_words(table, column, value)
        elif isinstance(value, np.ndarray):
            of = None if column.numbers is None else count(column.numbers)
            _check_range(table, column, value, of)
    if "sent" in values and "lost" in values:
        table.refuse(values["lost"] > values["sent"], "more packets lost than sent")
    if schema.row_of is not None:
        names = fabric.link_names if schema.row_of == "links" else fabric.switch_names
        _check_names(table, values[schema.columns[0].name], names, schema.row_of)
    if schema.key:
        _check_key(table, schema, values)


def _check_range(table: Table, column: Column, value: npt.NDArray[Any], of: int | None) -> None:
    low, high = column.low, column.high
    if column.numbers is not None:
        low, high = -1 if column.null.startswith("-1") else 0, None if of is None else of - 1
    outside = np.zeros(len(value), np.bool_)
    if value.dtype.kind == "f" and not column.null.startswith("nan"):
        outside |= np.isnan(value)
    if low is not None and len(value) and not value.min() >= low:  # nan, too
        outside |= value < low
    if high is not None and len(value) and not value.max() <= high:
        outside |= value > high
    if outside.any():
        row = int(np.argmax(outside))
        what = f"{column.name} is {value[row]}"
        if of is None:
            raise table.fail(row, f"{what}: {_range(low, high)} is needed")
        raise table.fail(row, f"{what}: there are {of} {column.numbers}")


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return "a number" if low is None else f"{low:g} or more"
    return f"{low or 0:g} to {high:g}"


def _check_words(table: Table, column: Column, value: list[str]) -> None:
    for word in set(value) - set(column.words):
        known = ", ".join(column.words)
        raise table.fail(value.index(word), f"{column.name} is {shown(word)}: none of {known}")


def _check_paths(
    table: Table, column: Column, paths: Paths, fabric: Fabric, complete: BoolArray | None
) -> None:
    """Links of the fabric, not too few, that join up; traces do where they are complete."""
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


def _check_names(table: Table, found: list[str], names: list[str], what: str) -> None:
    if len(found) != len(names):
        raise TableError(f"{table.path} has {len(found)} rows: there are {len(names)} {what}")
    for row in (r for r, (a, b) in enumerate(zip(found, names, strict=True)) if a != b):
        raise table.fail(row, f"it is of {shown(found[row])}: {shown(names[row])} comes here")


def _check_key(table: Table, schema: Schema, values: Mapping[str, Any]) -> None:
    """No two rows of the same key; the columns of keys are in range by now."""
    key = np.zeros(len(values[schema.key[0]]), np.int64)
    for name in schema.key:
        key = key * (int(values[name].max(initial=0)) + 1) + values[name]
    if not (np.diff(key) > 0).all() and len(np.unique(key)) < len(key):
        table.refuse_twice(" and ".join(schema.key), key)
