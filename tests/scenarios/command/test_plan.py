# SPDX-License-Identifier: Apache-2.0
"""``canary plan``."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from testbed.fabric.fat_tree import FatTree
from testbed.fabric.probe_matrix.matrix import probe_matrix
from testbed.record.files import read_columns
from tests.scenarios.conftest import Canary, refused


def test_plan_says_what_it_needs_and_what_trivial_plans_need(
    canary: Canary,
) -> None:
    result = canary("plan", "--k", "4", "--alpha", "1", "--beta", "1")
    assert result.code == 0 and "not reached" not in result.out
    rows = [line.split() for line in result.out.splitlines()]
    paths = {row[0]: row[-2] for row in rows if row and row[-1].endswith("x")}
    assert paths["deTector"] == str(len(probe_matrix(FatTree(4), 1, 1)))
    trivial = [row[-2] for row in rows if row and row[0] == "every"]
    # 8 ToRs x 4 cores; 16 hosts x 4 cores; 24 pairs of ToRs over 4 cores and 4 over 2 switches
    assert trivial == ["32", "64", "104"]
    ways = [row for row in rows if row and row[0] in ("plain", "+")]
    assert len(ways) == 4 and all(row[-1] == paths["deTector"] for row in ways)


def test_plan_says_what_it_does_not_reach(canary: Canary) -> None:
    result = canary("plan", "--k", "4", "--alpha", "50", "--beta", "3")
    assert result.code == 0
    short = [line for line in result.out.splitlines() if "not reached" in line]
    matrix = probe_matrix(FatTree(4), 50, 3)
    few = int((matrix.coverage < 50).sum())
    assert short[0].startswith(f"alpha=50 is not reached: {few} of 32 links are on fewer paths")
    reached = matrix.identifiability()
    assert reached < 3 and short[1].startswith(
        "beta=3 is not reached: with any choice of paths, some"
    )
    assert f"some {reached + 1} links" in short[1]


def test_plan_is_written(canary: Canary, tmp_path: Path) -> None:
    assert canary("plan", "--k", "4", "--out", str(tmp_path / "plan.parquet")).code == 0
    table, matrix = read_columns(tmp_path / "plan.parquet"), probe_matrix(FatTree(4), 3, 1)
    assert (table["path"].links == matrix.paths.links).all()
    names = np.array(FatTree(4).switch_names)
    for column, switches in (("from", "src_tor"), ("turn", "turn"), ("to", "dst_tor")):
        assert table[column] == names[getattr(matrix, switches)].tolist()
    assert [file.name for file in tmp_path.iterdir()] == ["plan.parquet"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k", "5"], "K=5 is not a fat-tree"),
        (["--alpha", "0"], "alpha=0: use at least 1 path for each link"),
        (["--beta", "4"], "beta=4: use 0 to 3 failed links"),
        (["--k", "32", "--beta", "3"], "use a smaller beta"),
        (["--out", "/nowhere/plan.parquet"], "there is no folder /nowhere"),
        (
            ["--out", "/tmp"],
            "--out /tmp is a folder: name a file in it, such as /tmp/paths.parquet",
        ),
        (["--out", ""], "--out . is a folder"),
    ],
)
def test_bad_plans_are_one_line(canary: Canary, arguments: list[str], message: str) -> None:
    refused(canary("plan", *arguments), message)


def test_a_plan_on_a_full_disk_names_its_file(
    canary: Canary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(table: object, path: Path, **options: object) -> None:
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: No space left on device")

    monkeypatch.setattr("testbed.record.files.pq.write_table", full)
    out = tmp_path / "plan.parquet"
    reason = f"cannot write {out}: No space left on device"
    refused(canary("plan", "--k", "4", "--out", str(out)), reason)
    assert not list(tmp_path.iterdir())
