# SPDX-License-Identifier: Apache-2.0
"""Compiled code is looked at before it is loaded: whose it is, and whether it is what was made."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canary_softswitch import CompileError, NoCompiler, SoftSwitchError
from canary_softswitch.compiler import build

CODE = "int seven(void) { return 7; }\n"
LOAD = f"""
import ctypes
from canary_softswitch.compiler.build import load_library
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
    path, opened = build._build(CODE, ())
    opened.close()
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


# ---- what is checked is what is loaded -----------------------------------------------------------


def test_parents_of_the_cache_are_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / ".cache"))
    before = os.umask(0)
    try:
        assert load() == 7
    finally:
        os.umask(before)
    made = [tmp_path / "home", tmp_path / "home/.cache", tmp_path / "home/.cache/canary-softswitch"]
    assert [place.stat().st_mode & 0o777 for place in made] == [0o700] * 3


def test_an_ancestor_that_others_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared" / "mine"))
    assert load() == 7
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(SoftSwitchError, match=r"shared can be written by others.*XDG_CACHE_HOME"):
        load()
    (tmp_path / "shared").chmod(0o1777)  # as /tmp: others cannot exchange what is there
    assert load() == 7


@pytest.mark.parametrize("tries", [50, pytest.param(1000, marks=pytest.mark.nightly)])
def test_a_library_that_is_exchanged_between_the_check_and_the_loading(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    """Someone who may exchange the cache's folder does so at the worst moment, each time."""
    path, opened = build._build(CODE, ())
    opened.close()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    shutil.copy(path, theirs / path.name)
    evil, opened = build._build(CODE.replace("7", "666"), ())
    opened.close()
    really, swaps = ctypes.CDLL, 0

    def swapped(name: str | None, *arguments: Any, **options: Any) -> ctypes.CDLL:
        nonlocal swaps
        swaps += 1
        shutil.copy(evil, theirs / path.name)
        cache.rename(tmp_path / "aside")
        theirs.rename(cache)
        try:
            return really(name, *arguments, **options)
        finally:
            cache.rename(theirs)
            (tmp_path / "aside").rename(cache)

    monkeypatch.setattr("ctypes.CDLL", swapped)
    for _ in range(tries):
        build._loaded.clear()  # as in a process that begins
        assert load() == 7
    assert swaps >= tries


def test_a_loaded_library_leaves_no_file_open_to_warn_of(cache: Path) -> None:
    """When the interpreter ends it warns of file objects, not of descriptors."""
    words = [sys.executable, "-W", "always::ResourceWarning", "-c", LOAD]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("7\n", "")
