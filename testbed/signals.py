# SPDX-License-Identifier: Apache-2.0
"""Signals that end a command, and work that they must not stop halfway."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a request to end, and a terminal that closed."""


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Return a context manager that delays signals until the end of its block, for work that must
    not stop halfway."""
    if threading.current_thread() is not threading.main_thread():  # it alone receives signals
        yield
        return
    came: list[int] = []
    before = {kind: signal.getsignal(kind) for kind in SIGNALS}
    handled = [kind for kind in SIGNALS if before[kind] not in (None, signal.SIG_IGN)]
    for kind in handled:
        signal.signal(kind, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for kind in handled:
            signal.signal(kind, before[kind])
        if came:
            signal.raise_signal(came[0])
