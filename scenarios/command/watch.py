# SPDX-License-Identifier: Apache-2.0
"""Shows a run while it goes on: in the terminal and, with ``--watch``, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scenarios.experiment.estimate import Estimate, announce
from scenarios.experiment.observer import Observer, Observers, Progress, ProgressObserver
from testbed.network.kinds import NetworkKind


class _Terminal(ProgressObserver):
    """Shows the progress as a bar, and prints the estimate of a long run before it begins."""

    def estimated(self, expected: Estimate) -> None:
        """Print the estimate if the run is long."""
        announce(expected)


@contextmanager
def watching(enabled: bool, network: NetworkKind, progress: Progress) -> Iterator[Observer]:
    """Return a context manager that gives its block the observer of a run, which calls ``progress``
    and, if ``enabled``, shows a page in a browser.

    The page ends with the block, also after an error.

    Raises:
        NetworkError: A run on this network cannot be watched (one line).
    """
    terminal = _Terminal(progress)
    if not enabled:
        yield terminal
        return
    from scenarios.live.publisher import Publisher
    from scenarios.live.watched_run import WatchedRun

    network.need_packets("WATCH=1")
    publisher = Publisher()
    watched = WatchedRun(publisher)
    print(f"watch: {publisher.address}", flush=True)
    end = "ended: the run failed"
    try:
        yield Observers(terminal, watched)
        end = "ended: see the run's own page"
    finally:
        watched.close()
        publisher.publish("end", {"what": end})
        publisher.close()
