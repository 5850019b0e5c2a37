"""One seed of a comparison, in a process of its own: what befalls it does not touch the others."""

from __future__ import annotations

import multiprocessing
import os
import select
import shutil
import signal
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from scenarios.experiment import run_experiment
from scenarios.scenario import load_scenario
from scenarios.settings import Settings
from scenarios.stopping import SIGNALS, tidily
from testbed.fabric.paths import Paths, pointers
from testbed.record.columns import write_columns
from testbed.record.run import RunDirectory

__all__ = ["Outcome", "begin", "end_all", "run_seed"]

_running: set[BaseProcess] = set()
_lock = threading.Condition()
_ended = False


@dataclass(frozen=True)
class Outcome:
    """What became of a seed.

    Attributes:
        rows: The file of its rows (`comparison.COLUMNS`), None if it failed.
        reason: Why it failed, in one line.
        log: What it and its libraries then said on standard error.
    """

    rows: bytes | None
    reason: str = ""
    log: str = ""


def run_seed(
    name: str, settings: Settings, methods: Sequence[str], parameters: Parameters, folder: Path
) -> Outcome:
    """Run a scenario in a process of its own, with its files in ``folder`` meanwhile.

    That process ends with this one. Safe to call from several threads.
    """
    place, context = folder / f".seed-{settings.seed}-{uuid4().hex[:8]}", _processes()
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(name, settings, methods, parameters, place, send))
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
    """Seeds may run, also after `end_all`."""
    global _ended
    with _lock:
        _ended = False


def end_all() -> None:
    """End the seeds that run in processes of this one, tidily, and let no other begin."""
    global _ended
    with _lock:
        _ended = True
        for process in _running:
            process.terminate()
        _lock.wait_for(lambda: not _running)


def _processes() -> ForkServerContext:
    """What starts processes quickly: one process has imported everything, and is copied.

    Signals are for the seeds, each of which takes them when it can tidy up; until then, and for the
    process that is copied, they are blocked.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scenarios.seed_process"])
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        resource_tracker.ensure_running()  # outlives a hangup, too; unblocks the other signals here
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def _work(
    name: str,
    settings: Settings,
    methods: Sequence[str],
    parameters: Parameters,
    place: Path,
    send: Connection,
) -> None:
    """Run a seed and send what became of it."""
    try:
        tidily()  # a signal that came before is heard in here
        _end_with_the_reader(send)
        place.mkdir()
        with (place / "log").open("wb") as file:
            os.dup2(file.fileno(), 2)
        path, scenario = place / "run", load_scenario(name)
        run_experiment(name, scenario, settings, path, _quiet, methods, parameters=parameters)
        write_columns(place / "rows", _rows(RunDirectory(path), settings.seed))
        outcome = Outcome((place / "rows").read_bytes())
    except KeyboardInterrupt:
        outcome = Outcome(None, "interrupted")
    except Exception as error:
        traceback.print_exc()
        text = " ".join(str(error).split()) or "no reason given"
        reason = text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"
        log = place / "log"
        outcome = Outcome(None, reason, log.read_text(errors="replace") if log.exists() else "")
    shutil.rmtree(place, ignore_errors=True)
    with suppress(OSError):  # nobody listens any more
        send.send(outcome)


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
            "found_at": found,
        }
        for column in COLUMNS:
            value = figures.get(column, own.get(column, entry.get(column)))
            columns[column].append(value)
    lengths = [len(found) for found in columns["found_at"]]
    links = np.concatenate([np.zeros(0, np.int32), *columns["found_at"]])
    ptr = pointers(lengths)
    return columns | {"found_at": Paths(ptr, links)}
