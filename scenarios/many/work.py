# SPDX-License-Identifier: Apache-2.0
"""Does pieces of work in separate processes, and keeps each result in a folder as soon as it is
there.

Comparisons (`scenarios.many.compare`) and reproductions (`scenarios.papers.reproduce`) consist of
such pieces, each with a key; the same command continues an interrupted one. Each piece has its own
process, so that a crash or leaked memory does not affect the others.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import select
import shutil
import signal
import sys
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
from scenarios.process.signals import raise_on_signals
from testbed.errors import UserError
from testbed.record.atomic import FolderError, at_work, atomic_write, held, need_no_links
from testbed.record.outputs import need_folder
from testbed.record.run import RunError
from testbed.signals import SIGNALS, signals_blocked

if TYPE_CHECKING:
    from analysis.methods.partitions import Parts

Result = TypeVar("Result")

Work = Callable[[Path], bytes]
"""A piece of work: a function of a temporary folder that returns the content of the piece's file.
It must be picklable, because another process calls it."""

_PRELOADED = "scenarios.many.preloaded"
_starting = threading.Lock()


@dataclass(frozen=True)
class Outcome:
    """The outcome of a piece of work.

    Attributes:
        content: The content of the piece's file; None if the piece failed.
        reason: Why the piece failed, in one line.
        log: The text that its process wrote on standard error before it failed.
        seconds: Processor time in seconds.
    """

    content: bytes | None
    reason: str = ""
    log: str = ""
    seconds: float = 0.0


Outcomes: TypeAlias = Generator[tuple[str, Outcome], None, None]


class Workers(Protocol):
    """Workers that do several pieces of work at a time: `LocalWorkers`, or a cluster."""

    @property
    def dashboard(self) -> str:
        """Return the address of a page that shows the work; empty if there is none."""
        ...

    def check(self, ours: Mapping[str, Any], theirs: Callable[[], Mapping[str, Any]]) -> None:
        """Check that ``theirs`` returns the values of ``ours`` on every worker.

        Raises:
            RunError: A worker returns other values, or may not start processes (one line).
        """
        ...

    def outcomes(self, pieces: Mapping[str, Work], folder: Path) -> Outcomes:
        """Yield keys and outcomes as pieces end, in any order; pieces that still run when the
        iterator is closed are ended. ``folder`` holds the pieces' temporary folders."""
        ...

    def held(self, load: Callable[[Path], Any], files: Sequence[Path]) -> Parts:
        """Return what ``load`` makes of each file, held by the workers, all of which must see the
        files."""
        ...


@contextmanager
def hold_folder(
    folder: Path, mark: str, what: str, is_key: Callable[[Mapping[str, Any]], bool]
) -> Iterator[Path]:
    """Make a folder, or use an existing one, and keep other commands out of it during the block.

    Args:
        mark: Name of the file that holds the folder's key, see `is_of`; empty in a new folder.
        what: What such a folder holds, for messages, such as "comparison".
        is_key: Returns True if an object may be the key of such a folder; a file of the name
            ``mark`` alone does not make a folder one of this program.

    Yields:
        The path of the file ``mark``.

    Raises:
        RunError: Another command uses the folder, it holds something else or a link, or it cannot
            be written.
    """
    file = folder / mark

    def own(folder: Path) -> bool:
        """Return True if the folder has a key, or was made by a command that ended at once."""
        if file.is_symlink():  # `need_no_links` says so
            return True
        try:
            text = file.read_bytes() if file.is_file() else None
            content = json.loads(text) if text else None
        except (ValueError, RecursionError):
            raise RunError(f"{file} is damaged: remove {folder}, or choose another") from None
        if isinstance(content, dict):
            return is_key(content)
        return text == b"" and os.listdir(folder) == [mark]

    try:
        if at_work(folder):
            raise RunError(f"another command writes to {folder}: wait for it")
        need_folder(folder, own, what)
        folder.mkdir(parents=True, exist_ok=True)
        need_no_links(folder)
        file.touch()
    except FolderError as error:
        raise RunError(str(error)) from None
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}") from None
    with held(file, folder):
        yield file


def is_of(file: Path, key: Mapping[str, Any]) -> bool:
    """Return True if a folder's file holds this key; the file of a new folder gets it.

    Raises:
        RunError: The file is damaged, or cannot be written.
    """
    try:
        text = file.read_text()
        if not text:
            write_key(file, key)
            return True
        return json.loads(text) == json.loads(json.dumps(key))
    except OSError as error:
        raise RunError(f"cannot write {file.parent}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise RunError(f"{file} is damaged: remove {file.parent}") from None


def write_key(file: Path, key: Mapping[str, Any]) -> None:
    """Write the key of a folder into its file, which stays the one that this process has locked.

    It is written at once, and spaces replace the rest of a longer one: whenever the process is
    killed, the file is empty or readable JSON.

    Raises:
        OSError: It cannot be written.
    """
    text = (json.dumps(key, indent=2) + "\n").encode()
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        os.pwrite(descriptor, text.ljust(os.fstat(descriptor).st_size), 0)
    finally:
        os.close(descriptor)


def complete(
    pieces: Mapping[str, Work],
    n_before: int,
    folder: Path,
    workers: Workers,
    kind: str,
    progress: Progress,
    kept: Callable[[str, Outcome], None] = lambda key, outcome: None,
) -> dict[str, str]:
    """Do pieces of work, and keep the file of each, ``KEY.parquet``, as soon as it is done.

    The text that a failed piece wrote on standard error is kept in ``KEY-failure.txt``.

    Args:
        pieces: The pieces that the folder lacks, by their keys.
        n_before: Number of pieces that the folder has already.
        kind: What the pieces are, in the plural, for messages: "seeds".
        kept: Called when the file of a piece was written.

    Returns:
        Why pieces failed, each in one line, by key in the order of ``pieces``.

    Raises:
        KeyboardInterrupt: A note on it says how many pieces are kept and how to continue.
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
    except KeyboardInterrupt as stop:  # perhaps after a file appeared, before it was counted
        kept_now = n_before + sum((folder / f"{key}.parquet").is_file() for key in pieces)
        stop.add_note(
            f"{kept_now} of {n} {kind} are kept in {folder}: the same command continues from there"
        )
        raise
    finally:  # remove the files of processes that were killed
        for left in folder.glob(".*-????????"):
            shutil.rmtree(left, ignore_errors=True)
        for left in folder.glob(".partial-*"):
            left.unlink(missing_ok=True)
    return {key: failures[key] for key in pieces if key in failures}


class LocalWorkers:
    """Processes and threads of this machine; they listen on no network.

    Args:
        processes: Number of processes that work at the same time.
    """

    dashboard = ""

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def check(self, ours: Mapping[str, Any], theirs: Callable[[], Mapping[str, Any]]) -> None:
        """Check nothing: the workers use the files of this command."""

    def outcomes(self, pieces: Mapping[str, Work], folder: Path) -> Outcomes:
        """Yield keys and outcomes as pieces end; each piece has a process and a temporary folder in
        ``folder``."""
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
        """Return what ``load`` makes of each file, held in this process and used by threads."""
        pool = ThreadPool(self._processes)  # of compiled code; it does not outlive this process
        return _Held(pool, pool.map(load, files, chunksize=1))


class _Held:
    """Parts of something that this process holds in memory."""

    def __init__(self, pool: ThreadPool, parts: Sequence[Any]) -> None:
        self._pool, self._parts = pool, parts

    def each(self, function: Callable[..., Result], *shared: Any) -> list[Result]:
        """Return ``function(part, *shared)`` for each part, in order; threads call it."""
        return self._pool.map(lambda part: function(part, *shared), self._parts, chunksize=1)


def do_in_process(work: Work, folder: Path, key: str) -> Outcome:
    """Do a piece of work in a separate process, and return its outcome. Safe to call from several
    threads."""
    return _Process(work, folder, key).outcome()


class _Process:
    """A process that does a piece of work, with a temporary folder in ``folder``. It ends when the
    process that reads its outcome ends."""

    def __init__(self, work: Work, folder: Path, key: str) -> None:
        self._place, context = folder / f".{key}-{uuid4().hex[:8]}", _processes()
        self.receive, send = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(work, self._place, send))
        with _without_script():
            self._process.start()
        self.terminate = self._process.terminate
        send.close()

    def outcome(self) -> Outcome:
        """Wait for the end of the process, and return the outcome that it sent."""
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
        """Wait for the end of the process without reading its outcome, and remove its folder."""
        self.receive.close()
        self._process.join()
        shutil.rmtree(self._place, ignore_errors=True)


@contextmanager
def _without_script() -> Iterator[None]:
    """Return a context manager whose block starts processes that do not run the user's script.

    `multiprocessing` runs it again in each process, for functions that are defined there. Work has
    none, and a script without ``if __name__ == "__main__"`` would start the same work again.
    """
    main = vars(sys.modules["__main__"])
    with _starting:
        script = main.pop("__file__", None)
        try:
            yield
        finally:
            if script is not None:
                main["__file__"] = script


def _processes() -> ForkServerContext:
    """Return a context that starts processes quickly: a server that has imported nearly all
    modules, and copies itself for each process.

    `concurrent.futures.ProcessPoolExecutor` is no alternative: when a process dies, all pieces
    fail, and it does not report which one was the cause.

    Signals are blocked in the server, and in each copy until it is ready to clean up. The server
    must not import from the current folder: `multiprocessing` starts it as ``python -c``, which
    does so unless this process has ``-P``, and scripts and notebooks do not have it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    with _starting:
        safe = os.environ.get("PYTHONSAFEPATH")
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        os.environ["PYTHONSAFEPATH"] = "1"
        try:
            resource_tracker.ensure_running()  # survives a hangup; this call unblocks signals
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
    """Do a piece of work in its process, and send the outcome."""
    try:
        raise_on_signals()  # a signal that came earlier is raised here
        _end_with_the_reader(send)
        place.mkdir()
        with (place / "log").open("wb") as file:
            os.dup2(file.fileno(), 2)
        gc.set_threshold(1_000_000, 20, 100)  # as in a command: most objects live long
        begun = time.process_time()  # a copied process begins with the server's time
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
    with suppress(OSError):  # the reader has ended
        send.send(outcome)


def _log(place: Path) -> str:
    """Return the text that a process wrote on standard error."""
    log = place / "log"
    return log.read_text(errors="replace") if log.exists() else ""


def _end_with_the_reader(send: Connection) -> None:
    """End this process when the reader of its outcome ends, for example because the command was
    killed."""
    gone = select.poll()
    gone.register(send.fileno(), 0)  # report errors only

    def watch() -> None:
        """Wait until the reader has ended, then end this process by SIGTERM."""
        gone.poll()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="end with the reader", daemon=True).start()
