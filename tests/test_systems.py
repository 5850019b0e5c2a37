# SPDX-License-Identifier: Apache-2.0
"""Jobs note the system that they ran on, and the page of systems shows the latest of each."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests import systems

SCRIPT = Path(systems.__file__)


def record(file: Path, what: str, result: str, **environment: str) -> None:
    """A job's call: nothing but Python is there."""
    command = [sys.executable, "-I", SCRIPT, "record", file, what, result]
    subprocess.run(command, env={"PATH": "/usr/bin:/bin"} | environment, check=True)


def test_a_job_notes_where_it_ran(tmp_path: Path) -> None:
    file = tmp_path / "record.csv"
    record(file, "make x, y", "0", COMMIT="abc")
    record(file, "make z", "failure", COMMIT="abc", EMULATED="1")
    first, second = systems.read(file)
    assert (first["what"], first["result"], first["commit"]) == ("make x, y", "passed", "abc")
    assert (second["result"], second["processor"]) == ("failed", f"{first['processor']} (QEMU)")
    assert first["python"] == ".".join(map(str, sys.version_info[:3]))
    assert first["system"] and first["compiler"]


@pytest.mark.parametrize("result", ["1", "failure", "cancelled", "skipped", ""])
def test_what_did_not_pass_failed(tmp_path: Path, result: str) -> None:
    record(tmp_path / "record.csv", "make x", result)
    assert systems.read(tmp_path / "record.csv")[0]["result"] == "failed"


def test_the_latest_of_each_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def row(**what: str) -> systems.Row:
        return dict.fromkeys(systems.COLUMNS, "") | what

    monkeypatch.setattr(systems, "KEPT", tmp_path / "kept.csv")
    one, two = tmp_path / "1.csv", tmp_path / "2.csv"
    systems.write(one, [row(what="a", date="2026-02-01", result="passed")])
    systems.write(two, [row(what="a", date="2026-01-31", result="failed"), row(what="b")])
    assert systems.main("collect", str(one), str(two)) == 0
    kept = systems.read(tmp_path / "kept.csv")
    assert [(row["what"], row["result"]) for row in kept] == [("a", "passed"), ("b", "")]
    assert systems.main("collect", str(two)) == 0
    assert systems.read(tmp_path / "kept.csv") == kept


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    with other.open("w", newline="") as file:
        csv.writer(file).writerows([["system", "what"], ["Debian 12", "make x"]])
    with pytest.raises(ValueError, match="columns"):
        systems.main("collect", str(other))


def test_the_kept_rows_are_of_jobs_that_ran() -> None:
    rows = systems.read(systems.KEPT)
    assert rows and systems.latest(rows) == rows
    for row in rows:
        assert row["result"] in ("passed", "failed") and row["commit"] and row["date"]
