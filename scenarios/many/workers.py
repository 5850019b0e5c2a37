"""Where many pieces of work are computed: in threads of this process, or on a Dask cluster.

A thread waits for the process of a seed, or diagnoses a part in compiled code. Nothing of this
listens: only a cluster that the user names is talked to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Parts(Protocol):
    """Parts of something, each held by the worker that made it."""

    def each(self, function: Callable[..., Result], *shared: Any) -> list[Result]:
        """Return ``function(part, *shared)`` of each part, in order.

        Raises:
            RunError: The workers of a part were lost twice.
        """
        ...


class Workers(Protocol):
    """What computes pieces of work, several at once."""

    @property
    def dashboard(self) -> str:
        """The address where one can watch the work; empty if there is none."""
        ...

    def check(self, ours: Mapping[str, Any], theirs: Callable[[], Mapping[str, Any]]) -> None:
        """Check that ``theirs`` returns on every worker what was found here.

        Raises:
            ValueError: One finds something else, or may not start processes (one line).
        """
        ...

    def held(self, load: Callable[[Path], Any], files: Sequence[Path]) -> Parts:
        """Return what ``load`` makes of each file, which all workers must see."""
        ...

    def outcomes(
        self, jobs: Mapping[int, Callable[[], Result]]
    ) -> Iterator[tuple[int, Result | str]]:
        """Yield what jobs return, by their numbers, as they end; or why one failed, in words."""
        ...


class Threads:
    """Threads of this process.

    Args:
        pool: Of as many as may work at once.
    """

    dashboard = ""

    def __init__(self, pool: ThreadPool) -> None:
        self._pool = pool

    def check(self, ours: Mapping[str, Any], theirs: Callable[[], Mapping[str, Any]]) -> None:
        """Do nothing: this process finds what it found."""

    def held(self, load: Callable[[Path], Any], files: Sequence[Path]) -> Parts:
        return _Held(self._pool, self._pool.map(load, files, chunksize=1))

    def outcomes(
        self, jobs: Mapping[int, Callable[[], Result]]
    ) -> Iterator[tuple[int, Result | str]]:
        yield from self._pool.imap_unordered(partial(_outcome, jobs), jobs)


class _Held:
    def __init__(self, pool: ThreadPool, parts: Sequence[Any]) -> None:
        self._pool, self._parts = pool, parts

    def each(self, function: Callable[..., Result], *shared: Any) -> list[Result]:
        return self._pool.map(lambda part: function(part, *shared), self._parts, chunksize=1)


def _outcome(jobs: Mapping[int, Callable[[], Result]], number: int) -> tuple[int, Result | str]:
    try:
        return number, jobs[number]()
    except Exception as error:
        return number, f"{type(error).__name__}: {' '.join(str(error).split())}"


@contextmanager
def workers_of(cluster: str | None, at_once: int) -> Iterator[Workers]:
    """Yield the workers of a cluster, or ``at_once`` threads.

    Args:
        cluster: The address of a scheduler, as ``tcp://10.0.0.1:8786``, or its scheduler file.

    Raises:
        ValueError: It does not answer, or has no workers (one line).
    """
    if cluster is None:
        with ThreadPool(at_once) as pool:
            yield Threads(pool)
        return
    from scenarios.many.cluster import cluster_at  # takes a second

    with cluster_at(cluster) as workers:
        yield workers


def own_folder() -> Path:
    """Return the folder of the worker of a cluster that this is called on."""
    from distributed import get_worker

    return Path(get_worker().local_directory)
