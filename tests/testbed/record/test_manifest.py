# SPDX-License-Identifier: Apache-2.0
"""A run knows its content: what was changed after it is refused, whatever moment a rewrite ends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from scenarios.experiment.run import analyze
from testbed.record.manifest import MANIFEST
from testbed.record.run import RunDirectory, RunError, RunWriter
from tests.conftest import quiet


@pytest.fixture
def copy(run_path: Path, tmp_path: Path) -> Path:
    shutil.copytree(run_path, tmp_path / "copy")
    return tmp_path / "copy"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def edit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def swap(path: Path) -> None:
    other = path.with_name("epoch-000.parquet")
    content = other.read_bytes()
    path.replace(other)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("connections.parquet", cut, "bytes instead of"),
        ("truth.yaml", edit, "was changed after the run"),
        ("config.json", lambda p: p.write_text(p.read_text().replace('"k": 4', '"k": 6')), ""),
        ("summary.json", lambda p: p.write_text(p.read_text() + "\n"), "bytes instead of"),
        ("diagnoses/canary.parquet", Path.unlink, "is missing, but the run had it"),
        ("registers/epoch-009.parquet", lambda p: p.write_bytes(b""), "was added after the run"),
        (MANIFEST, Path.unlink, "changes to the run cannot be detected"),
        (MANIFEST, lambda p: p.write_text("{}"), "record_version is missing"),
        (MANIFEST, lambda p: p.write_text("{"), "is not readable JSON"),
    ],
)
def test_what_was_changed_after_the_run_is_refused(
    copy: Path, name: str, change: Callable[[Path], object], text: str
) -> None:
    change(copy / name)
    with pytest.raises(RunError) as raised:
        RunDirectory(copy)
    message = str(raised.value)
    assert message.startswith(str(copy / name)) and text in message and "--trust" in message
    assert "\n" not in message
    RunDirectory(copy, trust=True)


def test_files_that_were_swapped_are_named(copy: Path) -> None:
    swap(copy / "registers" / "epoch-001.parquet")
    with pytest.raises(RunError, match=r"registers/epoch-000\.parquet was changed after the run"):
        RunDirectory(copy)


def test_notes_and_plots_may_be_added(copy: Path) -> None:
    (copy / "notes.txt").write_text("it rained")
    (copy / "plots").mkdir()
    (copy / "plots" / "mine.parquet").write_bytes(b"")
    (copy / ".DS_Store").write_bytes(b"")
    RunDirectory(copy)


def test_an_analysis_keeps_the_manifest_right(copy: Path) -> None:
    before = json.loads((copy / MANIFEST).read_text())
    analyze(copy, quiet)
    after = json.loads((copy / MANIFEST).read_text())
    assert after.keys() == before.keys()
    changed = {name for name, entry in after["files"].items() if entry != before["files"][name]}
    assert changed == {"summary.json"}  # it has times
    RunDirectory(copy)


def test_what_was_edited_stays_so_after_an_analysis_on_trust(copy: Path) -> None:
    edit(copy / "truth.yaml")
    analyze(copy, quiet, trust=True)
    with pytest.raises(RunError, match=r"truth\.yaml was changed after the run"):
        RunDirectory(copy)
    (copy / MANIFEST).unlink()
    analyze(copy, quiet, trust=True)
    assert not (copy / MANIFEST).exists()


class Killed(BaseException):
    """What nobody handles."""


def test_a_rewrite_that_is_killed_leaves_a_run_that_can_be_read_and_rewritten(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its renames: nothing of it, some of it, all of it but the manifest."""
    whole = Path.replace
    ended = 0
    for moment in range(100):
        calls = 0

        def killed(self: Path, target: Path, moment: int = moment) -> Path:
            nonlocal calls
            calls += 1
            if calls > moment:
                raise Killed
            return whole(self, target)

        run = RunDirectory(copy)
        new = run.summary | {"wall_seconds": float(moment)}
        causes = run.table("diagnoses/007-connections")
        try:
            with RunWriter.again(run) as writer:
                writer.json("summary.json", new)
                writer.table("diagnoses/007-connections", causes)
                writer.table("diagnoses/new-connections", causes)
                with monkeypatch.context() as patch:
                    patch.setattr(Path, "replace", killed)
                    writer._replace(run)
                raise Killed
        except Killed:
            pass
        found = RunDirectory(copy).summary
        assert found in (run.summary, new)
        if calls <= moment:
            assert found == new
            break
        ended += 1
    assert ended == 5  # two manifests and three files
    manifest = json.loads((copy / MANIFEST).read_text())
    assert "replacing" not in manifest and "diagnoses/new-connections.parquet" in manifest["files"]


def test_an_interrupted_run_has_a_manifest_once_it_is_analyzed(copy: Path) -> None:
    partial = copy.rename(copy.with_name("copy.partial"))
    (partial / MANIFEST).unlink()
    (partial / "summary.json").unlink()
    edit(partial / "truth.yaml")
    analyze(partial, quiet)
    moved = partial.rename(partial.with_name("moved"))
    RunDirectory(moved)
    cut(moved / "truth.yaml")
    with pytest.raises(RunError, match=r"truth\.yaml was changed"):
        RunDirectory(moved)
