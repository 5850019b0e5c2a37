# SPDX-License-Identifier: Apache-2.0
"""Set up ``.venv`` from a lock file: ``python3 -I scenarios/command/install.py users|developers``.

``make`` runs this with the system's Python before anything is installed, so it uses only the
standard library. A lock file is installed and never resolved: pip gets ``--no-deps`` and the hash
of every file, so that later changes of a package index have no effect.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

LOCKS = {"users": "requirements.lock", "developers": "requirements-dev.lock"}
"""The lock file of each kind of installation; the developers' holds all of the users'."""

GIGABYTES = {"users": 1.5, "developers": 2.2}
"""Free disk space in GB that an installation needs: ``.venv``, and pip's downloads."""

NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Variable of the environment, set in many container images, that forbids to keep bytecode."""

PIP = ("-qq", "--disable-pip-version-check", "--no-deps")


class InstallError(Exception):
    """The installation is not possible here; the message says why and what to do."""


def main(root: Path, kind: str) -> None:
    """Install the packages for ``kind`` (``users`` or ``developers``) into ``root/.venv``, unless
    they are there.

    Raises:
        InstallError: This machine lacks something, or pip could not install the lock file.
    """
    _become_the_user()
    _check(root, kind)
    with _alone(root):
        if not _is_installed(root, kind):
            _install(root, kind)
        for each in ("users", kind):
            (root / ".venv" / f".{each}").write_text(_key(root, each))


def _become_the_user() -> None:
    """Under sudo, become the user who called it, so that the installed files belong to that
    user."""
    user = int(os.environ.get("SUDO_UID", "0"))
    if os.geteuid() != 0 or user == 0:
        return
    os.setgroups([])
    os.setgid(int(os.environ["SUDO_GID"]))
    os.setuid(user)
    os.environ["HOME"] = pwd.getpwuid(user).pw_dir


def _check(root: Path, kind: str) -> None:
    """Check everything that the installation needs, before anything is downloaded."""
    lacks = []
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        lacks.append("Python's venv module is missing: apt install python3-venv")
    if not _compiles():
        lacks.append("there is no working C compiler: apt install gcc libc6-dev, or set CC")
    if not os.access(root, os.W_OK):
        lacks.append(f"{root} cannot be written: clone the project as the user who runs make")
    elif not (root / ".venv").exists():
        free = shutil.disk_usage(root).free / 1e9
        if free < GIGABYTES[kind]:
            lacks.append(f"{root} has {free:.1f} GB free: {GIGABYTES[kind]} GB are needed")
    if lacks:
        raise InstallError("\n".join(f"canary: {line}" for line in lacks))


def _compiles() -> bool:
    """Return True if the C compiler that the soft switch takes makes a library of a C file."""
    chosen = os.environ.get("CC")
    candidates = [shlex.split(chosen)] if chosen else [["cc"], ["gcc"], ["clang"]]
    source = "#include <stdint.h>\n#include <stdlib.h>\nint main(void) { return 0; }\n"
    with tempfile.TemporaryDirectory() as folder:
        for command in candidates:
            line = [*command, "-x", "c", "-", "-shared", "-fPIC", "-o", f"{folder}/out"]
            try:
                done = subprocess.run(line, input=source, text=True, capture_output=True)
            except OSError:
                continue
            if done.returncode == 0:
                return True
    return False


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Hold a lock on this folder during a block; other installations wait, and the lock ends with
    the process."""
    with open(root / ".venv.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another make is setting up .venv: waiting for it", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _key(root: Path, kind: str) -> str:
    """Return the hashes of the files that determine an installation."""
    files = (root / LOCKS[kind], root / "pyproject.toml")
    return "".join(hashlib.sha256(file.read_bytes()).hexdigest() + "\n" for file in files)


def _is_installed(root: Path, kind: str) -> bool:
    """Return True if ``.venv`` was set up from the present lock file and has pip."""
    stamp = root / ".venv" / f".{kind}"
    return stamp.is_file() and stamp.read_text() == _key(root, kind) and _has_pip(root / ".venv")


def _has_pip(venv: Path) -> bool:
    """Return True if the environment's Python starts and has pip; after an upgrade of the system's
    Python it does not."""
    python = venv / "bin" / "python"
    return python.exists() and _run([str(python), "-m", "pip", "-V"], capture_output=True) == 0


def _install(root: Path, kind: str) -> None:
    """Install the lock file over the content of ``.venv``; packages that users added stay."""
    venv = root / ".venv"
    python = str(venv / "bin" / "python")
    print("setting up .venv, once:", flush=True)
    kept = _has_pip(venv)
    if not kept:
        _step("a Python environment", [sys.executable, "-m", "venv", "--clear", str(venv)])
    lock = LOCKS[kind]
    _step(f"the packages of {lock} (about a minute)", install_locked(python, root / lock))
    if _run([python, "-m", "pip", "check", "-q"]) != 0:
        if not kept:
            raise InstallError(f"canary: the packages of {lock} conflict: see above")
        print("  packages that were added to .venv conflict: see above", flush=True)
    own = ["install", *PIP, "--no-build-isolation", "-e", str(root)]
    _step("canary itself", [python, "-m", "pip", *own])
    packages = [str(root / package) for package in ("testbed", "analysis", "scenarios")]
    _step("compiling once (some seconds)", [python, "-m", "compileall", "-q", *packages])
    _step(None, [str(venv / "bin" / "canary"), "warm-up"])


def install_locked(python: str, lock: Path) -> list[str]:
    """Return the command that installs exactly the files of a lock, and builds nothing.

    Wheels are not compiled to byte code, because most modules are never imported.
    """
    exact = ["--require-hashes", "--only-binary=:all:", "--no-compile", "-r", str(lock)]
    return [python, "-m", "pip", "install", *PIP, *exact]


def _step(title: str | None, command: Sequence[str]) -> None:
    """Print a title and run a command; raise `InstallError` if it fails."""
    if title is not None:
        print(f"  {title}", flush=True)
    if _run(command) != 0:
        raise InstallError(f"canary: this failed, see above: {shlex.join(command)}")


def _run(command: Sequence[str], capture_output: bool = False) -> int:
    """Run a command, in a folder from which Python imports nothing, and return its exit code.

    It writes the bytecode of what it imports, also where the caller's Python does not: without it
    every later command compiles pandas' sources again, which takes half its time.
    """
    writes = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    done = subprocess.run(command, cwd="/", env=writes, capture_output=capture_output)
    return done.returncode


if __name__ == "__main__":
    if sys.argv[1:] not in (["users"], ["developers"]):
        sys.exit("usage: install.py users|developers")
    try:
        main(Path(__file__).resolve().parents[2], sys.argv[1])
    except InstallError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
