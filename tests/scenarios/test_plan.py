"""``canary plan``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scenarios.cli import main
from testbed.fabric.fat_tree import FatTree
from testbed.probes.probe_matrix import probe_matrix
from testbed.record.columns import read_columns


def canary(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["canary", *arguments])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_plan_says_what_it_needs_and_what_trivial_plans_need(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert canary(monkeypatch, "plan", "--k", "4", "--alpha", "1", "--beta", "1") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    paths = {row[0]: row[-2] for row in rows if row and row[-1].endswith("x")}
    assert paths["deTector"] == str(len(probe_matrix(FatTree(4), 1, 1)))
    trivial = [row[-2] for row in rows if row and row[0] == "every"]
    # 8 ToRs x 4 cores; 16 hosts x 4 cores; 24 pairs of ToRs over 4 cores and 4 over 2 switches
    assert trivial == ["32", "64", "104"]
    ways = [row for row in rows if row and row[0] in ("plain", "+")]
    assert len(ways) == 4 and all(row[-1] == paths["deTector"] for row in ways)


def test_plan_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert canary(monkeypatch, "plan", "--k", "4", "--out", str(tmp_path / "plan.parquet")) == 0
    table, matrix = read_columns(tmp_path / "plan.parquet"), probe_matrix(FatTree(4), 3, 1)
    assert (table["path"].links == matrix.paths.links).all()
    names = np.array(FatTree(4).switch_names)
    for column, switches in (("from", "src_tor"), ("turn", "turn"), ("to", "dst_tor")):
        assert table[column] == names[getattr(matrix, switches)].tolist()
    assert [file.name for file in tmp_path.iterdir()] == ["plan.parquet"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k", "5"], "K=5 is no fat-tree"),
        (["--alpha", "0"], "alpha=0: a link must be on at least 1 path"),
        (["--beta", "4"], "beta=4: from 0 to 3 links"),
        (["--k", "32", "--beta", "3"], "use a smaller beta"),
        (["--out", "/nowhere/plan.parquet"], "/nowhere is no directory"),
    ],
)
def test_bad_plans_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    assert canary(monkeypatch, "plan", *arguments) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error
