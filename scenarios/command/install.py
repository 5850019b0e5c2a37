# SPDX-License-Identifier: Apache-2.0
"""Set up ``.venv`` from a lock file: ``python3 -I scenarios/command/install.py KIND``.

``make`` runs this with the system's Python before anything is installed, so it uses only the
standard library. A lock file is installed and never resolved: the installer gets ``--no-deps`` and
the hash of every file, so that later changes of a package index have no effect.

The installer is uv, which takes a tenth of pip's time: the one on the PATH, or one that pip fetches
for this installation alone, with the package indexes that pip is configured for. If uv cannot be
had or fails, pip installs.
"""

from __future__ import annotations

import ast
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

LOCKS = {
    "users": "requirements.lock",
    "developers": "requirements-dev.lock",
    "plot": "requirements-plot.lock",
    "cluster": "requirements-cluster.lock",
    "compiler": "requirements-compiler.lock",
}
"""The lock file of each kind of installation. The developers' holds all others; those of the extras
hold what the users' lacks."""

EXTRAS = {
    "plot": "Matplotlib, which draws (once)",
    "cluster": "Dask, for CLUSTER= (once)",
    "compiler": "no C compiler: takes zig from PyPI, once (95 MB, 420 MB unpacked), which "
    "apt install gcc libc6-dev would save",
}
"""For each extra, the line that says that it is installed."""

UV_LOCK = "requirements-uv.lock"

GIGABYTES = {"users": 1.0, "developers": 2.2}
"""Free disk space in GB that an installation needs: ``.venv``, and the installer's downloads."""

COMPILERS = ("cc", "gcc", "clang")
"""What the soft switch looks for on the PATH."""

NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Variable of the environment, set in many container images, that forbids to keep bytecode."""

PIP = ("-qq", "--disable-pip-version-check", "--no-deps")
EXACT = ("--require-hashes", "--only-binary=:all:")

UV_VARIABLES = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
"""The variable with which uv is told what pip's configuration says."""


class InstallError(Exception):
    """The installation is not possible here; the message says why and what to do."""


def main(root: Path, kind: str) -> None:
    """Install the packages for a kind of `LOCKS` into ``root/.venv``, unless they are there.

    Raises:
        InstallError: This machine lacks something, or the lock file could not be installed.
    """
    _become_the_user()
    _take_bundled(root)
    compiles = kind in EXTRAS or _check(root, kind)
    with _alone(root):
        if not _is_installed(root, kind):
            if kind in EXTRAS:
                _install_extra(root, kind)
            else:
                _install(root, kind, compiles)
        # A stamp that is older than a file that was only touched is written again.
        for each in LOCKS if kind == "developers" else [kind]:
            _stamp(root, each)


def add_extra(root: Path, extra: str) -> None:
    """Install the packages of an extra into ``root/.venv``, which is set up, unless they are there.

    Raises:
        InstallError: They could not be installed.
    """
    _take_bundled(root)
    with _alone(root):
        if not _is_installed(root, extra):
            _install_extra(root, extra)


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


def _take_bundled(root: Path) -> None:
    """Have installers take wheels from a bundle's folder alone, where the project came as one
    (`scenarios.command.bundle`)."""
    wheels = root / "bundle" / "wheels"
    if wheels.is_dir():
        os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=wheels.as_uri())


def _check(root: Path, kind: str) -> bool:
    """Check everything that the installation needs, before anything is downloaded. Return False if
    this machine has no C compiler."""
    lacks = []
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        lacks.append("Python's venv module is missing: apt install python3-venv")
    compilers = _compilers()
    compiles = any(_compiles(command) for command in compilers)
    if compilers and not compiles:
        lacks.append("there is no working C compiler: apt install gcc libc6-dev, or set CC")
    if not os.access(root, os.W_OK):
        lacks.append(f"{root} cannot be written: clone the project as the user who runs make")
    elif not (root / ".venv").exists():
        free = shutil.disk_usage(root).free / 1e9
        if free < GIGABYTES[kind]:
            lacks.append(f"{root} has {free:.1f} GB free: {GIGABYTES[kind]} GB are needed")
    if lacks:
        raise InstallError("\n".join(f"canary: {line}" for line in lacks))
    return compiles


def _compilers() -> list[list[str]]:
    """Return the C compilers that the soft switch would take: $CC, or those on the PATH."""
    if chosen := os.environ.get("CC"):
        return [shlex.split(chosen)]
    return [[name] for name in COMPILERS if shutil.which(name)]


def _compiles(command: Sequence[str]) -> bool:
    """Return True if a C compiler makes a library of a C file."""
    source = "#include <stdint.h>\n#include <stdlib.h>\nint main(void) { return 0; }\n"
    with tempfile.TemporaryDirectory() as folder:
        line = [*command, "-x", "c", "-", "-shared", "-fPIC", "-o", f"{folder}/out"]
        try:
            done = subprocess.run(line, input=source, text=True, capture_output=True)
        except OSError:
            return False
        return done.returncode == 0


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
    files = (root / LOCKS[kind], *(folder / "pyproject.toml" for folder in _own(root)))
    return "".join(hashlib.sha256(file.read_bytes()).hexdigest() + "\n" for file in files)


def _own(root: Path) -> tuple[Path, Path]:
    """Return the folders of this project's two distributions: canary and the soft switch."""
    return root, root / "testbed" / "softswitch"


def _is_installed(root: Path, kind: str) -> bool:
    """Return True if ``.venv`` was set up from the present lock file and has pip."""
    stamp = root / ".venv" / f".{kind}"
    return stamp.is_file() and stamp.read_text() == _key(root, kind) and _has_pip(root / ".venv")


def _has_pip(venv: Path) -> bool:
    """Return True if the environment's Python starts and has pip; after an upgrade of the system's
    Python it does not."""
    python = venv / "bin" / "python"
    return python.exists() and _run([str(python), "-m", "pip", "-V"], capture_output=True) == 0


def _stamp(root: Path, kind: str) -> None:
    """Note that ``.venv`` was set up from the present lock file."""
    (root / ".venv" / f".{kind}").write_text(_key(root, kind))


def _install(root: Path, kind: str, compiles: bool) -> None:
    """Install the lock file over the content of ``.venv``; packages that users added stay."""
    venv = root / ".venv"
    python = str(venv / "bin" / "python")
    print("setting up .venv, once:", flush=True)
    kept = _has_pip(venv)
    if not kept:
        _step("a Python environment", [sys.executable, "-m", "venv", "--clear", str(venv)])
    lock = root / LOCKS[kind]
    own = ["--no-build-isolation"]
    for folder in _own(root):
        own += ["-e", str(folder)]
    with _uv(root, python) as uv:
        print(f"  the packages of {lock.name}", flush=True)
        if not _installed_by(uv, python, [*EXACT, "-r", str(lock)]):
            _step(None, install_locked(python, lock))
        print("  canary itself", flush=True)
        if not _installed_by(uv, python, own):
            _step(None, [python, "-m", "pip", "install", *PIP, *own])
    if kept and _run([python, "-m", "pip", "check", "-q"]) != 0:
        print("  packages that were added to .venv conflict: see above", flush=True)
    if not compiles and not _is_installed(root, "compiler"):
        _install_extra(root, "compiler", "  ")
        _stamp(root, "compiler")
    packages = [str(root / package) for package in ("testbed", "analysis", "scenarios")]
    _step("the compiled parts", [python, "-m", "compileall", "-q", *packages])
    _step(None, [str(venv / "bin" / "canary"), "warm-up"])


def _install_extra(root: Path, extra: str, indent: str = "") -> None:
    """Print that an extra is installed, and install it."""
    python = str(root / ".venv" / "bin" / "python")
    print(f"{indent}{EXTRAS[extra]}", flush=True)
    lock = root / LOCKS[extra]
    if not _installed_by(shutil.which("uv"), python, [*EXACT, "-r", str(lock)]):
        _step(None, install_locked(python, lock))


def install_locked(python: str, lock: Path) -> list[str]:
    """Return pip's command that installs exactly the files of a lock, and builds nothing.

    Wheels are not compiled to byte code, because most modules are never imported.
    """
    return [python, "-m", "pip", "install", *PIP, *EXACT, "--no-compile", "-r", str(lock)]


@contextmanager
def _uv(root: Path, python: str) -> Iterator[str | None]:
    """Yield the path of uv for a block: the one on the PATH, or one that pip installs until the
    block ends; None if pip cannot."""
    if found := shutil.which("uv"):
        yield found
        return
    with tempfile.TemporaryDirectory(dir=root / ".venv") as folder:
        command = [*install_locked(python, root / UV_LOCK), "--no-cache-dir", "--target", folder]
        failed = _run(command, capture_output=True)
        yield None if failed else f"{folder}/bin/uv"


def _installed_by(uv: str | None, python: str, arguments: Sequence[str]) -> bool:
    """Install with uv; return False if there is none or it failed, after which pip says why."""
    if uv is None:
        return False
    command = [uv, "pip", "install", "-q", "--python", python, "--no-deps", *arguments]
    return _run(command, capture_output=True, environment=_uv_environment(python)) == 0


def _uv_environment(python: str) -> dict[str, str]:
    """Return the variables that give uv pip's configuration; those of the user come first.

    uv may take a file from any of the indexes, because the lock has its hash.
    """
    listed = subprocess.run(
        [python, "-m", "pip", "config", "list"], capture_output=True, text=True, cwd="/"
    )
    made = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for section in ("global.", "install.", ":env:."):
        for line in listed.stdout.splitlines():
            name, _, value = line.removeprefix(section).partition("=")
            if line.startswith(section) and name in UV_VARIABLES:
                made[UV_VARIABLES[name]] = ast.literal_eval(value)
    if "UV_FIND_LINKS" in made:  # pip has blanks for commas, and takes folders that are not there
        links = [x for x in made["UV_FIND_LINKS"].split() if "://" in x or os.path.isdir(x)]
        made["UV_FIND_LINKS"] = ",".join(links)
    return {name: value for name, value in made.items() if name not in os.environ}


def _step(title: str | None, command: Sequence[str]) -> None:
    """Print a title and run a command; raise `InstallError` if it fails."""
    if title is not None:
        print(f"  {title}", flush=True)
    if _run(command) != 0:
        raise InstallError(f"canary: this failed, see above: {shlex.join(command)}")


def _run(
    command: Sequence[str], capture_output: bool = False, environment: Mapping[str, str] = {}
) -> int:
    """Run a command, in a folder from which Python imports nothing, and return its exit code.

    It writes the bytecode of what it imports, also where the caller's Python does not: without it
    every later command compiles pandas' sources again, which takes half its time.
    """
    writes = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    writes.update(environment)
    done = subprocess.run(command, cwd="/", env=writes, capture_output=capture_output)
    return done.returncode


if __name__ == "__main__":
    if sys.argv[1:] not in [[kind] for kind in LOCKS]:
        sys.exit(f"usage: install.py {'|'.join(LOCKS)}")
    try:
        main(Path(__file__).resolve().parents[2], sys.argv[1])
    except InstallError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
