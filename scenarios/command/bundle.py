# SPDX-License-Identifier: Apache-2.0
"""Packs the project with all that its set-up fetches and compiles, for machines without network.

The file holds a commit of this clone, the wheels of the lock files for this system and Python, and
the compiled programs. The set-up of the unpacked folder (`scenarios.command.install`) takes the
wheels and asks no index; it takes a compiled program where the compiler and the processor are those
of this machine, and compiles it elsewhere.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from scenarios.command.install import LOCKS, UV_LOCK
from scenarios.command.warm_up import ROOT, bundled
from testbed.errors import UserError

LOCKED = ("users", "plot")
"""The installations that a bundle is for."""


class BundleError(UserError):
    """The project cannot be packed here."""


def make_bundle(folder: Path, say: Callable[[str], None]) -> Path:
    """Write the bundle of this system to a folder and return its path; ``say`` gets each step.

    Raises:
        BundleError: This is no clone, or something could not be fetched or compiled.
    """
    system = (
        f"{sys.platform}-{platform.machine()}-python{sys.version_info[0]}.{sys.version_info[1]}"
    )
    path = folder / f"canary-{system}.tar"
    with tempfile.TemporaryDirectory(dir=folder) as work:
        project = Path(work, "canary")
        say("the project")
        project.mkdir()
        _run("git", "-C", str(ROOT), "archive", "--output", f"{work}/head.tar", "HEAD")
        _run("tar", "-xf", f"{work}/head.tar", "-C", str(project))
        say("the wheels")
        locks = [LOCKS[kind] for kind in LOCKED] + [UV_LOCK]
        if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
            locks.append(LOCKS["compiler"])
        for lock in locks:
            _run(
                *(sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check"),
                *("--no-deps", "--require-hashes", "--only-binary=:all:"),
                *("--dest", str(bundled(project, "wheels")), "-r", str(project / lock)),
            )
        say("the compiled programs")
        cache = Path(work, "cache")
        _run(f"{sys.prefix}/bin/canary", "warm-up", XDG_CACHE_HOME=str(cache))
        compiled = bundled(project, "compiled")
        compiled.mkdir()
        for library in (cache / "canary-softswitch").glob("*.so"):
            shutil.copy(library, compiled)
        new = Path(work, "bundle.tar")
        with tarfile.open(new, "w") as file:
            file.add(project, "canary")
        new.replace(path)
    return path


def _run(*command: str, **environment: str) -> None:
    """Run a command.

    Raises:
        BundleError: It failed; the message is the last line that it printed.
    """
    try:
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BundleError(f"cannot run {command[0]}: {error.strerror}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        name = "git" if command[0] == "git" else " ".join(command[:4])
        raise BundleError(f"{name} failed: {lines[-1]}")
