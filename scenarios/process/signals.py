# SPDX-License-Identifier: Apache-2.0
"""Signals that end a command: Ctrl-C, SIGTERM, and SIGHUP when its terminal closes.

Until `raise_on_signals` is called, a signal ends the command at once: an exception would pass
through half-imported modules, some of which suppress it or print a traceback. After that, a signal
raises an exception, so that the command cleans up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from testbed.signals import SIGNALS


class Stopped(KeyboardInterrupt):
    """A signal asked this process to end; the argument is the signal's number."""


def exit_on_signals(kept: str = "nothing was kept") -> None:
    """From now on, a signal prints one line that says what was ``kept``, and ends the process."""

    def end(number: int, _: FrameType | None) -> None:
        """Print which signal came, by its number, and end the process at once."""
        try:
            os.write(2, f"{in_one_line(number, kept)}\n".encode())
        finally:
            os._exit(exit_code(number))

    _have(end)


def raise_on_signals() -> None:
    """From now on, the first signal raises `Stopped`; later ones are ignored, so that cleanup is
    not interrupted.

    In some places Python drops exceptions, such as finalizers and import callbacks. If it drops
    `Stopped`, the signal is sent again.
    """

    def stop(number: int, _: FrameType | None) -> None:
        """Ignore further signals, and raise `Stopped` with the signal's number."""
        _have(lambda *_: None)
        raise Stopped(number)

    def dropped(unraisable: Any) -> None:
        """Send the signal again if `Stopped` was dropped; report other exceptions as usual."""
        if not isinstance(unraisable.exc_value, Stopped):
            sys.__unraisablehook__(unraisable)
            return
        again = os.getpid(), unraisable.exc_value.args[0]
        while True:
            try:
                _have(stop)
                threading.Timer(0.01, os.kill, again).start()
                return
            except Stopped:  # raised inside this hook, which would drop it again
                continue

    sys.unraisablehook = dropped
    _have(stop)


def exit_code(number: int) -> int:
    """Return the exit code that a shell reports for a program that a signal of this number ended:
    130 for Ctrl-C, 129 for SIGHUP."""
    return 128 + number


def in_one_line(number: int, kept: str) -> str:
    """Return one line that says which signal, by its number, ended the command and what was
    ``kept``."""
    how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    return f"canary: {how}: {kept}"


def _have(handler: Callable[[int, FrameType | None], None]) -> None:
    """Install a handler for all signals of `SIGNALS`, and unblock them."""
    for kind in SIGNALS:
        # An ignored SIGHUP comes from nohup and stays ignored; an ignored SIGINT only means that a
        # shell started the command in the background.
        if kind == signal.SIGHUP and signal.getsignal(kind) == signal.SIG_IGN:
            continue
        signal.signal(kind, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # may be blocked so far: see `canary`
