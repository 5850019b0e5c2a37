# SPDX-License-Identifier: Apache-2.0
"""The comparison of two runs of different systems tells rounding from a difference."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.same_run import Comparison, compare


@pytest.fixture
def other(finished_run: Any, tmp_path: Path) -> Path:
    """A copy of a run."""
    return shutil.copytree(finished_run.path, tmp_path / "other")


Change = Callable[[pd.DataFrame], None]


def changed(run: Any, other: Path, name: str, change: Change) -> Comparison:
    """The comparison of a run with a copy in which a table was changed."""
    table = pq.read_table(other / name)
    frame = table.to_pandas()
    change(frame)
    new = type(table).from_pandas(frame, schema=table.schema, preserve_index=False)
    pq.write_table(new, other / name)
    return compare(run.path, other)


def test_a_run_is_equal_to_itself(finished_run: Any, other: Path) -> None:
    text = (other / "summary.json").read_text()
    (other / "summary.json").write_text(text.replace('"wall_seconds": ', '"wall_seconds": 1'))
    found = compare(finished_run.path, other)
    assert not found.wrong and not found.last_bits and found.equal > 20


def test_a_score_may_be_rounded_otherwise(finished_run: Any, other: Path) -> None:
    def rounded(diagnosis: pd.DataFrame) -> None:
        diagnosis["score"] *= 1 + 1e-15

    found = changed(finished_run, other, "diagnoses/canary.parquet", rounded)
    assert not found.wrong and "column score" in found.last_bits[0]


def more(diagnosis: pd.DataFrame) -> None:
    diagnosis["score"] *= 1 + 1e-9


def another_verdict(diagnosis: pd.DataFrame) -> None:
    diagnosis.loc[3, "flagged"] = ~diagnosis.loc[3, "flagged"]


def another_order(diagnosis: pd.DataFrame) -> None:
    diagnosis["rank"] = diagnosis["rank"].max() + 1 - diagnosis["rank"]


@pytest.mark.parametrize("change", [more, another_verdict, another_order])
def test_what_is_no_rounding_is_a_difference(
    finished_run: Any, other: Path, change: Change
) -> None:
    assert changed(finished_run, other, "diagnoses/canary.parquet", change).wrong


def test_what_was_measured_may_not_differ(finished_run: Any, other: Path) -> None:
    def lost(links: pd.DataFrame) -> None:
        links.loc[0, "packets"] += 1

    assert changed(finished_run, other, "links.parquet", lost).wrong == [
        "links.parquet: column packets"
    ]
    (other / "drops.parquet").unlink()
    assert "drops.parquet: only one of the runs has it" in compare(finished_run.path, other).wrong
