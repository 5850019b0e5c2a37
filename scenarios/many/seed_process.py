"""A piece of work in a process of its own: what befalls it does not touch the others."""

from __future__ import annotations

import math
import multiprocessing
import os
import select
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from analysis.evaluation.comparison import COLUMNS, average_precision, found_at
from analysis.methods.parameters import Parameters
from scenarios.experiment.errors import message_of
from scenarios.experiment.run import run_experiment
from scenarios.experiment.scenario import load_scenario
from scenarios.experiment.settings import Settings
from scenarios.process.signals import SIGNALS, tidily
from testbed.errors import UserError
from testbed.fabric.paths import Paths, pointers
from testbed.record.columns import write_columns
from testbed.record.run import RunDirectory

_running: set[BaseProcess] = set()
_lock = threading.Condition()
_ended = False


@dataclass(frozen=True)
class Outcome:
    """What became of a piece of work.

    Attributes:
        rows: The file of its rows, None if it failed; of a seed `comparison.COLUMNS`.
        reason: Why it failed, in one line.
        log: What it and its libraries then said on standard error.
        seconds: Of the processor.
    """

    rows: bytes | None
    reason: str = ""
    log: str = ""
    seconds: float = 0.0


Work = Callable[[Path], bytes]
"""Makes a file of rows, with its own files in a folder."""


def run_seed(
    name: str, settings: Settings, methods: Sequence[str], parameters: Parameters, folder: Path
) -> Outcome:
    """Run a scenario in a process of its own, see `run_apart`."""
    work = partial(_seed_rows, name, settings, methods, parameters)
    return run_apart(work, folder, f"seed-{settings.seed}")


def run_apart(work: Work, folder: Path, name: str) -> Outcome:
    """Do a piece of work in a process of its own, with its files in ``folder`` meanwhile.

    That process ends with this one. Safe to call from several threads.
    """
    place, context = folder / f".{name}-{uuid4().hex[:8]}", _processes()
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(work, place, send))
    with _lock:
        if _ended:
            return Outcome(None, "interrupted")
        process.start()
        _running.add(process)
    send.close()
    try:
        outcome = receive.recv()
    except EOFError:  # it died without a word
        process.join()
        log = place / "log"
        said = log.read_text(errors="replace") if log.exists() else ""
        outcome = Outcome(None, f"its process ended with exit code {process.exitcode}", said)
    process.join()
    shutil.rmtree(place, ignore_errors=True)
    with _lock:
        _running.discard(process)
        _lock.notify_all()
    return outcome


def begin() -> None:
    """Work may begin, also after `end_all`."""
    global _ended
    with _lock:
        _ended = False


def end_all() -> None:
    """End what runs in processes of this one, tidily, and let nothing else begin."""
    global _ended
    with _lock:
        _ended = True
        for process in _running:
            process.terminate()
        _lock.wait_for(lambda: not _running)


def _processes() -> ForkServerContext:
    """What starts processes quickly: one process has imported everything, and is copied.

    Signals are for its copies, each of which takes them when it can tidy up; until then, and for
    the process that is copied, they are blocked.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scenarios.many.seed_process"])
    with _lock, _no_imports_from_the_current_folder():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            resource_tracker.ensure_running()  # outlives a hangup, too; unblocks other signals here
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


@contextmanager
def _no_imports_from_the_current_folder() -> Iterator[None]:
    """Start no Python in the block that imports modules from the current folder.

    `multiprocessing` starts it as ``python -c``, which does, unless this process has ``-P``, as
    that of a script or a notebook has not.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _work(work: Work, place: Path, send: Connection) -> None:
    """Do a piece of work and send what became of it."""
    try:
        tidily()  # a signal that came before is heard in here
        _end_with_the_reader(send)
        place.mkdir()
        with (place / "log").open("wb") as file:
            os.dup2(file.fileno(), 2)
        begun = time.process_time()  # of a copied process, which has used some
        rows = work(place)
        outcome = Outcome(rows, seconds=time.process_time() - begun)
    except KeyboardInterrupt:
        outcome = Outcome(None, "interrupted")
    except Exception as error:
        traceback.print_exc()
        reason = message_of(error) or "no reason given"
        if not isinstance(error, UserError | OSError):
            reason = f"{type(error).__name__}: {reason}"
        log = place / "log"
        outcome = Outcome(None, reason, log.read_text(errors="replace") if log.exists() else "")
    shutil.rmtree(place, ignore_errors=True)
    with suppress(OSError):  # nobody listens any more
        send.send(outcome)


def _seed_rows(
    name: str, settings: Settings, methods: Sequence[str], parameters: Parameters, place: Path
) -> bytes:
    path, scenario = place / "run", load_scenario(name)
    run_experiment(name, scenario, settings, path, methods, parameters=parameters)
    write_columns(place / "rows.parquet", _rows(RunDirectory(path), settings.seed))
    return (place / "rows.parquet").read_bytes()


def _end_with_the_reader(send: Connection) -> None:
    """End this process when nobody is left to read what it sends: its command was killed."""
    gone = select.poll()
    gone.register(send.fileno(), 0)  # errors alone

    def watch() -> None:
        gone.poll()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="end with the reader", daemon=True).start()


def _quiet(what: str, share: float) -> None:
    """One bar shows all seeds."""


def _rows(run: RunDirectory, seed: int) -> dict[str, Any]:
    """A finished run's figures: a row for each method."""
    faulty: npt.NDArray[np.bool_] = np.asarray(run.table("links")["faulty"], np.bool_)
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for method, entry in run.summary["methods"].items():
        native = entry["native"]
        score, truth = run.table(f"diagnoses/{method}")["score"], faulty
        if native == "undirected":
            score, truth = np.maximum(score[::2], score[1::2]), faulty[::2] | faulty[1::2]
        found = found_at(score, truth)
        own = entry[native]
        figures = {
            "seed": seed,
            "method": method,
            "native": native,
            "faulty": int(truth.sum()),
            "undirected_f1": entry["undirected"]["f1"],
            "average_precision": average_precision(found),
            "fed": entry.get("fed", np.nan),
            "found_at": found,
        }
        for column in COLUMNS:
            value = figures.get(column, own.get(column, entry.get(column)))
            columns[column].append(math.nan if value is None else value)  # of undefined precision
    lengths = [len(found) for found in columns["found_at"]]
    links = np.concatenate([np.zeros(0, np.int32), *columns["found_at"]])
    ptr = pointers(lengths)
    return columns | {"found_at": Paths(ptr, links)}
