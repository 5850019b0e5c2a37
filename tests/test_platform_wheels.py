# SPDX-License-Identifier: Apache-2.0
"""Wheels for one platform: their files, and that what is installed from them compiles nothing."""

from __future__ import annotations

import base64
import csv
import hashlib
import zipfile
from pathlib import Path

import pytest

from canary_softswitch.compiler import build
from tests import release
from tests.distributions import ROOT, environment
from tests.distributions import build as build_pure
from tests.platform_wheels import PACKAGES, PLATFORMS, for_platform, platform_wheels, texts
from tests.wheels import make_wheel

HERE = [each for each in PLATFORMS if each.folder == build.PREBUILT.name]
LIBRARY = f"canary_prebuilt/{build.PREBUILT.name}/abc.so"


def test_it_holds_the_files_of_pure_python_and_the_libraries(tmp_path: Path) -> None:
    pure = make_wheel(tmp_path, "canary-x", "1.0", script="canary-x")
    path = for_platform(pure, "manylinux_2_28_x86_64", {LIBRARY: b"\x7fELF"})
    assert path.name == "canary_x-1.0-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(pure) as old, zipfile.ZipFile(path) as new:
        assert {*new.namelist()} == {*old.namelist(), LIBRARY}
        kind = new.read("canary_x-1.0.dist-info/WHEEL").decode()
        assert "Root-Is-Purelib: false\nTag: py3-none-manylinux_2_28_x86_64\n" in kind
        [script] = [each for each in new.infolist() if "/scripts/" in each.filename]
        assert script.external_attr >> 16 & 0o111, "the command can be run"
        [*rows, last] = csv.reader(new.read("canary_x-1.0.dist-info/RECORD").decode().splitlines())
        assert last == ["canary_x-1.0.dist-info/RECORD", "", ""]
        assert {row[0] for row in (*rows, last)} == {*new.namelist()}
        for name, digest, size in rows:
            wanted = base64.urlsafe_b64encode(hashlib.sha256(new.read(name)).digest()).decode()
            assert (digest, size) == (f"sha256={wanted.rstrip('=')}", str(len(new.read(name))))


@pytest.mark.skipif(not HERE, reason="no wheels are made for this platform")
def test_pip_takes_it_before_that_of_pure_python(tmp_path: Path) -> None:
    for name in ("canary-testbed", "canary-softswitch"):
        for_platform(make_wheel(tmp_path, name, "1.0"), HERE[0].tag, {LIBRARY: b"\x7fELF"})
    python = environment(tmp_path, tmp_path / "venv")
    [held] = (tmp_path / "venv").glob(f"lib/python*/site-packages/{LIBRARY}")
    assert held.read_bytes() == b"\x7fELF" and python.is_file()


def test_each_text_has_a_name_of_its_own() -> None:
    every = [text for package in PACKAGES for text in texts(package)]
    assert len({build.prebuilt_name(text.code, text.flags) for text in every}) == len(every) > 40
    assert {text.name for text in every if text.linux} == {"ports", "hosts"}


def test_the_soft_switch_has_no_library_for_macos() -> None:
    assert all(text.linux for text in texts("canary_softswitch"))
    assert {each.linux for each in PLATFORMS} == {True, False}


@pytest.mark.nightly
@pytest.mark.skipif(not HERE, reason="no wheels are made for this platform")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="distributions are made of what git has")
def test_a_run_compiles_nothing_and_is_that_of_pure_python(tmp_path: Path) -> None:
    made = tmp_path / "made"
    build_pure(made)
    platform_wheels(made, HERE)
    release.need_same_run(environment(made, tmp_path / "venv"), [*made.iterdir()], tmp_path)
