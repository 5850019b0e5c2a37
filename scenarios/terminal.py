"""What a terminal shows while something runs, and how wide."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from scenarios.stopping import tidily
from testbed.fabric.names import plain

__all__ = ["Bar", "line", "progress_bar", "wide_console"]


def wide_console() -> Console:
    """Standard output; wide enough for tables where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def line(text: str, style: str = "") -> Text:
    """Text that may hold names, shown as it is."""
    return Text(plain(text), style)


class Bar:
    """One line of progress; silent where the output is no terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=1.0)

    def __call__(self, what: str, share: float) -> None:
        self._progress.update(self._task, description=plain(what), completed=share)


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """A bar on standard error, gone when the block ends; what runs is taken back by a signal."""
    tidily()
    console = Console(stderr=True)
    what = TextColumn("{task.description:24}", markup=False)
    columns = (what, BarColumn(), TaskProgressColumn())
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        yield Bar(progress)
