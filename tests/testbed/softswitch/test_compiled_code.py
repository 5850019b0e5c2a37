# SPDX-License-Identifier: Apache-2.0
"""Compiled code is looked at before it is loaded: whose it is, and whether it is what was made."""

from __future__ import annotations

import ctypes
import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.softswitch import CompileError, NoCompiler, SoftSwitchError
from testbed.softswitch.compiler import build

CODE = "int seven(void) { return 7; }\n"
LOAD = f"""
import ctypes
from testbed.softswitch.compiler.build import load_library
print(load_library({CODE!r}, {{"seven": (ctypes.c_int,)}}).seven())
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "canary-softswitch"


def load() -> int:
    return build.load_library(CODE, {"seven": (ctypes.c_int,)}).seven()


def cut(library: Path) -> None:
    os.truncate(library, library.stat().st_size // 2)


def flip(library: Path) -> None:
    data = bytearray(library.read_bytes())
    data[len(data) // 2 :] = bytes(byte ^ 0x55 for byte in data[len(data) // 2 :])
    library.write_bytes(data)


def exchange(library: Path) -> None:
    library.write_bytes(b"")


def others(library: Path) -> None:
    library.chmod(0o777)


def no_hash(library: Path) -> None:
    library.with_suffix(".sha256").unlink()


@pytest.mark.parametrize("damage", [cut, flip, exchange, others, no_hash])
def test_what_is_not_what_was_compiled_is_compiled_again(
    cache: Path, damage: Callable[[Path], None]
) -> None:
    path = build._build(CODE, ())
    made, first = path.read_bytes(), path.stat().st_ino
    damage(path)
    done = subprocess.run(  # a damaged library ended the process that loaded it
        [sys.executable, "-c", LOAD], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
    assert path.read_bytes() == made and path.stat().st_ino != first
    second = path.stat().st_ino
    assert load() == 7
    assert path.stat().st_ino == second


def test_a_folder_that_others_can_write_is_refused(cache: Path) -> None:
    assert load() == 7
    cache.chmod(0o777)
    with pytest.raises(SoftSwitchError, match=r"can be written by others.*remove it") as raised:
        load()
    assert str(cache) in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_folder_of_another_user_is_refused(cache: Path) -> None:
    cache.mkdir()
    os.chown(cache, 12345, 12345)
    with pytest.raises(SoftSwitchError, match=r"another user.*XDG_CACHE_HOME"):
        load()


KILLED = {
    "kill -9 $$": "was killed (Killed)",
    "kill -11 $$": "was killed (Segmentation fault)",
    "echo 'gcc: fatal error: Killed signal terminated program cc1' >&2; exit 1": "killed (Killed)",
}


@pytest.mark.parametrize("end", KILLED)
def test_a_compiler_that_was_killed_says_so(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    script = tmp_path / "cc"
    script.write_text(f"#!/bin/sh\n{end}\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    with pytest.raises(CompileError) as raised:
        load()
    assert KILLED[end] in str(raised.value) and "\n" not in str(raised.value)
    assert not list(cache.glob("*.so"))


def test_a_compiler_that_is_no_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", '"')
    with pytest.raises(NoCompiler, match='CC=" is not a command'):
        build.compiler()


@pytest.mark.parametrize("home", [None, "", "here"])
def test_without_a_home_nothing_is_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.delenv("HOME")
    if home is not None:
        monkeypatch.setenv("HOME", home)
    with pytest.raises(SoftSwitchError, match="set HOME, or XDG_CACHE_HOME"):
        load()
    assert not list(tmp_path.iterdir())


def test_the_compiler_is_not_asked_again_what_it_is(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, calls = tmp_path / "cc", tmp_path / "calls"
    script.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec gcc "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))

    def started() -> int:
        """How often the compiler has been started, after a process more that needs a library."""
        build.identity.cache_clear()  # a process knows it from then on
        assert load() == 7
        return len(calls.read_text().splitlines())

    assert [started(), started()] == [2, 2]
    script.write_text(script.read_text() + "# a newer one\n")
    assert [started(), started()] == [3, 3]
    (kept,) = cache.glob("*.so")
    assert kept.is_file()
    for file in cache.glob("*.compiler"):
        file.write_text("")
    assert [started(), started()] == [4, 4]
