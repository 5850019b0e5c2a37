"""Many seeds of one scenario, in parallel, each method scored on every one.

A seed is a run in a process of its own: what befalls it does not touch the others. Its figures are
kept in the comparison's folder as soon as it ends, so an interrupted comparison goes on where it
was when the same command is given again, and more seeds can be added later.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.evaluation.comparison import COLUMNS, average_precision, found_at, plot
from analysis.methods.registry import GROUP
from scenarios.experiment import Progress, run_config, run_experiment
from scenarios.scenario import load_scenario
from scenarios.settings import Settings
from scenarios.traffic import capture_file
from testbed.fabric.paths import Paths, pointers
from testbed.faults.specification import fault_file
from testbed.record.columns import read_columns, write_columns
from testbed.record.run import RunDirectory, RunError

__all__ = ["Comparison", "compare", "default_folder", "parse_seeds"]

_SETTINGS = "comparison.json"


@dataclass(frozen=True)
class Comparison:
    """The rows of the seeds that ran (`comparison.COLUMNS`), and why others did not."""

    rows: Mapping[str, Any]
    failures: Mapping[int, str]


def parse_seeds(text: str) -> list[int]:
    """Seeds such as ``1-50`` or ``1,2,10-12``, ascending, each once.

    Raises:
        ValueError: The text is none.
    """
    seeds: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or part.strip().endswith("-"):
            raise ValueError(f"--seeds {text!r}: {part.strip()!r} is no seed: use 1-50 or 1,2,7")
        low, high = int(first), int(last or first)
        if high < low or high - low >= 100_000 or high >= 2**32:
            raise ValueError(f"--seeds {text!r}: {part.strip()!r} is no range of seeds")
        seeds.update(range(low, high + 1))
    return sorted(seeds)


def default_folder(name: str, settings: Settings, methods: Sequence[str]) -> Path:
    """``runs/compare-<scenario>-<key>``, the key being that of everything but the seeds."""
    key = json.dumps(_key(name, settings, methods), sort_keys=True)
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return Path("runs") / f"compare-{Path(name).stem}-{digest}"


def compare(
    name: str,
    settings: Settings,
    seeds: Sequence[int],
    methods: Sequence[str],
    folder: Path,
    progress: Progress,
) -> Comparison:
    """Run every seed that ``folder`` does not hold yet; write ``results.parquet`` and ``f1.png``.

    Real networks run one at a time, others on as many processors as there are.

    Raises:
        ValueError: ``folder`` holds another comparison or cannot be written, or no seed ran.
        KeyboardInterrupt: Finished seeds are kept; a note on the exception says how to go on.
    """
    _claim(folder, _key(name, settings, methods))
    with _alone(folder):
        todo = [seed for seed in seeds if not _file(folder, seed).exists()]
        failures = _run(name, settings, todo, methods, folder, len(seeds), progress)
    done = [seed for seed in seeds if seed not in failures]
    if not done:
        seed, reason = next(iter(failures.items()))
        raise ValueError(f"no seed ran: seed {seed}: {reason}")
    rows = _join([read_columns(_file(folder, seed)) for seed in done])
    _write(folder / "results.parquet", rows)
    title = f"{Path(name).stem}, {_described(settings)}, {len(done)} runs"
    plot(rows, title, folder / "f1.png")
    return Comparison(rows, failures)


def _key(name: str, settings: Settings, methods: Sequence[str]) -> dict[str, Any]:
    """All that decides the figures of a seed: settings and the content of the files they name,
    versions, methods and the code itself."""
    key = run_config(name, replace(settings, seed=0)) | {"methods": list(methods)}
    key["code_sha256"] = _code_digest()
    files = {
        "scenario": Path(name) if name.endswith(".py") else None,
        "faults": fault_file(settings.faults),
        "traffic": capture_file(settings.traffic),
    }
    for what, path in files.items():
        if path is not None and path.is_file():  # each seed says so if it is none
            with path.open("rb") as file:
                key[f"{what}_sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    plugged = {point.name: point.dist for point in entry_points(group=GROUP)}
    key["plugged_in"] = {
        method: f"{dist.name} {dist.version}" for method in methods if (dist := plugged.get(method))
    }
    return key


@cache
def _code_digest() -> str:
    """Of all sources and tables: figures of other code are not mixed in silently."""
    root, digest = Path(__file__).parent.parent, hashlib.sha256()
    for package in ("analysis", "scenarios", "testbed"):
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".c", ".h", ".txt"):
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _claim(folder: Path, key: Mapping[str, Any]) -> None:
    """Make the folder, or go on in one of the same key."""
    held = folder / _SETTINGS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if held.is_file():
            if json.loads(held.read_text()) != json.loads(json.dumps(key)):
                raise RunError(
                    f"{folder} holds a comparison of other settings or code: choose another"
                )
        elif any(folder.iterdir()):
            raise RunError(f"{folder} exists and is no comparison: choose another")
        else:
            held.write_text(json.dumps(key, indent=2) + "\n")
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}") from None
    except json.JSONDecodeError:
        raise RunError(f"{held} is damaged: remove {folder}") from None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second command out of the folder, and leave nothing of ended processes in it."""
    with (folder / _SETTINGS).open() as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"another command is at work in {folder}: wait for it") from None
        try:
            yield
        finally:
            for left in folder.glob(".seed-*"):
                shutil.rmtree(left, ignore_errors=True)
            for left in folder.glob("*.partial"):
                left.unlink(missing_ok=True)


def _file(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}.parquet"


# Long: starting, stopping and tidying up share the processes and their lock.
def _run(
    name: str,
    settings: Settings,
    seeds: Sequence[int],
    methods: Sequence[str],
    folder: Path,
    n_all: int,
    progress: Progress,
) -> dict[int, str]:
    """Run seeds, each in a process of its own; what went wrong, by seed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scenarios.compare"])
    failures: dict[int, str] = {}
    running: set[BaseProcess] = set()
    lock, stopped = threading.Lock(), False

    def one(seed: int) -> str | None:
        receive, send = context.Pipe(duplex=False)
        process = context.Process(
            target=_run_seed, args=(name, replace(settings, seed=seed), methods, folder, send)
        )
        with lock:
            if stopped:
                return None
            process.start()
            running.add(process)
        send.close()
        try:
            said = receive.recv()
        except EOFError:  # it died without a word
            process.join()
            said = f"its process ended with exit code {process.exitcode}"
        process.join()
        with lock:
            running.discard(process)
        return said

    done = n_all - len(seeds)
    progress(f"seeds: {done} of {n_all}", done / n_all)
    pool = ThreadPoolExecutor(1 if settings.real_time else os.cpu_count())
    try:
        futures = {pool.submit(one, seed): seed for seed in seeds}
        for future in as_completed(futures):
            said = future.result()
            if said is not None:
                failures[futures[future]] = said
            done += 1
            progress(f"seeds: {done} of {n_all}", done / n_all)
    except KeyboardInterrupt as stop:
        with lock:
            stopped = True
            for process in running:
                process.terminate()
        kept = n_all - sum(not _file(folder, seed).exists() for seed in seeds)
        stop.add_note(
            f"{kept} of {n_all} seeds are kept in {folder}: the same command goes on from there"
        )
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        for seed in seeds:  # one stopped before it could tidy up has not failed
            if seed not in failures:
                _log(folder, seed).unlink(missing_ok=True)
    return dict(sorted(failures.items()))


def _run_seed(
    name: str, settings: Settings, methods: Sequence[str], folder: Path, send: Connection
) -> None:
    """In a process of its own: run a seed and keep its rows; send None, or what went wrong.

    What it and its libraries say on standard error stays in a file if it fails.
    """
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, _interrupt)
    seed = settings.seed
    log = _log(folder, seed)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".seed-{seed}-") as place:
            path = Path(place) / "run"
            run_experiment(name, load_scenario(name), settings, path, _quiet, methods)
            _write(_file(folder, seed), _rows(RunDirectory(path), seed))
        log.unlink()
        send.send(None)
    except KeyboardInterrupt:
        log.unlink(missing_ok=True)
        send.send("interrupted")
    except Exception as error:
        traceback.print_exc()
        text = " ".join(str(error).split()) or "no reason given"
        send.send(text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}")


def _log(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}-failure.txt"


def _quiet(what: str, share: float) -> None:
    """One bar shows all seeds."""


def _interrupt(*_: object) -> None:
    """Tidy up once; a second signal does not disturb that."""
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, lambda *_: None)
    raise KeyboardInterrupt


def _rows(run: RunDirectory, seed: int) -> dict[str, Any]:
    """A finished run's figures: a row for each method."""
    faulty: npt.NDArray[np.bool_] = np.asarray(run.table("links")["faulty"], np.bool_)
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for method, entry in run.json("summary.json")["methods"].items():
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


def _join(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of all tables, in order."""
    joined: dict[str, Any] = {}
    for name in COLUMNS:
        parts = [table[name] for table in tables]
        if isinstance(parts[0], Paths):
            lengths = np.concatenate([part.length for part in parts])
            ptr = pointers(lengths)
            joined[name] = Paths(ptr, np.concatenate([part.links for part in parts]))
        elif isinstance(parts[0], list):
            joined[name] = [value for part in parts for value in part]
        else:
            joined[name] = np.concatenate(parts)
    return joined


def _write(path: Path, rows: Mapping[str, Any]) -> None:
    partial = path.with_name(f"{path.name}.partial")
    write_columns(partial, rows)
    partial.replace(path)


def _described(settings: Settings) -> str:
    """The settings in a few words, for the plot."""
    where = f"K={settings.k}" if settings.topology == "fat-tree" else settings.topology
    return f"{where}, faults {settings.faults}, {settings.traffic} traffic, {settings.backend}"
