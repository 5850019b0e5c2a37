# SPDX-License-Identifier: Apache-2.0
"""Commands of an ordinary user, and as sudo starts them: by root, with the user who called sudo in
the environment."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.rootless import user_outside
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
ROOTS = user_outside() == 0
UID = 12345 if ROOTS else os.getuid()
"""A user whom the machine does not know, with a group of the same number; without root, this
one."""


@dataclass(frozen=True)
class User:
    """An ordinary user: one whom the machine does not know, or who runs the tests.

    Attributes:
        folder: The user's.
        cache: Of what is compiled.
        through_sudo: Whether commands are started as sudo does, instead of by the user.
    """

    folder: Path
    cache: Path
    through_sudo: bool = False

    def command(self, *arguments: str, prelude: str = "") -> list[str]:
        """The words that run ``canary`` where the user can read this program and its Python."""
        python = [sys.executable, "-P", "-B", "-m", "scenarios", *arguments]
        if not ROOTS:
            return ["sh", "-ec", f'{prelude}exec "$@"', "sh", *python]
        if not self.through_sudo:
            python = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", *python]
        script = f'{_within_reach()}{prelude}exec "$@"'
        return ["unshare", "--mount", "sh", "-ec", script, "sh", *python]

    def environment(self, **more: str) -> dict[str, str]:
        """The user's environment, or root's with the user who called sudo."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "SUDO_"))}
        own = {"XDG_CACHE_HOME": str(self.cache), "XDG_RUNTIME_DIR": str(self.folder)}
        sudo = {"SUDO_UID": str(UID), "SUDO_GID": str(UID)} if self.through_sudo else {}
        return kept | own | sudo | more

    def start(
        self, *arguments: str, prelude: str = "", stdin: int | None = None, **more: str
    ) -> subprocess.Popen[str]:
        """Start a command of the user's, in a session of its own."""
        return subprocess.Popen(
            self.command(*arguments, prelude=prelude),
            cwd=self.folder,
            env=self.environment(**more),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **more: Any) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of such a command."""
        process = self.start(*arguments, **more)
        out, errors = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, errors

    def owners(self) -> set[int]:
        """Who owns what is in the user's folder and in the cache."""
        every = [*self.folder.rglob("*"), *self.cache.rglob("*")]
        return {owner for file in every for owner in (file.lstat().st_uid, file.lstat().st_gid)}


@pytest.fixture(scope="session")
def users_cache() -> Iterator[Path]:
    with _folder_of_user() as folder:
        yield folder


@pytest.fixture
def user(users_cache: Path) -> Iterator[User]:
    with _folder_of_user() as folder:
        yield User(folder, users_cache)


@pytest.fixture
def sudo(users_cache: Path) -> Iterator[User]:
    if not ROOTS:
        pytest.skip("only root can do what sudo does")
    with _folder_of_user() as folder:
        yield User(folder, users_cache, through_sudo=True)


class _folder_of_user(tempfile.TemporaryDirectory[str]):
    """A folder that the user has; pytest's own are for root alone."""

    def __enter__(self) -> Path:  # type: ignore[override]
        folder = Path(super().__enter__())
        if ROOTS:
            shutil.chown(folder, UID, UID)
        return folder


def _within_reach() -> str:
    """Shell commands that let everybody read this program and its Python, for their namespace of
    mounts alone: each folder on the way that others may not enter is replaced by one that has what
    is needed and nothing else."""
    needed = {Path(sys.executable).resolve().parents[1], Path(sys.prefix), ROOT}
    needed |= set(Path.home().glob(".cache"))  # what root has compiled
    closed: dict[Path, set[Path]] = {}
    for path in needed:
        for folder in reversed(path.parents):
            if not folder.stat().st_mode & 0o001:
                closed.setdefault(folder, set()).add(path)
                break
    lines = []
    for number, (folder, paths) in enumerate(closed.items()):
        kept = f"/tmp/.within-reach-{number}"
        lines += [f"mkdir -p {kept}", f"mount --bind {shlex.quote(str(folder))} {kept}"]
        lines += [f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(folder))}"]
        for path in sorted(paths):
            there = shlex.quote(str(path))
            own = shlex.quote(f"{kept}/{path.relative_to(folder)}")
            lines += [f"mkdir -p {there}", f"mount --bind {own} {there}"]
        lines += [f"umount -l {kept}"]
    return "".join(f"{line}\n" for line in lines)
