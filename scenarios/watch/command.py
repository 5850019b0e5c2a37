"""What ``--watch`` does around a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scenarios.settings import Settings
    from scenarios.watch.run import WatchedRun

__all__ = ["watching"]


@contextmanager
def watching(asked: bool, settings: Settings) -> Iterator[WatchedRun | None]:
    """A run that is watched, if that is asked for: until the block ends, however it does.

    Raises:
        SettingsError: There is nothing to see in such a run (one line).
    """
    if not asked:
        yield None
        return
    from scenarios.watch.publisher import Publisher
    from scenarios.watch.run import WatchedRun, can_be_watched

    can_be_watched(settings)
    publisher = Publisher()
    watched = WatchedRun(publisher)
    print(f"watch: {publisher.address}", flush=True)
    end = "over: it did not end well"
    try:
        yield watched
        end = "over: the run's own page has it all"
    finally:
        watched.close()
        publisher.tell("end", {"what": end})
        publisher.close()
