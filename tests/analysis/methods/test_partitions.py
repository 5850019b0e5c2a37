# SPDX-License-Identifier: Apache-2.0
"""A diagnosis in parts is that of the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.methods.canary import Canary
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.mle.mle import CanaryMle
from analysis.methods.partitions import Part, diagnose_canary, diagnose_mle, load_part
from analysis.telemetry.parts import write_parts
from analysis.telemetry.telemetry import SegmentCounts, Telemetry
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import TwoSwitches
from testbed.record.files import table_files
from testbed.record.schema import TableError


class Held:
    """Parts in this process."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts

    def each(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        return [function(part, *shared) for part in self.parts]


def seen(k: int, seed: int, kind: str) -> Telemetry:
    """Counts of every segment; as of links that lose packets, of a device, or of black holes."""
    fabric, rng = FatTree(k), np.random.default_rng(seed)
    parts = fabric.segments()
    loss = rng.uniform(0, 1e-4, fabric.n_links)
    faulty = rng.random(fabric.n_links) < 0.03
    if kind == "device":
        core = fabric.n_switches - 1
        faulty |= (fabric.link_src == core) | (fabric.link_dst == core)
    loss[faulty] = 10 ** rng.uniform(-3, -0.5, faulty.sum())
    padded = parts.paths.padded()
    through = np.where(padded >= 0, 1 - loss[np.maximum(padded, 0)], 1.0).prod(axis=1)
    sent = rng.integers(0, 2000, (3, len(parts)))
    sent[:, rng.random(len(parts)) < 0.05] = 0
    lost = rng.binomial(sent, 1 - through)
    if kind == "black holes":
        holes = rng.choice(fabric.n_links, 3, replace=False)
        gone = (np.isin(padded, holes).any(axis=1)) & (rng.random(len(parts)) < 0.3)
        lost[:, gone] = sent[:, gone]
    return Telemetry(fabric, "tor+core", segments=SegmentCounts(parts, sent, lost))


def same(one: Diagnosis, other: Diagnosis) -> None:
    for field in fields(Diagnosis):
        if field.name == "seconds":
            continue
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name == "tells":
            np.testing.assert_array_equal(a.classes, b.classes)
            np.testing.assert_array_equal(a.observed, b.observed)
            continue
        if field.name == "stages":
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                np.testing.assert_array_equal(x, y)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("k", "kind"),
    [(4, "links"), (8, "links"), (8, "device"), (8, "black holes"), (16, "black holes")],
)
def test_a_diagnosis_in_parts_is_that_of_the_whole(k: int, kind: str, tmp_path: Path) -> None:
    telemetry = seen(k, 1001, kind)
    fabric, counts = telemetry.topology, telemetry.segments
    assert counts is not None
    write_parts(tmp_path / "parts", counts)
    files = table_files(tmp_path / "parts")
    assert len(files) == k
    held = Held([load_part(file, fabric) for file in files])
    whole = CanaryMle().localize(telemetry)
    assert len(whole.flagged) and (kind != "black holes" or whole.remarks)
    same(diagnose_mle(held, CanaryMle(), fabric), whole)
    same(diagnose_canary(held, Canary(), fabric), Canary().localize(telemetry))


def test_parts_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    telemetry = seen(4, 1002, "links")
    assert telemetry.segments is not None
    with pytest.raises(TableError, match=r"has no \.parquet, \.csv or"):
        table_files(tmp_path)
    file = write_parts(tmp_path / "parts", telemetry.segments)[0]
    part = load_part(file, telemetry.topology)
    with pytest.raises(TableError, match="a link in common"):
        diagnose_mle(Held([part, part]), CanaryMle(), telemetry.topology)
    with pytest.raises(TableError, match="is not in the fabric"):
        load_part(file, TwoSwitches())
    (tmp_path / "parts" / "x.parquet").write_bytes(b"x")
    with pytest.raises(TableError, match="is not readable Parquet"):
        load_part(tmp_path / "parts" / "x.parquet", telemetry.topology)
