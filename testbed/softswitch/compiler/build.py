# SPDX-License-Identifier: Apache-2.0
"""Compiles C text into a cached shared library and loads it with ctypes; keeps the cache."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from testbed.caches import owned, shared, user_cache
from testbed.softswitch.errors import CompileError, NoCompiler, SoftSwitchError

C_SOURCES = Path(__file__).parent.parent / "runtime" / "c"
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fno-strict-aliasing")
NATIVE = ("-march=native", "-mcpu=native")
"""Flags for all instructions of this processor; some compilers for ARM know only the second."""
CANDIDATES = ("cc", "gcc", "clang")


def compiler() -> list[str]:
    """Return the C compiler command: $CC, else the first of cc, gcc, clang on PATH."""
    try:
        chosen = shlex.split(os.environ.get("CC", ""))
    except ValueError as error:  # a quote that does not end
        raise NoCompiler(
            f"CC={os.environ['CC']} is not a command: {str(error).lower()}; use CC=gcc"
        ) from None
    wanted = [chosen[0]] if chosen else list(CANDIDATES)
    for name in wanted:
        found = shutil.which(name)
        if found:
            return [found, *chosen[1:]]
    raise NoCompiler(
        f"no C compiler: looked for {', '.join(wanted)} on PATH; install gcc "
        "(Debian: apt install gcc libc6-dev) or set CC"
    )


@lru_cache(maxsize=8)
def identity(command: tuple[str, ...], folder: Path) -> str:
    """Return what a cached library depends on: the flag that makes the compiler use all of this
    processor, and a hash of the compiler's version and target CPU; "" if it does not know the CPU.

    It is cached in ``folder`` for this compiler file and this processor, because running the
    compiler takes a tenth of the time in which a switch starts.
    """
    kept = _identity_file(command, folder)
    known = ""
    with suppress(OSError):
        known = kept.read_text() if kept else ""
    if known:
        return known
    of_command = _asked_identity(command)
    if kept and of_command:
        with suppress(OSError), tempfile.TemporaryDirectory(dir=folder) as work:
            new = Path(work) / kept.name
            new.write_text(of_command)
            os.replace(new, kept)
    return of_command


def _identity_file(command: tuple[str, ...], folder: Path) -> Path | None:
    """Return the file with a compiler's identity; None if the processor cannot be determined."""
    try:
        found = os.stat(command[0])
        processor = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return None
    kinds = re.findall(
        r"^(?:vendor_id|cpu family|model|flags|CPU .*|Features)\s*:.*", processor, re.M
    )
    compiler = (command, os.path.realpath(command[0]), found.st_size, found.st_mtime_ns, kinds)
    name = hashlib.sha256(repr((NATIVE, compiler)).encode()).hexdigest()[:40]
    return folder / f"{name}.compiler" if kinds else None


def _asked_identity(command: tuple[str, ...]) -> str:
    """Return the first flag of `NATIVE` that a compiler knows, and the hash of the macros that it
    then predefines; "" if it knows none."""
    for flag in NATIVE:
        try:
            run = subprocess.run(
                [*command, flag, "-E", "-dM", "-x", "c", os.devnull],
                capture_output=True,
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as e:
            raise NoCompiler(f"the C compiler {command[0]} does not run: {e}") from None
        if not run.returncode:
            return f"{flag} {hashlib.sha256(run.stdout).hexdigest()}"
    return ""


def cache_dir() -> Path:
    """Return the directory of compiled programs.

    Raises:
        SoftSwitchError: This user has no home directory.
    """
    folder = user_cache("canary-softswitch")
    if folder is None:
        raise SoftSwitchError(
            "there is no folder for compiled programs: set HOME, or XDG_CACHE_HOME, to a folder of "
            "yours"
        )
    return folder


def _need_own(folder: Path) -> None:
    """Raise SoftSwitchError if other users could put code into a folder."""
    found = folder.stat()
    if not owned(found):
        raise SoftSwitchError(
            f"{folder} belongs to another user, who could put code there: set XDG_CACHE_HOME to a "
            "folder of yours"
        )
    if shared(found):
        raise SoftSwitchError(
            f"{folder} can be written by others, who could put code there: remove it (it is made "
            "again) or set XDG_CACHE_HOME"
        )


def _intact(file: Path) -> bytes | None:
    """Return the content of a cache file, or None if it is missing, damaged or not trustworthy.

    A damaged library would crash this process when it is loaded or called.
    """
    try:
        with file.open("rb") as opened:
            found = os.fstat(opened.fileno())
            data = opened.read()
        wanted = file.with_suffix(".sha256").read_bytes()
    except FileNotFoundError:
        return None
    ours = owned(found) and not shared(found)
    return data if ours and wanted == hashlib.sha256(data).hexdigest().encode() else None


def _put(new: Path, path: Path) -> None:
    """Move a new file to its place in the cache, with its hash beside it."""
    digest = new.with_suffix(".sha256")
    digest.write_text(hashlib.sha256(new.read_bytes()).hexdigest())
    os.replace(new, path)
    os.replace(digest, path.with_suffix(".sha256"))


def kept(name: str) -> bytes | None:
    """Return the content of the cache file ``name``, None if there is none that can be trusted."""
    try:
        folder = cache_dir()
        _need_own(folder)
        return _intact(folder / name)
    except (OSError, SoftSwitchError):
        return None


def keep(name: str, data: bytes) -> None:
    """Write ``data`` to the cache file ``name``, if there is a cache."""
    with suppress(OSError, SoftSwitchError):
        folder = _made_cache()
        with tempfile.TemporaryDirectory(dir=folder) as work:
            new = Path(work) / name
            new.write_bytes(data)
            new.chmod(0o644)
            _put(new, folder / name)


def _made_cache() -> Path:
    """Return the cache folder, created if need be.

    Raises:
        SoftSwitchError: Other users could put code there.
    """
    folder = cache_dir()
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    _need_own(folder)
    return folder


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold a lock within the block, so that one process at a time compiles a program."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_c(path: Path) -> str:
    """Return the text of a C file in which each ``#include "name"`` is replaced by that file.

    A file is searched beside the including one, then among the soft switch's own (``abi.h``), and
    included once. So the text alone determines what is compiled.
    """
    return _expanded(path, set())


def _expanded(path: Path, seen: set[Path]) -> str:
    def included(match: re.Match[str]) -> str:
        """Return the text that replaces an ``#include``: the expanded file, "" the second time."""
        near = path.parent / match[1]
        wanted = near if near.exists() else C_SOURCES / match[1]
        if wanted in seen:
            return ""
        return _expanded(wanted, seen)

    seen.add(path)
    return re.sub(r'^#include "([^"]+)"$', included, path.read_text(encoding="utf-8"), flags=re.M)


def load_library(
    code: str, signatures: Mapping[str, Sequence[Any]], flags: Sequence[str] = ()
) -> ctypes.CDLL:
    """Compile a C translation unit, unless it is in the cache, and return the loaded library.

    Args:
        code: The whole text; ``read_c`` makes it of files.
        signatures: For each function to call, its result type (None: void) and then the types
            of its arguments, as ctypes has them.
        flags: Flags of the compiler beyond ``FLAGS``, such as ``-pthread``.

    Raises:
        NoCompiler: There is no C compiler.
        CompileError: The compiler refused the code.
        SoftSwitchError: The cache cannot be written, or others can write it, or the library cannot
            be loaded.
    """
    path = _build(code, tuple(flags))
    try:
        library = ctypes.CDLL(str(path))
    except OSError as e:
        raise SoftSwitchError(f"cannot load {path}: {e}") from None
    for name, (result, *arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _build(code: str, extra_flags: tuple[str, ...]) -> Path:
    """Return the path of the shared library of ``code``, compiled unless it is in the cache."""
    command = compiler()
    folder = cache_dir()
    try:
        _made_cache()
        target = identity(tuple(command), folder)
        flags = (*FLAGS, *target.split()[:1], *extra_flags)
        digest = hashlib.sha256()
        for part in (code, *command, target, *flags):
            digest.update(part.encode() + b"\0")
        path = folder / f"{digest.hexdigest()[:40]}.so"
        if _intact(path) is not None:
            return path
        with _only_one(path), tempfile.TemporaryDirectory(dir=path.parent) as work:
            if _intact(path) is not None:  # another process was faster
                return path
            source, library = Path(work) / "program.c", Path(work) / "program.so"
            source.write_text(code, encoding="utf-8")
            run = subprocess.run(
                [*command, *flags, "-o", str(library), str(source)],
                env={**os.environ, "LC_ALL": "C"},
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            if run.returncode:
                raise CompileError(_why(command[0], run))
            library.chmod(0o755)
            _put(library, path)
    except OSError as e:
        raise SoftSwitchError(f"cannot compile into {folder}: {e}") from None
    return path


def _why(compiler_name: str, run: subprocess.CompletedProcess[str]) -> str:
    """Return why a compiler failed, in one line; it or its subprocess may have been killed."""
    killed = re.search(
        r"(\w[\w ]*?) signal terminated program|unable to execute.*: (\w+)", run.stderr
    )
    if run.returncode < 0 or killed:
        how = (killed[1] or killed[2]) if killed else signal.strsignal(-run.returncode)
        return f"the C compiler {compiler_name} was killed ({how}): is there enough memory?"
    errors = [line for line in run.stderr.splitlines() if "error" in line] or [run.stderr]
    return f"{compiler_name} refused the C code: {' '.join(errors[0].split())}"
