# SPDX-License-Identifier: Apache-2.0
"""Compiled libraries that a wheel holds: used without a compiler, and never in place of others."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from canary_softswitch import NoCompiler
from canary_softswitch.compiler import build

CODE = "int prebuilt(void) { return 7; }\n"
SIGNATURES = {"prebuilt": (ctypes.c_int,)}


def value(code: str, flags: tuple[str, ...] = ()) -> int:
    return build.load_library(code, SIGNATURES, flags).prebuilt()


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library of `CODE` in a folder of such libraries; its function returns 8."""
    other = build.load_library(CODE.replace("7", "8"), SIGNATURES)
    folder = tmp_path / "canary_prebuilt"
    folder.mkdir()
    shutil.copy(other._name, folder / build.prebuilt_name(CODE))
    monkeypatch.setattr(build, "PREBUILT", folder)
    monkeypatch.delenv("CC", raising=False)
    return folder


def no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the search for a compiler fail."""
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda _: None)


def test_it_is_used_without_a_compiler_and_without_a_cache(
    held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_compiler(held, monkeypatch)
    monkeypatch.setattr(build, "user_cache", lambda _: None)
    assert value(CODE) == 8
    kept = build.kept_library(CODE, SIGNATURES)
    assert kept is not None and kept.prebuilt() == 8


def test_another_text_or_another_flag_is_compiled(
    held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert value(CODE + "\n") == 7
    assert value(CODE, (build.QUICK,)) == 7
    assert value(CODE, ("-Wl,-z,now",)) == 8  # the linkers of two platforms take other flags
    no_compiler(held, monkeypatch)
    with pytest.raises(NoCompiler):
        value(CODE + "\n\n")


def test_a_compiler_that_is_asked_for_compiles(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.uses_prebuilt()
    monkeypatch.setenv("CC", shutil.which("cc") or "gcc")
    assert not build.uses_prebuilt() and value(CODE) == 7


def test_a_library_of_another_platform_is_said_in_a_line(held: Path) -> None:
    (held / build.prebuilt_name(CODE)).write_bytes(b"\xcf\xfa\xed\xfe")
    with pytest.raises(build.SoftSwitchError, match=r"cannot load .*\.so: "):
        value(CODE)
