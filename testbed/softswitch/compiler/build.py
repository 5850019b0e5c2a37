"""C for ctypes: text put together, compiled into a cached shared library, loaded."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from testbed.softswitch.errors import CompileError, NoCompiler, SoftSwitchError

C_SOURCES = Path(__file__).parent.parent / "runtime" / "c"
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fno-strict-aliasing")
CANDIDATES = ("cc", "gcc", "clang")


def compiler() -> list[str]:
    """The C compiler command: $CC, else the first of cc, gcc, clang on PATH."""
    chosen = shlex.split(os.environ.get("CC", ""))
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
def identity(command: tuple[str, ...]) -> str:
    """Version line and target CPU of a compiler: what a cached library depends on."""
    try:
        run = subprocess.run(
            [*command, "-march=native", "-E", "-dM", "-x", "c", os.devnull],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as e:
        raise NoCompiler(f"the C compiler {command[0]} does not run: {e}") from None
    return run.stdout if run.returncode == 0 else ""


def cache_dir() -> Path:
    """Directory of compiled programs."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "canary-softswitch"


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Lets one process at a time compile a program: many switches start together."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_c(path: Path) -> str:
    """Text of a C file in which each ``#include "name"`` is replaced by that file's text.

    A name is looked for beside the file, then among the soft switch's own (``abi.h``); a second
    mention of the same file is left out. The text alone then decides what is compiled.
    """
    return _expanded(path, set())


def _expanded(path: Path, seen: set[Path]) -> str:
    def included(match: re.Match[str]) -> str:
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
    """Compile a C translation unit, unless the same was compiled before, and load it.

    Args:
        code: The whole text; ``read_c`` makes it of files.
        signatures: For each function to call, its result type (None: void) and then the types
            of its arguments, as ctypes has them.
        flags: Flags of the compiler beyond ``FLAGS``, such as ``-pthread``.

    Raises:
        NoCompiler: There is no C compiler.
        CompileError: The compiler refused the code.
        SoftSwitchError: The cache cannot be written, or the library not loaded.
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
    """Path of the shared library of ``code``; compiles unless the same was compiled before."""
    command = compiler()
    target = identity(tuple(command))
    flags = (*FLAGS, *(("-march=native",) if target else ()), *extra_flags)
    digest = hashlib.sha256()
    for part in (code, *command, target, *flags):
        digest.update(part.encode() + b"\0")
    path = cache_dir() / f"{digest.hexdigest()[:40]}.so"
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(path), tempfile.TemporaryDirectory(dir=path.parent) as work:
            if path.exists():  # another process was faster
                return path
            source, library = Path(work) / "program.c", Path(work) / "program.so"
            source.write_text(code, encoding="utf-8")
            run = subprocess.run(
                [*command, *flags, "-o", str(library), str(source)],
                capture_output=True,
                text=True,
                check=False,
            )
            if run.returncode:
                errors = [x for x in run.stderr.splitlines() if "error" in x] or [run.stderr]
                raise CompileError(f"{command[0]} refused the C code: {errors[0].strip()}")
            os.replace(library, path)
    except OSError as e:
        raise SoftSwitchError(f"cannot compile into {path.parent}: {e}") from None
    return path
