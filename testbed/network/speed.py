# SPDX-License-Identifier: Apache-2.0
"""The measured speed of this machine, from which real networks derive timeouts and sending rates.

An emulated processor is ten times slower than a real one, and on a busy machine every process
waits. A fixed timeout would then give up on healthy switches, and a fixed rate would overload them.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

NICE = -10
"""Of a session whose processes must keep up with a network in real time."""

_CORES = 2  # of the machine that the defaults are made for
_RESERVE = 2.0  # times slower than that one: so much the defaults bear
_TURNS = 9
_COMPUTING_S, _CALLING_S = 0.0060, 0.0040
"""Processor time that `_compute` and `_call` take on that machine."""


def slowness() -> float:
    """Return how many times slower this machine is than the defaults allow for, at least 1.

    Computation and system calls that carry packets are measured in processor time, so that other
    processes do not count. Fewer cores count as slower, more cores do not count as faster. It is
    measured once, in about 0.1 s, or 1 s on a machine that is ten times slower.
    """
    return _measured()[0]


def patience() -> float:
    """Return a number of at least 1: how many times longer than usual to wait for a process.

    It is measured like `slowness` but in wall-clock time, so that a busy machine counts as slow.
    """
    return _measured()[1]


@contextmanager
def raised_priority() -> Iterator[None]:
    """Raise the priority of this process's session for a block, if it may.

    Where the kernel divides its processors between sessions (sched(7)), the whole session counts as
    ten for that time: else a controller on a busy machine is minutes late.
    """
    group = Path("/proc/self/autogroup")
    before = None
    with suppress(OSError, IndexError):
        before = group.read_text().split()[-1]
        group.write_text(str(NICE))
    try:
        yield
    finally:
        if before is not None:
            with suppress(OSError):
                group.write_text(before)


@cache
def _measured() -> tuple[float, float]:
    cores = max(1.0, _CORES / (os.cpu_count() or 1))
    slow = waited = 1.0
    for work, expected in ((_compute, _COMPUTING_S), (_call, _CALLING_S)):
        turns = [_timed(work) for _ in range(_TURNS)]
        slow = max(slow, cores * min(used for used, _ in turns) / expected)
        waited = max(waited, cores * statistics.median(wall for _, wall in turns) / expected)
    return (slow if slow > _RESERVE else 1.0), max(slow, waited)


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the processor time and the wall-clock time of ``work`` in seconds."""
    used, begin = time.thread_time(), time.perf_counter()
    work()
    return time.thread_time() - used, time.perf_counter() - begin


def _compute() -> int:
    value = 1
    for number in range(50_000):
        value = (value * 31 + number) & 0xFFFFFFFF
    return value


def _call() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        data = bytes(1000)
        for _ in range(2000):
            here.send(data)
            there.recv(2000)
