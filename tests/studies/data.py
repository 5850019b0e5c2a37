# SPDX-License-Identifier: Apache-2.0
"""The data files of the documentation that studies write: CSV in ``docs/data``."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from testbed.record.atomic import atomic_write

FOLDER = Path(__file__).parents[2] / "docs" / "data"


def write_rows(name: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Write ``docs/data/NAME.csv``, which a page of the site shows as a table; return its path."""
    path = FOLDER / f"{name}.csv"
    with atomic_write(path) as new, new.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
    return path
