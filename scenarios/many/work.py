"""Pieces of work, each with a key: done in processes, and kept in a folder as soon as it is done.

Comparisons (`scenarios.many.compare`) and reproductions (`scenarios.papers.reproduce`) are such: an
interrupted command goes on where it was when it is given again. A piece has a process of its own,
so that a crash, or the memory it leaves, does not affect the others.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from uuid import uuid4

from scenarios.experiment.errors import message_of
from scenarios.experiment.observer import Progress
from scenarios.process.signals import SIGNALS, raise_on_signals, signals_blocked
from testbed.errors import UserError
from testbed.record.atomic import FolderError, at_work, atomic_write, held, need_no_links
from testbed.record.run import RunError

if TYPE_CHECKING:
    from analysis.methods.partitions import Parts

Result = TypeVar("Result")

Work = Callable[[Path], bytes]
"""Returns the content of a piece's file; it gets a folder for files of its own meanwhile. It must
be picklable, as other processes do it."""

_PRELOADED = "scenarios.many.compare"  # imports nearly all that pieces need
_starting = threading.Lock()


@dataclass(frozen=True)
class Outcome:
    """What became of a piece of work.

    Attributes:
        content: Of its file; None if it failed.
        reason: Why it failed, in one line.
        log: What its process had written on standard error by then.
        seconds: Processor time.
    """

    content: bytes | None
    reason: str = ""
    log: str = ""
    seconds: float = 0.0


Outcomes: TypeAlias = Generator[tuple[str, Outcome], None, None]


class Workers(Protocol):
    """What does pieces of work, several at a time: `LocalWorkers`, or a cluster."""

    @property
    def dashboard(self) -> str:
        """The address where one can watch the work; empty if there is none."""
        ...

    def check(self, ours: Mapping[str, Any], theirs: Callable[[], Mapping[str, Any]]) -> None:
        """Check that ``theirs`` returns on every worker what was found here.

        Raises:
            RunError: One finds something else, or may not start processes (one line).
        """
        ...

    def outcomes(self, pieces: Mapping[str, Work], folder: Path) -> Outcomes:
        """Yield keys and outcomes as pieces end, in any order; what still runs when the iterator is
        closed is ended. ``folder`` holds the pieces' own folders."""
        ...

    def held(self, load: Callable[[Path], Any], files: Sequence[Path]) -> Parts:
        """Return what ``load`` makes of each file, which all workers must see."""
        ...


@contextmanager
def hold_folder(folder: Path, mark: str, what: str) -> Iterator[Path]:
    """Make a folder, or go on in an old one, and keep other commands out of it during the block.

    Args:
        mark: Name of the file that holds the folder's key, see `is_of`; empty in a new folder.
        what: What such a folder holds, for its user: "comparison".

    Yields:
        The path of the file ``mark``.

    Raises:
        RunError: Another command is at work there, it holds something else or a link, or cannot be
            written.
    """
    file = folder / mark
    if folder.is_symlink():
        raise RunError(f"{folder} is a link: name the folder that it leads to")
    try:
        if at_work(folder):
            raise RunError(f"another command is at work in {folder}: wait for it")
        folder.mkdir(parents=True, exist_ok=True)
        there = os.listdir(folder)
        if there and mark not in there:
            raise RunError(f"{folder} exists and is no {what}: choose another")
        need_no_links(folder)
        file.touch()
    except FolderError as error:
        raise RunError(str(error)) from None
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}") from None
    with held(file, folder):
        yield file


def is_of(file: Path, key: Mapping[str, Any]) -> bool:
    """Return whether a folder's file holds this key; a new folder's file gets it.

    Raises:
        RunError: The file is damaged, or cannot be written.
    """
    try:
        text = file.read_text()
        if not text:
            file.write_text(json.dumps(key, indent=2) + "\n")
            return True
        return json.loads(text) == json.loads(json.dumps(key))
    except OSError as error:
        raise RunError(f"cannot write {file.parent}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise RunError(f"{file} is damaged: remove {file.parent}") from None


def complete(
    pieces: Mapping[str, Work],
    n_before: int,
    folder: Path,
    workers: Workers,
    kind: str,
    progress: Progress,
    kept: Callable[[str, Outcome], None] = lambda key, outcome: None,
) -> dict[str, str]:
    """Do pieces of work and keep the file of each, ``KEY.parquet``, as soon as it is done.

    What a failed piece had written on standard error is kept in ``KEY-failure.txt``.

    Args:
        pieces: Those that the folder lacks, by their keys.
        n_before: How many others it has.
        kind: What pieces are, in the plural: "seeds".
        kept: Called when the file of a piece is kept.

    Returns:
        Why pieces failed, each in one line, by key in the order of ``pieces``.

    Raises:
        KeyboardInterrupt: A note on it says how many are kept and how to go on.
    """
    n, ended, failures = n_before + len(pieces), n_before, dict[str, str]()
    where = workers.dashboard and f" ({workers.dashboard})"
    try:
        with closing(workers.outcomes(pieces, folder)) as outcomes:
            progress(f"{kind}: {ended} of {n}{where}", ended / n)
            for key, outcome in outcomes:
                log = folder / f"{key}-failure.txt"
                if outcome.content is None:
                    failures[key] = outcome.reason
                    log.write_text(outcome.log)
                else:
                    with atomic_write(folder / f"{key}.parquet") as new:
                        new.write_bytes(outcome.content)
                    log.unlink(missing_ok=True)
                    kept(key, outcome)
                ended += 1
                progress(f"{kind}: {ended} of {n}{where}", ended / n)
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"{ended - len(failures)} of {n} {kind} are kept in {folder}: the same command goes on "
            "from there"
        )
        raise
    finally:  # of processes that were killed
        for left in folder.glob(".*-????????"):
            shutil.rmtree(left, ignore_errors=True)
        for left in folder.glob(".partial-*"):
            left.unlink(missing_ok=True)
    return {key: failures[key] for key in pieces if key in failures}


class LocalWorkers:
    """Processes and threads of this machine. They listen nowhere.

    Args:
        processes: How many work at a time.
    """

    dashboard = ""

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def check(self, ours: Mapping[str, Any], theirs: Callable[[], Mapping[str, Any]]) -> None:
        """Do nothing: this machine has the files that the command has."""

    def outcomes(self, pieces: Mapping[str, Work], folder: Path) -> Outcomes:
        waiting = iter(pieces.items())
        running: dict[Any, tuple[str, _Process]] = {}
        try:
            while True:
                for key, work in islice(waiting, self._processes - len(running)):
                    with signals_blocked():
                        process = _Process(work, folder, key)
                        running[process.receive] = key, process
                if not running:
                    return
                for connection in wait(list(running)):
                    key, process = running[connection]
                    outcome = process.outcome()
                    del running[connection]
                    yield key, outcome
        finally:
            for _, process in running.values():
                process.terminate()
            for _, process in running.values():
                process.forget()

    def held(self, load: Callable[[Path], Any], files: Sequence[Path]) -> Parts:
        pool = ThreadPool(self._processes)  # of compiled code; it does not outlive this process
        return _Held(pool, pool.map(load, files, chunksize=1))


class _Held:
    def __init__(self, pool: ThreadPool, parts: Sequence[Any]) -> None:
        self._pool, self._parts = pool, parts

    def each(self, function: Callable[..., Result], *shared: Any) -> list[Result]:
        return self._pool.map(lambda part: function(part, *shared), self._parts, chunksize=1)


def do_in_process(work: Work, folder: Path, key: str) -> Outcome:
    """Do a piece of work in a process of its own. Safe to call from several threads."""
    return _Process(work, folder, key).outcome()


class _Process:
    """A process that does a piece of work, with its files in ``folder`` meanwhile. It ends when
    nobody is left to read its outcome."""

    def __init__(self, work: Work, folder: Path, key: str) -> None:
        self._place, context = folder / f".{key}-{uuid4().hex[:8]}", _processes()
        self.receive, send = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(work, self._place, send))
        self._process.start()
        self.terminate = self._process.terminate
        send.close()

    def outcome(self) -> Outcome:
        """Wait for the end of the process, and return what it sent."""
        try:
            outcome = self.receive.recv()
            self._process.join()
        except EOFError:
            self._process.join()
            reason = f"its process ended with exit code {self._process.exitcode}"
            outcome = Outcome(None, reason, _log(self._place))
        self.forget()
        return outcome

    def forget(self) -> None:
        """Read no outcome, and wait for the end of the process."""
        self.receive.close()
        self._process.join()
        shutil.rmtree(self._place, ignore_errors=True)


def _processes() -> ForkServerContext:
    """Return what starts processes quickly: a server that has imported nearly everything, and of
    which each process is a copy.

    `concurrent.futures.ProcessPoolExecutor` would not do: when a process dies it fails all pieces
    and does not tell which it was.

    Signals are for the copies, each of which takes them when it can tidy up; until then, and for
    the server, they are blocked. No Python that starts here imports from the current folder:
    `multiprocessing` starts it as ``python -c``, which does unless this process has ``-P``, as that
    of a script or a notebook has not.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    with _starting:
        safe = os.environ.get("PYTHONSAFEPATH")
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        os.environ["PYTHONSAFEPATH"] = "1"
        try:
            resource_tracker.ensure_running()  # outlives a hangup, too; unblocks other signals here
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            forkserver.ensure_running()
        finally:
            if safe is None:
                del os.environ["PYTHONSAFEPATH"]
            else:
                os.environ["PYTHONSAFEPATH"] = safe
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return context


def _work(work: Work, place: Path, send: Connection) -> None:
    """Do a piece of work, in its process, and send the outcome."""
    try:
        raise_on_signals()  # a signal that came before is heard in here
        _end_with_the_reader(send)
        place.mkdir()
        with (place / "log").open("wb") as file:
            os.dup2(file.fileno(), 2)
        begun = time.process_time()  # of a copied process, which has used some
        content = work(place)
        outcome = Outcome(content, seconds=time.process_time() - begun)
    except KeyboardInterrupt:
        outcome = Outcome(None, "interrupted")
    except Exception as error:
        traceback.print_exc()
        reason = message_of(error) or "no reason given"
        if not isinstance(error, UserError | OSError):
            reason = f"{type(error).__name__}: {reason}"
        outcome = Outcome(None, reason, _log(place))
    shutil.rmtree(place, ignore_errors=True)
    with suppress(OSError):  # nobody listens any more
        send.send(outcome)


def _log(place: Path) -> str:
    log = place / "log"
    return log.read_text(errors="replace") if log.exists() else ""


def _end_with_the_reader(send: Connection) -> None:
    """End this process when nobody is left to read what it sends: its command was killed."""
    gone = select.poll()
    gone.register(send.fileno(), 0)  # errors alone

    def watch() -> None:
        gone.poll()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="end with the reader", daemon=True).start()
