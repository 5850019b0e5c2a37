# SPDX-License-Identifier: Apache-2.0
"""Compares two runs of the same settings, made on different systems, file by file.

    python -m tests.same_run RUN OTHER

What was measured (tables, registers, the truth) must be equal byte for byte, and the documents in
all but times and versions. The page and the manifest follow from these and hold times, so they are
left out. Where a table differs, each of its columns that does is named, with the largest
difference.

What methods compute may differ in the last bits of a score, and then in the ranks of links whose
scores differ no more than that: the logarithms and exponentials of C libraries, and those of
NumPy for different processors, do not round alike. It is told, and no failure. Verdicts may not
differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

VARYING = {"seconds", "wall_seconds", "versions"}
"""Keys of documents that hold times or versions."""

LEFT_OUT = {"index.html", "manifest.json"}

LAST_BITS = 1e-12
"""The share of a score by which two libraries' rounding may move it: thousands of roundings."""


@dataclass
class Comparison:
    """What differs between two runs: lines for what may not, and for what may; and equal files."""

    wrong: list[str] = field(default_factory=list)
    last_bits: list[str] = field(default_factory=list)
    equal: int = 0


def files(run: Path) -> set[str]:
    """Return the files of a run that are compared, relative to it."""
    found = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    return found - LEFT_OUT


def compare(run: Path, other: Path) -> Comparison:
    """Return what differs between two runs."""
    found = Comparison()
    for name in sorted(files(run) ^ files(other)):
        found.wrong.append(f"{name}: only one of the runs has it")
    for name in sorted(files(run) & files(other)):
        one, two = run / name, other / name
        if one.read_bytes() == two.read_bytes():
            found.equal += 1
        elif name.endswith(".parquet"):
            a, b = (pq.read_table(path).to_pandas() for path in (one, two))
            lines = [f"{name}: {line}" for line in unequal(a, b)]
            may = name.startswith("diagnoses/") and only_last_bits(a, b)
            (found.last_bits if may else found.wrong).extend(lines)
        elif name.endswith(".json") and _timeless(one) == _timeless(two):
            found.equal += 1
        else:
            found.wrong.append(f"{name}: differs")
    return found


def _timeless(path: Path) -> Any:
    """Return a document without what varies."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(each) for key, each in value.items() if key not in VARYING}
        return [without(each) for each in value] if isinstance(value, list) else value

    return without(json.loads(path.read_text(encoding="utf-8")))


def unequal(a: pd.DataFrame, b: pd.DataFrame) -> list[str]:
    """Return what differs between two tables whose bytes do."""
    if list(a.columns) != list(b.columns) or len(a) != len(b):
        return [f"{a.shape} against {b.shape} rows and columns"]
    lines = []
    for name in a.columns:
        if not a[name].equals(b[name]):
            by = f", by {_apart(a[name], b[name]):.1e} of the value" if _floats(a[name]) else ""
            lines.append(f"column {name}{by}")
    return lines or ["the same values in other bytes"]


def only_last_bits(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    """Return True if two diagnoses have the same verdicts, but for the last bits of their scores
    and the order of links that are tied but for these."""
    if list(a.columns) != list(b.columns) or len(a) != len(b):
        return False
    other = [name for name in a.columns if name not in ("score", "rank", "success")]
    if not a[other].equals(b[other]):
        return False
    floats = [name for name in ("score", "success") if name in a and _floats(a[name])]
    if any(_apart(a[name], b[name]) > LAST_BITS for name in floats):
        return False
    return _ordered(a["score"], b["rank"]) and _ordered(b["score"], a["rank"])


def _ordered(scores: Any, ranks: Any) -> bool:
    """Return True if scores fall with their ranks, but for the last bits."""
    sorted_ = scores.to_numpy()[np.argsort(ranks.to_numpy(), kind="stable")]
    sorted_ = sorted_[np.isfinite(sorted_)]
    return bool((np.diff(sorted_) <= LAST_BITS * np.abs(sorted_[:-1])).all())


def _floats(column: Any) -> bool:
    return pd.api.types.is_float_dtype(column)


def _apart(a: Any, b: Any) -> float:
    """Return the largest difference of two columns, as a share of the value; infinity if one has a
    value where the other has none."""
    one, two = a.to_numpy(float), b.to_numpy(float)
    known = np.isfinite(one) & np.isfinite(two)
    if not np.array_equal(one[~known], two[~known], equal_nan=True):
        return float("inf")
    size = np.maximum(np.abs(one[known]), np.finfo(float).tiny)
    return float((np.abs(one[known] - two[known]) / size).max(initial=0.0))


def main() -> int:
    """Print what differs, and how many files are equal."""
    parser = argparse.ArgumentParser(description="Compare two runs of the same settings.")
    parser.add_argument("run", type=Path)
    parser.add_argument("other", type=Path)
    asked = parser.parse_args()
    found = compare(asked.run, asked.other)
    for line in found.wrong:
        print(line)
    for line in found.last_bits:
        print(f"{line}: the last bits of a score, the verdict is the same")
    print(f"{found.equal} of {len(files(asked.run))} files are equal")
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main())
