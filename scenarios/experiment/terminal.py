# SPDX-License-Identifier: Apache-2.0
"""Shows progress and messages in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from scenarios.process.signals import raise_on_signals
from testbed.fabric.names import plain

SOON_S, OFTEN_S = 2.0, 10.0
"""Without a terminal, lines of progress begin after `SOON_S` seconds, and follow about every
`OFTEN_S` seconds."""


def wide_console() -> Console:
    """Return a console on standard output; it is 120 columns wide if that is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def line(text: str, style: str = "") -> Text:
    """Return text that is printed as it is, with unprintable characters escaped."""
    return Text(plain(text), style)


class Bar:
    """Computes the remaining time of a phase from its progress.

    Args:
        show: Called with the name of the phase, its progress from 0 to 1, and the remaining time in
            words; empty if it is not known yet.
    """

    def __init__(self, show: Callable[[str, float, str], None]) -> None:
        self._show = show
        self._from = time.monotonic(), 0.0
        self._last = float("inf")

    def __call__(self, what: str, share: float) -> None:
        """Show the phase ``what``, its share that is done and, after a second, the time left."""
        now = time.monotonic()
        if share < self._last:  # another phase has begun
            self._from = now, share
        self._last = share
        begin, already = self._from
        left = ""
        if now - begin > 1 and already < share < 1:
            left = _in_words((now - begin) * (1 - share) / (share - already))
        self._show(plain(what), share, left)


def _in_words(seconds: float) -> str:
    """Return the remaining time in words: seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.0f} min left" if seconds < 5400 else f"{seconds / 3600:.1f} h left"


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """Return a context manager that shows a progress bar on standard error during its block; lines
    if that is no terminal, or one that cannot move its cursor. A signal raises `Stopped`, so that
    the block can clean up."""
    raise_on_signals()
    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield Bar(_lines())
        return
    what = TextColumn("{task.description:24}", markup=False)
    columns = (what, BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    left = TextColumn("{task.fields[left]}", markup=False)
    with Progress(*columns, left, console=console, transient=True) as progress:
        task = progress.add_task("", total=1.0, left="")
        yield Bar(
            lambda w, share, rest: progress.update(task, description=w, completed=share, left=rest)
        )


def _lines() -> Callable[[str, float, str], None]:
    """Return a function that prints progress as lines, when the phase changes and every few
    seconds."""
    begin = printed_at = time.monotonic()
    printed = ""

    def show(what: str, share: float, left: str) -> None:
        """Print a phase, its share, 0 to 1, and the time left, unless a line was printed just
        before."""
        nonlocal printed_at, printed
        now, kind = time.monotonic(), what.partition(":")[0]
        if now - begin < SOON_S or now - printed_at < (SOON_S if kind != printed else OFTEN_S):
            return
        printed_at, printed = now, kind
        rest = f", {left}" if left else ""
        with suppress(OSError):  # standard error was closed
            print(f"... {what}: {100 * share:.0f} %{rest}", file=sys.stderr, flush=True)

    return show
