# SPDX-License-Identifier: Apache-2.0
"""The workers of a running Dask cluster, as `scenarios.many.work.Workers`.

All workers must have the same code, packages and files; everything that determines the figures is
compared before the work begins. This process unpickles data from the scheduler and so must trust
it: the address comes from the command line only.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from scenarios.extras import need_dask
from scenarios.many.work import LocalWorkers, Outcome, Outcomes, Work, Workers, do_in_process
from testbed.record.run import RunError

if TYPE_CHECKING:
    from distributed import Client, Future

    from analysis.methods.partitions import Parts

Result = TypeVar("Result")
WAIT = 10
"""Seconds to wait for a scheduler's answer, and for its first worker."""


class Cluster:
    """The workers of a running cluster.

    Args:
        client: A client that is connected to the scheduler.
        dashboard: The address of the scheduler's dashboard.
    """

    def __init__(self, client: Client, dashboard: str) -> None:
        self._client = client
        self.dashboard = dashboard

    def check(self, ours: Mapping[str, Any], theirs: Callable[[], Mapping[str, Any]]) -> None:
        """Check that ``theirs`` returns the values of ``ours`` on every worker, and that each may
        start processes."""
        try:
            found: dict[str, Any] = self._client.run(_found_here, theirs, on_error="return")  # type: ignore
        except OSError:
            raise RunError("a worker was lost before any seed began: try again") from None
        for worker, answer in found.items():
            if isinstance(answer, Exception):
                raise RunError(f"worker {worker} cannot run this: {' '.join(str(answer).split())}")
            if answer.pop("daemon"):
                raise RunError(
                    f"worker {worker} may not start processes: start it with --no-nanny, or with "
                    "DASK_DISTRIBUTED__WORKER__DAEMON=False in its environment"
                )
            other = [key for key in ours if answer.get(key) != ours[key]]
            if other:
                raise RunError(
                    f"worker {worker} has other {', '.join(other)}: give it the same project, "
                    "packages and files as this machine has"
                )

    def held(self, load: Callable[[Path], Any], files: Sequence[Path]) -> Parts:
        """Return what ``load`` makes of each file, held in the memory of the workers."""
        return _Held(self._client, [self._client.submit(load, file) for file in files])

    def outcomes(self, pieces: Mapping[str, Work], folder: Path) -> Outcomes:
        """Yield keys and outcomes as pieces end. If a worker is lost, another one repeats its
        pieces, once; pieces use the worker's own folder instead of ``folder``."""
        from distributed import KilledWorker, as_completed

        futures = {
            self._client.submit(_do_here, work, key, key=f"{key}-{id(pieces)}", pure=False): key
            for key, work in pieces.items()
        }
        for future in as_completed(futures, raise_errors=False):
            error = future.exception()
            if error is None:
                outcome = future.result()
            elif isinstance(error, KilledWorker):
                outcome = Outcome(None, "its worker was lost, and then a second one")
            else:
                message = " ".join(str(error).split())
                outcome = Outcome(None, f"{type(error).__name__}: {message}")
            yield futures[future], outcome
            future.release()


class _Held:
    """Parts in the memory of the workers that made them; the parts of a lost worker are made
    again."""

    def __init__(self, client: Client, parts: Sequence[Future]) -> None:
        self._client, self._parts = client, parts

    def each(self, function: Callable[..., Result], *shared: Any) -> list[Result]:
        """Return ``function(part, *shared)`` for each part, in order.

        Raises:
            RunError: The workers of a part were lost twice.
        """
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        sent: list[Any] = [
            cast("list[Future]", self._client.scatter([each], broadcast=True, hash=False))[0]
            for each in shared
        ]
        futures = [self._client.submit(function, part, *sent, pure=False) for part in self._parts]
        try:
            return cast("list[Result]", self._client.gather(futures))
        except (KilledWorker, FutureCancelledError):
            raise RunError("two workers were lost, perhaps for lack of memory") from None


@contextmanager
def workers_of(cluster: str | None, processes: int) -> Iterator[Workers]:
    """Return a context manager that gives its block the workers of a cluster, or workers of this
    machine, whose number is ``processes``.

    Args:
        cluster: The address of a scheduler, such as ``tcp://10.0.0.1:8786``, or its scheduler file;
            None for this machine.

    Raises:
        RunError: The scheduler does not answer, or has no workers (one line).
        UserError: Dask is not installed.
    """
    if cluster is None:
        yield LocalWorkers(processes)
    else:
        with _cluster_at(cluster) as workers:
            yield workers


@contextmanager
def _cluster_at(where: str) -> Iterator[Cluster]:
    """Connect to a scheduler for a block, and yield its workers."""
    need_dask()
    import dask.config

    dask.config.set(
        {"logging": {"distributed": "critical"}, "distributed.scheduler.allowed-failures": 1}
    )
    from distributed import Client  # importing it takes a second

    is_file = where.endswith(".json")
    if is_file and not Path(where).is_file():
        raise RunError(f"CLUSTER={where}: there is no such scheduler file")
    try:
        if is_file:
            client = Client(scheduler_file=where, timeout=WAIT)
        else:
            client = Client(where, timeout=WAIT)
    except (OSError, TimeoutError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"CLUSTER={where} does not answer: {reason or 'timed out'}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=WAIT)
        except TimeoutError:
            raise RunError(f"CLUSTER={where} has no workers: start some with dask worker") from None
        yield Cluster(client, client.dashboard_link or where)


def _do_here(work: Work, key: str) -> Outcome:
    """Do a piece of work in a process of this worker's machine."""
    from distributed import get_worker

    return do_in_process(work, Path(get_worker().local_directory), key)


def _found_here(theirs: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of ``theirs`` on this worker, and whether it is a daemon."""
    return {**theirs(), "daemon": multiprocessing.current_process().daemon}
