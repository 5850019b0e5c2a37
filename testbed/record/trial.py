# SPDX-License-Identifier: Apache-2.0
"""Reads Parquet files for the first time in a child process with limits.

A small file may stand for any number of bytes: rows that repeat, long texts that a dictionary has
once, a block that decompresses to gigabytes. Its metadata may say otherwise, and Arrow allocates
what the pages say, and aborts where it gets no memory. So a copy of this process reads the file
first, with bounds on its memory and processor time, and keeps nothing. What this process reads
after that has the same size.
"""

from __future__ import annotations

import os
import resource
import signal
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_MIB = 1 << 20
SPARE, TIMES = 512 * _MIB, 64
"""Bytes that a file may take in memory: ``SPARE`` and ``TIMES`` its size.

The tables of a run take up to 20 times their size, most of it for columns that are constant.
"""
SECONDS, SECONDS_PER_MIB = 8, 1
"""Processor time in which a file must be read: ten times what the tables of a run at K=48 take."""

BEYOND = "takes more memory or time than a table of its size: it is damaged, or made to"
"""What messages say of a file that cannot be read within the limits."""
KILLED = "was not read: something killed the process that tried it; is enough memory free?"

_tried: set[tuple[int, int, int, int]] = set()
"""The device, inode, size and time of change of each file that was read, or written, here."""


def note_written(path: Path) -> None:
    """Note that this process has written a file, which so needs no trial."""
    with suppress(OSError):
        _tried.add(_state(path))


def harm(paths: Iterable[Path]) -> str | None:
    """Return a line on the first file that cannot be read within the limits, None if all can.

    Files that are damaged or missing do no harm: reading them raises an error.
    """
    states: dict[Path, tuple[int, int, int, int]] = {}
    for path in paths:
        with suppress(OSError):
            state = _state(path)
            if state not in _tried and path.is_file():
                states[path] = state
    if not states:
        return None
    read, killed = _read_in_child(list(states))
    _tried.update(list(states.values())[:read])
    if read == len(states):
        return None
    return f"{list(states)[read]} {KILLED if killed else BEYOND}"


def _state(path: Path) -> tuple[int, int, int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _read_in_child(paths: list[Path]) -> tuple[int, bool]:
    """Return how many of the files, from the first on, a child process has read to their end, and
    whether another process killed it, as the kernel does when no memory is left."""
    here, there = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads: see `_read_all`
        child = os.fork()
    if child == 0:
        try:
            _read_all(paths, there)
        finally:
            os._exit(1)
    os.close(there)
    read = 0
    with open(here, "rb", buffering=0) as pipe:
        try:
            while pipe.read(1):
                read += 1
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            _, status = os.waitpid(child, 0)
    return read, os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _read_all(paths: list[Path], done: int) -> None:
    """Read files in a copy of this process, and write a byte after each.

    No other thread of the process goes on here, so only this one is used.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what Arrow says before it aborts
    # Arrow's own allocator maps a GiB at a time and keeps it; libc gives back what was freed, so
    # that a file gets the same room whatever was read before it.
    pa.set_memory_pool(pa.system_memory_pool())
    for path in paths:
        size = path.stat().st_size
        if (mapped := _mapped()) is not None:
            _limit(resource.RLIMIT_AS, mapped + SPARE + TIMES * size)
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = int(used.ru_utime + used.ru_stime)
        _limit(resource.RLIMIT_CPU, spent + SECONDS + SECONDS_PER_MIB * (size // _MIB))
        with suppress(OSError, ValueError, pa.ArrowException):
            _read(path)
        os.write(done, b".")


def _mapped() -> int | None:
    """Return the bytes of this process's address space; None on macOS, which limits no memory."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except FileNotFoundError:
        return None


def _limit(kind: int, value: int) -> None:
    _, most = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if most == resource.RLIM_INFINITY else min(value, most), most))


def _read(path: Path) -> None:
    """Read a file as `testbed.record.files` does; a MemoryError says that it does not fit."""
    try:
        file = pq.ParquetFile(path.absolute(), page_checksum_verification=True)
        table = file.read(use_threads=False)
        for column in table.columns:
            if pa.types.is_dictionary(column.type):
                column.cast(column.type.value_type)
    except (MemoryError, pa.ArrowMemoryError):
        os._exit(1)
