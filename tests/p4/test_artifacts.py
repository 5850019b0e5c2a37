# SPDX-License-Identifier: Apache-2.0
"""The committed artifacts are what the committed sources compile to."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.control.routings import PROGRAMS
from testbed.measurements.programs import switch_program
from testbed.measurements.registry import ON_REQUEST, find_measurement
from tests.patience import PATIENCE_S
from tests.programs import needs

from .conftest import P4

BUILD = P4 / "build"
MEASURED = [each.program.parent for each in ON_REQUEST if each.program is not None]
SPRAY_CHECK = find_measurement("spray_check")
ROUTINGS = PROGRAMS["spray"].parent


def recorded(build: Path = BUILD) -> dict[str, str]:
    """Source file to hash, as the build wrote them down."""
    lines = (build / "sources.sha256").read_text().splitlines()
    return {name.lstrip("*"): digest for digest, name in (line.split() for line in lines)}


def sources() -> dict[str, str]:
    """Source file to hash, as they are."""
    other = (BUILD, P4 / "tofino", P4 / "routing")
    files = [p for p in P4.rglob("*.p4") if not any(p.is_relative_to(folder) for folder in other)]
    return {
        str(p.relative_to(P4)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(files)
    }


def copy_of_sources(to: Path) -> Path:
    folder = to / "p4"
    shutil.copytree(P4, folder, ignore=shutil.ignore_patterns("tofino"))
    return folder


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=PATIENCE_S
    )


def test_build_was_made_from_these_sources() -> None:
    assert recorded() == sources(), "p4/build is older than the sources: run make -C p4"


def ids(build: Path) -> str:
    return build.parent.name


@pytest.mark.parametrize("build", MEASURED, ids=ids)
def test_build_of_a_measurement_was_made_from_these_sources(build: Path) -> None:
    folder = build.parent
    own = {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in folder.rglob("*.p4")
    }
    hint = f"{build} is older than the sources: run make -C p4"
    assert recorded(build) == sources() | own, hint
    if build == ROUTINGS:
        assert {p.stem for p in build.glob("*.json")} == PROGRAMS.keys()
        assert all(switch_program([SPRAY_CHECK], name) == path for name, path in PROGRAMS.items())
    else:
        assert switch_program([find_measurement(ids(build))]) == build / "canary.json"
        assert [p.name for p in build.glob("*.json")] == ["canary.json"]


@needs("p4c")
@pytest.mark.parametrize("build", MEASURED, ids=ids)
def test_compiling_a_measurement_again_gives_the_committed_artifacts(
    build: Path, tmp_path: Path
) -> None:
    folder, own = copy_of_sources(tmp_path), tmp_path / "own"
    target = f"{own}/build/sources.sha256"
    if build == ROUTINGS:
        own, target = folder / "routing", "routing/build/sources.sha256"
        shutil.rmtree(own / "build")
    else:
        shutil.copytree(
            build.parent, own, ignore=shutil.ignore_patterns("build", "*.py", "__pycache__")
        )
    result = make(folder, target)
    assert result.returncode == 0, result.stderr
    new = own / "build"
    for program in build.glob("*.json"):
        assert without_paths(json.loads((new / program.name).read_text())) == without_paths(
            json.loads(program.read_text())
        )
    for text in (*build.glob("*.txtpb"), build / "sources.sha256"):
        assert statements(new / text.name) == statements(text)
    assert sorted(p.name for p in new.iterdir()) == sorted(p.name for p in build.iterdir())


def without_paths(value: Any) -> Any:
    """BMv2 JSON without what depends on where it was compiled."""
    if isinstance(value, dict):
        return {
            k: without_paths(v) for k, v in value.items() if k not in ("source_info", "program")
        }
    return [without_paths(v) for v in value] if isinstance(value, list) else value


def statements(p4info: Path) -> list[str]:
    """Lines of a text protobuf without layout and comments."""
    lines = (re.sub(r"\s+", " ", line).strip() for line in p4info.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


@needs("p4c")
def test_compiling_again_gives_the_committed_artifacts(tmp_path: Path) -> None:
    folder = copy_of_sources(tmp_path)
    shutil.rmtree(folder / "build")
    result = make(folder)
    assert result.returncode == 0, result.stderr
    old, new = BUILD, folder / "build"
    assert without_paths(json.loads((new / "canary.json").read_text())) == without_paths(
        json.loads((old / "canary.json").read_text())
    )
    assert statements(new / "canary.p4info.txtpb") == statements(old / "canary.p4info.txtpb")
    assert (new / "sources.sha256").read_text() == (old / "sources.sha256").read_text()
    assert sorted(p.name for p in new.iterdir()) == sorted(p.name for p in old.iterdir())


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not on the PATH")
def test_without_the_compiler_make_says_in_one_line_what_to_do(tmp_path: Path) -> None:
    folder = copy_of_sources(tmp_path)
    for source in folder.rglob("*.p4"):
        source.touch()
    before = (folder / "build" / "canary.json").read_bytes()
    result = make(folder, "P4C=nonexistent")
    assert result.returncode == 2
    errors = [line for line in result.stdout.splitlines() if not line.startswith("make")]
    assert len(errors) == 1
    assert "install p4c" in errors[0]
    assert "nonexistent" in errors[0], "the message names another program than the missing one"
    assert (folder / "build" / "canary.json").read_bytes() == before


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not on the PATH")
def test_without_the_compiler_make_is_content_when_nothing_changed(tmp_path: Path) -> None:
    folder = copy_of_sources(tmp_path)
    for source in folder.rglob("*.p4"):
        source.touch()
    for made in folder.rglob("sources.sha256"):
        made.touch()
    assert make(folder, "P4C=nonexistent").returncode == 0
