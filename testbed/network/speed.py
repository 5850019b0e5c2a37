"""How fast this machine is: a measured figure that real networks take their patience and pace from.

An emulated processor is ten times slower than a real one, and a crowded machine keeps everybody
waiting. What gives processes a fixed time then gives up on switches that are well, and what sends
at a fixed pace outruns them.
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
    """How many times slower this machine's processors are than the defaults bear, at least 1.

    Of computing and of calls of the kernel that carry packets, in processor time: what else the
    machine does is no part of it. Fewer cores count, more do not. Measured once, in a tenth of a
    second, on a machine that is ten times slower in one second.
    """
    return _measured()[0]


def patience() -> float:
    """How many times longer than usual to wait for a process, at least 1.

    The same work by the wall's clock: a machine with much else to do needs patience, too.
    """
    return _measured()[1]


@contextmanager
def hurried() -> Iterator[None]:
    """Let this process not wait for what else the machine does, for a block, if it may.

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
    """Seconds of the processor and of the wall's clock."""
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
