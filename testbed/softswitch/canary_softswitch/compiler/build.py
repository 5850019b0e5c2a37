# SPDX-License-Identifier: Apache-2.0
"""Compiles C text into a cached shared library and loads it with ctypes; keeps the cache."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, overload

from canary_softswitch.caches import made_cache, owned, shared, user_cache
from canary_softswitch.errors import CompileError, NoCompiler, SoftSwitchError

C_SOURCES = Path(__file__).parent.parent / "runtime" / "c"
PREBUILT = Path(__file__).parents[2] / "canary_prebuilt" / f"{sys.platform}-{os.uname().machine}"
"""The folder beside this package in which wheels for one platform hold compiled libraries: this
package's and those of packages that compile with it."""
PACKETS = ("-fno-tree-slp-vectorize",)
"""The flag for code that runs packet by packet: it has nothing to compute side by side, and to put
two fields into one vector register takes more instructions than it saves."""
QUICK = "-O0"
"""The flag that makes the compiler quick and its code slow; of two such flags the last counts."""
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fno-strict-aliasing")
NATIVE = ("-march=native", "-mcpu=native")
"""Flags for all instructions of this processor; some compilers for ARM know only the second."""
CANDIDATES = ("cc", "gcc", "clang")
_LIMITS = 'ulimit -t 600; ulimit -v 4194304; exec "$@"'
LIMITED = ("sh", "-c", _LIMITS.replace(";", " 2>/dev/null;", 2), "sh")
"""The words before the compiler's command that bound its processor time (s) and memory (KiB).

A program of a stranger is bounded, too, but not what a compiler makes of it.
"""


def compiler() -> list[str]:
    """Return the C compiler command: $CC, else the first of cc, gcc, clang on PATH, else zig's of
    the package ziglang."""
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
    if not chosen and (ziglang := importlib.util.find_spec("ziglang")) and ziglang.origin:
        return [str(Path(ziglang.origin).with_name("zig")), "cc"]
    raise NoCompiler(
        f"no C compiler: looked for {', '.join(wanted)} on PATH; install gcc "
        "(Debian: apt install gcc libc6-dev), or the package ziglang, or set CC"
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


def _trusted(folder: Path) -> Path:
    """Return the real path of the cache folder, created if need be.

    Raises:
        SoftSwitchError: Other users could put code there.
        OSError: It cannot be created.
    """
    try:
        return made_cache(folder)
    except PermissionError as error:
        if error.errno is not None:
            raise
        again = "remove it (it is made again) or " if f"/{folder.name} can be" in str(error) else ""
        raise SoftSwitchError(f"{error}: {again}set XDG_CACHE_HOME to a folder of yours") from None


def _opened(file: Path) -> BinaryIO | None:
    """Return a cache file, open for reading; None if it is missing, damaged or not trustworthy.

    A damaged library would crash this process when it is loaded or called. Whoever uses the file
    reads or maps this descriptor, not the path: what was checked here is what is used.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        wanted = file.with_suffix(".sha256").read_bytes()
    except OSError:
        return None
    opened = os.fdopen(descriptor, "rb")
    found = os.fstat(descriptor)
    digest = hashlib.file_digest(opened, "sha256").hexdigest().encode()
    if owned(found) and not shared(found) and wanted == digest:
        opened.seek(0)
        return opened
    opened.close()
    return None


def _put(new: Path, path: Path) -> None:
    """Move a new file to its place in the cache, with its hash beside it."""
    digest = new.with_suffix(".sha256")
    digest.write_text(hashlib.sha256(new.read_bytes()).hexdigest())
    os.replace(new, path)
    os.replace(digest, path.with_suffix(".sha256"))


def kept(name: str) -> bytes | None:
    """Return the content of the cache file ``name``, None if there is none that can be trusted."""
    try:
        file = _opened(_trusted(cache_dir()) / name)
    except (OSError, SoftSwitchError):
        return None
    if file is None:
        return None
    with file:
        return file.read()


def keep(name: str, data: bytes) -> None:
    """Write ``data`` to the cache file ``name``, if there is a cache."""
    with suppress(OSError, SoftSwitchError):
        folder = _trusted(cache_dir())
        with tempfile.TemporaryDirectory(dir=folder) as work:
            new = Path(work) / name
            new.write_bytes(data)
            new.chmod(0o644)
            _put(new, folder / name)


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
    """Compile a C translation unit, unless a wheel holds its library or it is in the cache, and
    return the loaded library.

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
    return _library(_build(code, tuple(flags)), signatures)


def kept_library(
    code: str, signatures: Mapping[str, Sequence[Any]], flags: Sequence[str] = ()
) -> ctypes.CDLL | None:
    """Return what `load_library` returns if that compiles nothing; None if it would. It raises the
    same errors."""
    built = _build(code, tuple(flags), compiles=False)
    return None if built is None else _library(built, signatures)


def _library(built: tuple[Path, BinaryIO], signatures: Mapping[str, Sequence[Any]]) -> ctypes.CDLL:
    """Return the loaded library of an open file, whose functions have their signatures."""
    path, opened = built
    library = ctypes.CDLL(str(path), handle=_mapped(path, opened))
    for name, (result, *arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_loaded: dict[tuple[int, int], int] = {}
"""The handle of each loaded library, by the file's device and inode."""


def _mapped(path: Path, opened: BinaryIO) -> int:
    """Return the handle of the library in an open file, loaded unless it is already; the file is
    closed.

    A descriptor of it stays open as long as the process lives: the loader takes a name such as
    /proc/self/fd/7 that it has seen before for the library that had it then.

    Raises:
        SoftSwitchError: It cannot be loaded.
    """
    with opened, _loading:
        found = os.fstat(opened.fileno())
        inode = found.st_dev, found.st_ino
        if inode not in _loaded:
            there = Path("/proc/self/fd").exists()  # not on macOS
            descriptor = os.dup(opened.fileno())
            try:
                library = ctypes.CDLL(f"/proc/self/fd/{descriptor}" if there else str(path))
            except OSError as e:
                os.close(descriptor)
                raise SoftSwitchError(f"cannot load {path}: {e}") from None
            _loaded[inode] = library._handle
        return _loaded[inode]


_loading = threading.Lock()


def prebuilt_name(code: str, flags: Sequence[str] = ()) -> str:
    """Return the name of the file in which a wheel holds the library of a C text.

    It is a hash of the text and of ``flags``, as `load_library` gets them, without those of the
    linker, which differ between platforms. So a library of another text is never taken.
    """
    digest = hashlib.sha256()
    for part in (code, *FLAGS, *(flag for flag in flags if not flag.startswith("-Wl,"))):
        digest.update(part.encode() + b"\0")
    return f"{digest.hexdigest()[:40]}.so"


def uses_prebuilt() -> bool:
    """Return True if libraries of wheels are used: there are some, and $CC names no compiler."""
    return not os.environ.get("CC") and PREBUILT.is_dir()


def _prebuilt(code: str, flags: Sequence[str]) -> tuple[Path, BinaryIO] | None:
    """Return the library of ``code`` that a wheel holds, open, and its path; None if none does."""
    path = PREBUILT / prebuilt_name(code, flags)
    try:
        return (path, path.open("rb")) if uses_prebuilt() else None
    except FileNotFoundError:
        return None


@overload
def _build(code: str, extra_flags: tuple[str, ...]) -> tuple[Path, BinaryIO]: ...


@overload
def _build(
    code: str, extra_flags: tuple[str, ...], compiles: bool
) -> tuple[Path, BinaryIO] | None: ...


def _build(
    code: str, extra_flags: tuple[str, ...], compiles: bool = True
) -> tuple[Path, BinaryIO] | None:
    """Return the shared library of ``code``, open, and its path; compiled unless a wheel holds it
    or it is in the cache, or None if it is not there and ``compiles`` is False."""
    if (held := _prebuilt(code, extra_flags)) is not None:
        return held
    command = compiler()
    folder = cache_dir()
    try:
        folder = _trusted(folder)
        target = identity(tuple(command), folder)
        flags = (*FLAGS, *target.split()[:1], *extra_flags)
        digest = hashlib.sha256()
        for part in (code, *command, target, *flags):
            digest.update(part.encode() + b"\0")
        path = folder / f"{digest.hexdigest()[:40]}.so"
        if (opened := _opened(path)) is not None:
            return path, opened
        if not compiles:
            return None
        with _only_one(path), tempfile.TemporaryDirectory(dir=path.parent) as work:
            if (opened := _opened(path)) is not None:  # another process was faster
                return path, opened
            source, library = Path(work) / "program.c", Path(work) / "program.so"
            source.write_text(code, encoding="utf-8")
            run = subprocess.run(
                [*LIMITED, *command, *flags, "-o", str(library), str(source)],
                env=_environment(),
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            if run.returncode:
                raise CompileError(_why(command[0], run))
            library.chmod(0o755)
            opened = library.open("rb")
            _put(library, path)
    except OSError as e:
        raise SoftSwitchError(f"cannot compile into {folder}: {e}") from None
    return path, opened


def _environment() -> dict[str, str]:
    """Return the environment of the compiler: messages are in English, and what is preloaded into
    this process, such as a sanitizer, is not for the compiler, whose memory is limited."""
    kept = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return {**kept, "LC_ALL": "C"}


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
