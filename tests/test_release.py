# SPDX-License-Identifier: Apache-2.0
"""A release has one version, said in each place that names it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import release
from tests.distributions import PROJECTS, ROOT


def test_every_place_names_the_same_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", release.version())


def copied(folder: Path) -> Path:
    """Copy the files that name the version, and the changelogs."""
    soft = "testbed/softswitch"
    for name in (
        *("pyproject.toml", "CITATION.cff", "CHANGELOG.md", "docs/project/cite.md"),
        *(f"{soft}/pyproject.toml", f"{soft}/CHANGELOG.md"),
        f"{soft}/canary_softswitch/process/command_line.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


def test_a_release_that_is_not_ready_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "ROOT", copied(tmp_path))
    citation = tmp_path / "CITATION.cff"
    citation.write_text(re.sub(r"(?m)^version: .*", "version: 0.0.7", citation.read_text()))
    with pytest.raises(release.NotReady, match=r"different versions: .*0\.0\.7"):
        release.version()
    monkeypatch.setattr(release.subprocess, "run", lambda *_, **__: Changed(" M README.md\n"))
    with pytest.raises(release.NotReady, match=r"commit or remove(?s:.*)README\.md"):
        release.need_clean("0.0.7")
    monkeypatch.setattr(release.subprocess, "run", lambda *_, **__: Changed(""))
    for project in PROJECTS:
        with pytest.raises(release.NotReady, match=r"has no heading 0\.0\.7"):
            release.need_clean("0.0.7")
        changelog = tmp_path / project / "CHANGELOG.md"
        changelog.write_text(changelog.read_text().replace("## Unreleased", "## 0.0.7"))
    release.need_clean("0.0.7")


class Changed:
    """What git says of the clone."""

    def __init__(self, stdout: str) -> None:
        self.stdout = stdout


def test_the_checksums_are_those_of_the_files(tmp_path: Path) -> None:
    file = tmp_path / "a.whl"
    file.write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert release.sums([file]) == f"{digest}  a.whl\n"
