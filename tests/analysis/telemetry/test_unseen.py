# SPDX-License-Identifier: Apache-2.0
"""What was not observed is explained by what happened, in the words of the caller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.methods.registry import make_method
from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import Probes, SegmentCounts, Telemetry
from testbed.fabric.clos import leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.record.fabric_file import NumberedFabric
from testbed.record.foreign import Receipt

FABRIC = leaf_spine(3, 2)
SETTINGS = ("ETA", "ALPHA", "LOAD", "PROBES", "TELEMETRY", "EPOCH")


def remark(tmp_path: Path, text: str, method: str) -> str:
    (tmp_path / "o.csv").write_text(text)
    numbered = NumberedFabric(FABRIC, np.arange(FABRIC.n_links))
    telemetry = read_observations(tmp_path / "o.csv", numbered, Receipt())
    return make_method(method).localize(telemetry).remarks[-1]


@pytest.mark.parametrize(
    ("rows", "method", "message"),
    [
        (["active,leaf0 spine0 leaf1,0,0"], "netbouncer", "all active rows have 0 packets"),
        (["segment,leaf0 spine0 leaf1,0,0"], "canary", "all segment (or counter) rows have 0"),
        (
            ["active,leaf0 spine0 leaf1,9,0"],
            "netbouncer",
            "no active row with packets crosses them",
        ),
        (["segment,leaf0 spine0 leaf1,9,0"], "canary-mle", "add such rows"),
        (["active,leaf0 spine0 leaf1,9,0"], "mle", "all links of leaf2, spine1: dead, or nothing"),
        (["segment,leaf0 spine0 leaf1,9,0"], "canary", "10 of 12 links (spine0->leaf0, "),
    ],
)
def test_of_files_the_words_are_rows(
    tmp_path: Path, rows: list[str], method: str, message: str
) -> None:
    found = remark(tmp_path, "\n".join(["kind,nodes,sent,lost", *rows, ""]), method)
    assert message in found and not any(word in found for word in SETTINGS)


def test_of_a_run_the_cause_is_what_happened() -> None:
    fabric = FatTree(4)
    segments = fabric.segments("tor+core")
    none = np.zeros((2, len(segments)), np.int64)
    counts = SegmentCounts(segments, none, none)
    run = Telemetry(fabric, "tor+core", segments=counts)
    message = make_method("canary").localize(run).remarks[-1]
    assert message.startswith(
        "nothing was measured, so there is no verdict: no meter counted a flow"
    )
    assert "more than ETA packets" in message and "LOAD" not in message
    some = none.copy()
    some[:, :3] = 500
    message = make_method("canary").localize(replace(run, segments=replace(counts, sent=some)))
    assert "a smaller ETA, a larger ALPHA or more LOAD" in message.remarks[0]
    path = fabric.paths_over("tor0_0->agg0_0->core0->agg0_0->tor0_0")
    probes = Probes(path, np.zeros(1, np.int64), np.zeros(1, np.int64))
    message = make_method("netbouncer").localize(replace(run, probes=probes)).remarks[-1]
    assert "no probe was sent: PROBES above 0" in message


def test_nothing_is_said_if_all_is_observed(tmp_path: Path) -> None:
    rows = [f"active,{name.replace('->', ' ')},9,0" for name in FABRIC.link_names]
    (tmp_path / "o.csv").write_text("\n".join(["kind,nodes,sent,lost", *rows, ""]))
    numbered = NumberedFabric(FABRIC, np.arange(FABRIC.n_links))
    telemetry = read_observations(tmp_path / "o.csv", numbered, Receipt())
    assert not make_method("mle").localize(telemetry).remarks
