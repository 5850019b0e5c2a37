"""The workers of a Dask cluster that is up.

Every worker must hold the same code, packages and files: what decides a seed's figures is compared
before any begins. This process unpickles what the scheduler sends and so trusts whom it connects
to: the address comes from the command line only.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import dask.config

from testbed.record.run import RunError

dask.config.set(
    {"logging": {"distributed": "critical"}, "distributed.scheduler.allowed-failures": 1}
)

from distributed import (  # noqa: E402
    Client,
    Future,
    KilledWorker,
    as_completed,
)
from distributed.client import FutureCancelledError  # noqa: E402

Result = TypeVar("Result")
WAIT = 10
"""Seconds for a scheduler to answer, and for a first worker."""


class Cluster:
    """Workers that are up.

    Args:
        client: Connected to their scheduler.
        dashboard: Its address.
    """

    def __init__(self, client: Client, dashboard: str) -> None:
        self._client = client
        self.dashboard = dashboard

    def check(self, ours: Mapping[str, Any], theirs: Callable[[], Mapping[str, Any]]) -> None:
        """See that every worker finds what was found here.

        Raises:
            ValueError: One does not, or may not start processes (one line).
        """
        try:
            found: dict[str, Any] = self._client.run(_standing, theirs, on_error="return")  # type: ignore
        except OSError:
            raise RunError("a worker was lost before any seed began: try again") from None
        for worker, said in found.items():
            if isinstance(said, Exception):
                raise RunError(f"worker {worker} cannot run this: {' '.join(str(said).split())}")
            if said.pop("daemon"):
                raise RunError(
                    f"worker {worker} may not start processes: start it with --no-nanny, or with "
                    "DASK_DISTRIBUTED__WORKER__DAEMON=False in its environment"
                )
            other = [key for key in ours if said.get(key) != ours[key]]
            if other:
                raise RunError(
                    f"worker {worker} has other {', '.join(other)}: bring its copy of the project, "
                    "its packages and the files of the run to what they are here"
                )

    def held(self, load: Callable[[Path], Any], files: Sequence[Path]) -> Held:
        """What ``load`` makes of each file, spread over the workers, who must all see the files."""
        return Held(self._client, [self._client.submit(load, file) for file in files])

    def outcomes(
        self, jobs: Mapping[int, Callable[[], Result]]
    ) -> Iterator[tuple[int, Result | str]]:
        """What the jobs return, as they end; of one whose worker was lost twice that, in words."""
        futures = {
            self._client.submit(job, key=f"seed-{number}-{id(jobs)}", pure=False): number
            for number, job in jobs.items()
        }
        for future in as_completed(futures, raise_errors=False):
            error = future.exception()
            if error is None:
                yield futures[future], future.result()
            elif type(error).__name__ == "KilledWorker":
                yield futures[future], "its worker was lost, and so was the next one"
            else:
                yield futures[future], f"{type(error).__name__}: {' '.join(str(error).split())}"
            future.release()


class Held:
    """Parts of something, each on the worker that made it: a lost worker's are made again.

    Args:
        client: Connected to the scheduler.
        parts: Of each part.
    """

    def __init__(self, client: Client, parts: Sequence[Future]) -> None:
        self._client, self._parts = client, parts

    def each(self, function: Callable[..., Result], *shared: Any) -> list[Result]:
        """``function(part, *shared)`` of each part, in order.

        Raises:
            RunError: The workers of a part were lost twice.
        """
        sent: list[Any] = [
            cast("list[Future]", self._client.scatter([each], broadcast=True, hash=False))[0]
            for each in shared
        ]
        asked = [self._client.submit(function, part, *sent, pure=False) for part in self._parts]
        try:
            return cast("list[Result]", self._client.gather(asked))
        except (KilledWorker, FutureCancelledError):
            raise RunError(
                "a worker was lost, and so was the next one: are they short of memory?"
            ) from None


@contextmanager
def cluster_at(where: str) -> Iterator[Cluster]:
    """Yield the workers of a scheduler.

    Args:
        where: Its address, as ``tcp://10.0.0.1:8786``, or its scheduler file.

    Raises:
        ValueError: It does not answer, or has no workers (one line).
    """
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


def _standing(theirs: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    return {**theirs(), "daemon": multiprocessing.current_process().daemon}
