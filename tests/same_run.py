# SPDX-License-Identifier: Apache-2.0
"""Compares two runs of the same settings, made on different systems, file by file.

    python -m tests.same_run RUN OTHER

Tables, the truth and the registers must be equal byte for byte, and the documents in all but times
and versions. The page and the manifest follow from these and hold times, so they are left out.
Where a table differs, each of its columns that does is named, with the largest difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

VARYING = {"seconds", "wall_seconds", "versions"}
"""Keys of documents that hold times or versions."""

LEFT_OUT = {"index.html", "manifest.json"}


def files(run: Path) -> set[str]:
    """Return the files of a run that are compared, relative to it."""
    found = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    return found - LEFT_OUT


def differences(run: Path, other: Path) -> Iterator[str]:
    """Yield a line for each file, column or document that differs between two runs."""
    for name in sorted(files(run) ^ files(other)):
        yield f"{name}: only one of the runs has it"
    for name in sorted(files(run) & files(other)):
        one, two = run / name, other / name
        if one.read_bytes() == two.read_bytes():
            continue
        if name.endswith(".parquet"):
            yield from (f"{name}: {line}" for line in _columns(one, two))
        elif not name.endswith(".json") or _timeless(one) != _timeless(two):
            yield f"{name}: differs"


def _timeless(path: Path) -> Any:
    """Return a document without what varies."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(each) for key, each in value.items() if key not in VARYING}
        return [without(each) for each in value] if isinstance(value, list) else value

    return without(json.loads(path.read_text(encoding="utf-8")))


def _columns(one: Path, two: Path) -> Iterator[str]:
    """Yield what differs between two tables whose bytes do."""
    a, b = (pq.read_table(path).to_pandas() for path in (one, two))
    if list(a.columns) != list(b.columns) or len(a) != len(b):
        yield f"{a.shape} against {b.shape} rows and columns"
        return
    unequal = [name for name in a.columns if not a[name].equals(b[name])]
    if not unequal:
        yield "the same values in other bytes"
    for name in unequal:
        if pd.api.types.is_float_dtype(a[name]):
            apart = np.nanmax(np.abs(a[name] - b[name]) / np.maximum(np.abs(a[name]), 1e-300))
            yield f"column {name}, by {apart:.1e} of the value"
        else:
            yield f"column {name}"


def main() -> int:
    """Print what differs, or how many files are equal."""
    parser = argparse.ArgumentParser(description="Compare two runs of the same settings.")
    parser.add_argument("run", type=Path)
    parser.add_argument("other", type=Path)
    asked = parser.parse_args()
    found = list(differences(asked.run, asked.other))
    print("\n".join(found) or f"{len(files(asked.run))} files are equal")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
