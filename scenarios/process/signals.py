"""How a command is ended from outside: by Ctrl-C, SIGTERM, or SIGHUP when its terminal goes.

A command that has begun nothing yet ends at once: an exception would fly through half-imported
modules, some of which lose it or say much about it. From `raise_on_signals` on the signal is an
exception, so that what was begun is taken back.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A signal that asks this process to end came; its number is the argument."""


def exit_on_signals(kept: str = "nothing was kept") -> None:
    """From now on a signal prints one line, which says what was ``kept``, and ends the process."""

    def end(number: int, _: FrameType | None) -> None:
        try:
            os.write(2, f"{in_one_line(number, kept)}\n".encode())
        finally:
            os._exit(exit_code(number))

    _have(end)


def raise_on_signals() -> None:
    """From now on such a signal raises `Stopped`, once: others do not disturb the tidying up.

    Where Python must not raise, as in what it calls when an object goes or a module is imported, it
    drops exceptions: then the signal comes again.
    """

    def stop(number: int, _: FrameType | None) -> None:
        _have(lambda *_: None)
        raise Stopped(number)

    def dropped(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, Stopped):
            sys.__unraisablehook__(unraisable)
            return
        again = os.getpid(), unraisable.exc_value.args[0]
        while True:
            try:
                _have(stop)
                threading.Timer(0.01, os.kill, again).start()
                return
            except Stopped:  # on a busy machine it comes here, where it would be dropped once more
                continue

    sys.unraisablehook = dropped
    _have(stop)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Hold a signal that comes in the block back until the block has ended: what must not be half
    done."""
    if threading.current_thread() is not threading.main_thread():  # which alone hears signals
        yield
        return
    came: list[int] = []
    before = {kind: signal.getsignal(kind) for kind in SIGNALS}
    heard = [kind for kind in SIGNALS if before[kind] not in (None, signal.SIG_IGN)]
    for kind in heard:
        signal.signal(kind, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for kind in heard:
            signal.signal(kind, before[kind])
        if came:
            signal.raise_signal(came[0])


def exit_code(number: int) -> int:
    """Return what a shell says of a program that a signal ended: 130 for Ctrl-C, 129 for SIGHUP."""
    return 128 + number


def in_one_line(number: int, kept: str) -> str:
    how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    return f"canary: {how}: {kept}"


def _have(handler: Callable[[int, FrameType | None], None]) -> None:
    for kind in SIGNALS:
        # nohup means it; a shell's background jobs begin with SIGINT ignored and do not
        if kind == signal.SIGHUP and signal.getsignal(kind) == signal.SIG_IGN:
            continue
        signal.signal(kind, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # some wait until here: see `canary`
