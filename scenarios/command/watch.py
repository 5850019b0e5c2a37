"""What shows a run while it goes on: the terminal and, with ``--watch``, a page in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scenarios.experiment.estimate import Estimate, announce
from scenarios.experiment.observer import Observer, Observers, Progress, ProgressObserver


class _Terminal(ProgressObserver):
    """Shows progress with a bar, and says before a long run what it will take."""

    def estimated(self, expected: Estimate) -> None:
        announce(expected)


@contextmanager
def watching(asked: bool, backend: str, progress: Progress) -> Iterator[Observer]:
    """Give a block what observes its run: ``progress``, and a page if that is ``asked``.

    The page ends with the block, however that ends.

    Raises:
        SettingsError: There is nothing to see in such a run (one line).
    """
    terminal = _Terminal(progress)
    if not asked:
        yield terminal
        return
    from scenarios.live.publisher import Publisher
    from scenarios.live.watched_run import WatchedRun, can_be_watched

    can_be_watched(backend)
    publisher = Publisher()
    watched = WatchedRun(publisher)
    print(f"watch: {publisher.address}", flush=True)
    end = "over: it did not end well"
    try:
        yield Observers(terminal, watched)
        end = "over: the run's own page has it all"
    finally:
        watched.close()
        publisher.publish("end", {"what": end})
        publisher.close()
