# SPDX-License-Identifier: Apache-2.0
"""Where compiled code is kept: in a folder of this user's, or nowhere."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from canary_softswitch.caches import owned, shared, user_cache


@pytest.mark.parametrize("home", [None, "", "here"])
def test_without_a_home_there_is_no_cache(
    monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.delenv("HOME")
    if home is not None:
        monkeypatch.setenv("HOME", home)
    assert user_cache("canary") is None


def test_the_cache_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/student")
    assert user_cache("canary") == Path("/home/student/.cache/canary")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert user_cache("canary") == Path("/scratch/canary")


@pytest.mark.parametrize(
    ("mode", "others"), [(0o755, False), (0o700, False), (0o757, True), (0o777, True)]
)
def test_who_can_write(tmp_path: Path, mode: int, others: bool) -> None:
    tmp_path.chmod(mode)
    assert owned(tmp_path.stat())
    assert shared(tmp_path.stat()) is others


def test_a_group_of_the_users_own_is_the_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    found = tmp_path.stat()
    assert shared(found) is (found.st_gid != found.st_uid)
    other = os.stat_result((found.st_mode, 1, 1, 1, found.st_uid, found.st_uid + 1, *found[6:]))
    assert shared(other)
