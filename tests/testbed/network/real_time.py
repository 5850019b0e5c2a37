# SPDX-License-Identifier: Apache-2.0
"""Tests of real packets on a machine that has other things to do.

A test marked ``real_time`` that fails is repeated only if the machine was counted to be late while
it ran: by the hosts' agents, whose frames left late; by a thread that slept longer than it wanted;
by the kernel, which counts the processor time that other machines took. A failure without such
lateness is a failure at once. Each repetition is in the terminal's summary.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import numpy as np

from testbed.network.mininet import MininetNetwork

TURNS = 3
FRAME_CLASS = 4  # of HostAgents.late: 8 ms and more
SLEEP_MS = 20
STOLEN = 0.05  # of the processors' time


class Lateness:
    """How late the machine is while this is entered.

    Args:
        net: Its agents are asked, if there is one.
    """

    def __init__(self, net: MininetNetwork | None = None) -> None:
        self._net = net
        self._overslept = 0.0
        self._done = threading.Event()

    def __enter__(self) -> Lateness:
        self._late = None if self._net is None else self._net.late()
        self._stolen, self._total = _processor_time()
        self._thread = threading.Thread(target=self._sleep, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _sleep(self) -> None:
        while not self._done.is_set():
            begin = time.monotonic()
            time.sleep(0.005)
            self._overslept = max(self._overslept, time.monotonic() - begin - 0.005)

    def reason(self) -> str:
        """In what the machine was late until now, "" if it was not."""
        found = []
        if self._net is not None and self._late is not None:
            late = np.flatnonzero((self._net.late() - self._late)[FRAME_CLASS:])
            if len(late):
                found.append(f"frames were up to {2 ** (FRAME_CLASS + int(late[-1]))} ms late")
        if self._overslept * 1000 >= SLEEP_MS:
            found.append(f"a thread slept {self._overslept * 1000:.0f} ms too long")
        stolen, total = _processor_time()
        share = (stolen - self._stolen) / max(total - self._total, 1)
        if share >= STOLEN:
            found.append(f"{share:.0%} of the processors' time was stolen")
        return ", ".join(found)


def _processor_time() -> tuple[int, int]:
    """Ticks of the processors' time since boot: stolen, and in all."""
    ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


def in_turns(
    test: Callable[[], object], lateness: Callable[[], Lateness], repeated: list[str]
) -> None:
    """Run a test, again while it fails on a late machine, `TURNS` times at most.

    ``repeated`` gets why each turn but the last failed, and how late the machine was.
    """
    while True:
        with lateness() as watch:
            try:
                test()
                return
            except Exception as e:
                late = watch.reason()
                if not late or len(repeated) + 1 == TURNS:
                    raise
                words = (str(e).strip() or type(e).__name__).splitlines()[0]
                repeated.append(f"because {late}; it failed with: {words}")
