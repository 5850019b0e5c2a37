"""Many seeds of one scenario, in parallel, each method scored on every one.

A seed is a run in a process of its own: what befalls it does not touch the others. Its figures are
kept in the comparison's folder as soon as it ends, so an interrupted comparison goes on where it
was when the same command is given again, and more seeds can be added later.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from analysis.evaluation.comparison import COLUMNS, plot
from analysis.methods.parameters import DEFAULTS, Parameters
from analysis.methods.registry import GROUP, build
from scenarios.experiment.estimate import estimate, need_memory
from scenarios.experiment.memory import available_bytes
from scenarios.experiment.observer import Progress
from scenarios.experiment.run import run_config
from scenarios.experiment.settings import Settings
from scenarios.experiment.traffic import capture_file, make_traffic, traffic_file
from scenarios.many.kept import alone, is_of
from scenarios.many.seed_process import Outcome, begin, end_all, run_seed
from scenarios.many.workers import Workers, own_folder, workers_of
from testbed.errors import UserError
from testbed.fabric.paths import Paths, pointers
from testbed.fabric.topologies import make_addressed, make_fabric
from testbed.faults.specification import fault_file
from testbed.record.columns import read_columns, write_columns
from testbed.record.json_files import document_text
from testbed.record.places import whole
from testbed.record.run import RunError
from testbed.record.schema import TableError

SETTINGS_FILE = "comparison.json"
_OF_PAPERS = ("pages", "plot", "results", "tables", "verdicts")
_OF_LIVE = ("net", "publisher", "server", "watched_run")
_PAGES = {Path("analysis/pages")}
_PAGES |= {Path(f"scenarios/live/{name}.py") for name in _OF_LIVE}
_PAGES |= {Path(f"scenarios/papers/{name}.py") for name in _OF_PAPERS}
_KINDS = {list: "texts", Paths: "lists", np.ndarray: "numbers"}
_TEXTS = ("method", "bench", "native", "parameters", "parameters_from")
_KIND_OF = dict.fromkeys(_TEXTS, "texts") | {"found_at": "lists"}  # the others are numbers


@dataclass(frozen=True)
class Comparison:
    """The rows of the seeds that ran (`comparison.COLUMNS`), and why others did not; of a replayed
    capture, what becomes of its frames (`testbed.traffic.replay.Account`)."""

    rows: Mapping[str, Any]
    failures: Mapping[int, str]
    capture: Mapping[str, Any] | None = None


def default_folder(
    name: str, settings: Settings, methods: Sequence[str], parameters: Parameters = DEFAULTS
) -> Path:
    """``runs/compare-<scenario>-<key>``, the key being that of everything but the seeds."""
    key = json.dumps(_key(name, settings, methods, parameters), sort_keys=True)
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return Path("runs") / f"compare-{Path(name).stem}-{digest}"


def compare(
    name: str,
    settings: Settings,
    seeds: Sequence[int],
    methods: Sequence[str],
    folder: Path,
    progress: Progress,
    parameters: Parameters = DEFAULTS,
    cluster: str | None = None,
) -> Comparison:
    """Run every seed that ``folder`` does not hold yet; write ``results.parquet`` and ``f1.png``.

    Methods are named in the grammar of `analysis.methods.parameters`; ``parameters`` are what they
    are made with where that leaves it open.

    Real networks run one at a time, others on as many processors as there are, or on the workers
    of ``cluster``, see `scenarios.many.cluster`.

    Raises:
        ValueError: ``folder`` holds another comparison, another command is at work there, it cannot
            be written, or no seed ran.
        KeyboardInterrupt: Finished seeds are kept; a note on the exception says how to go on.
    """
    if cluster is not None and settings.real_time:
        raise RunError("CLUSTER= is of simulated networks: a real one is run where the command is")
    capture = _account(settings, seeds[0], progress)
    every = _key(name, settings, methods, parameters)
    with _alone(folder, every):
        todo = [seed for seed in seeds if not _file(folder, seed).exists()]
        alone = settings
        if settings.backend == "virtual" and not settings.threads:
            alone = replace(settings, threads=1)  # seeds share the cores
        jobs = {
            seed: partial(
                _run,
                partial(run_seed, name, replace(alone, seed=seed), methods, parameters),
                None if cluster else folder,
            )
            for seed in todo
        }
        failures: dict[int, str] = {}
        if jobs:
            with workers_of(cluster, _at_once(settings)) as workers:
                theirs = partial(_key, name, settings, methods, parameters)
                workers.check(json.loads(json.dumps(every)), theirs)
                failures = _keep(workers, jobs, folder, len(seeds), progress)
        done = [seed for seed in seeds if seed not in failures]
        if not done:
            seed, reason = next(iter(failures.items()))
            raise UserError(f"no seed ran: seed {seed}: {reason}")
        rows = _join([_finished(folder, seed) for seed in done])
        write_columns(folder / "results.parquet", rows)
        title = f"{Path(name).stem}, {_described(settings)}, {len(done)} runs"
        with whole(folder / "f1.png") as drawn:
            plot(rows, title, drawn)
    return Comparison(rows, failures, capture)


def _account(settings: Settings, seed: int, progress: Progress) -> Mapping[str, Any] | None:
    """What becomes of a capture's frames, found out and said once and not by each seed."""
    if settings.backend == "flow" or capture_file(settings.traffic) is None:
        return None
    fabric = make_addressed(settings.topology, settings.k)
    settings = replace(settings, seed=seed)
    _, account = make_traffic(settings, fabric, lambda share: progress("capture", share))
    return None if account is None else account.as_dict()


def _key(
    name: str, settings: Settings, methods: Sequence[str], parameters: Parameters
) -> dict[str, Any]:
    """All that decides the figures of a seed: settings and the content of the files they name,
    versions, methods and the code itself."""
    key = run_config(name, replace(settings, seed=0)) | {"methods": list(methods)}
    built = [build(method, parameters) for method in methods]
    key["parameters"] = {
        each.name: {"values": each.parameters, "from": each.origin} for each in built
    }
    key["code_sha256"] = code_digest()
    files = {
        "scenario": Path(name) if name.endswith(".py") else None,
        "faults": fault_file(settings.faults),
        "traffic": traffic_file(settings.traffic),
        "packages": Path(__file__).parents[2] / "requirements.lock",
    }
    for what, path in files.items():
        if path is not None and path.is_file():  # each seed says so if it is none
            key[f"{what}_sha256"] = _digest(path)
    if named := {method.partition(":")[0] for method in methods} & parameters.files.keys():
        key["methods_sha256"] = {name: _digest(parameters.files[name]) for name in sorted(named)}
    plugged = {point.name: point.dist for point in entry_points(group=GROUP)}
    key["plugged_in"] = {
        method: f"{dist.name} {dist.version}"
        for method in methods
        if (dist := plugged.get(method.partition(":")[0]))
    }
    return key


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def code_digest() -> str:
    """Of all sources and tables but those of pages, which show figures and make none: figures of
    other code are not mixed in silently."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for package in ("analysis", "scenarios", "testbed"):
        for path in sorted((root / package).rglob("*")):
            own = path.relative_to(root)
            shows = _PAGES & {own, *own.parents}
            if path.suffix in (".py", ".c", ".h", ".txt") and not shows:
                digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _alone(folder: Path, key: Mapping[str, Any]) -> Iterator[None]:
    """Make the folder, or go on in one of the same key; keep other commands out of it, and leave
    nothing of ended processes in it."""
    with alone(folder, SETTINGS_FILE, "comparison") as settings:
        document_text(settings, key)  # it is as declared
        if not is_of(settings, key):
            raise RunError(f"{folder} holds a comparison of other settings or code: choose another")
        try:
            yield
        finally:
            for left in folder.glob(".seed-*"):
                shutil.rmtree(left, ignore_errors=True)
            for left in folder.glob(".partial-*"):
                left.unlink(missing_ok=True)


def _file(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}.parquet"


def _run(work: Callable[[Path], Outcome], folder: Path | None) -> Outcome:
    """What a worker does."""
    return work(folder or own_folder())


def _keep(
    workers: Workers,
    jobs: Mapping[int, Callable[[], Outcome]],
    folder: Path,
    n_all: int,
    progress: Progress,
) -> dict[int, str]:
    """Run seeds and keep their rows; what went wrong, by seed."""
    failures: dict[int, str] = {}
    done = n_all - len(jobs)

    def tell() -> None:
        where = workers.dashboard and f" ({workers.dashboard})"
        progress(f"seeds: {done} of {n_all}{where}", done / n_all)

    tell()
    begin()
    try:
        for seed, outcome in workers.outcomes(jobs):
            if isinstance(outcome, str) or outcome.rows is None:
                failures[seed] = outcome if isinstance(outcome, str) else outcome.reason
                _log(folder, seed).write_text(getattr(outcome, "log", ""))
            else:
                with whole(_file(folder, seed)) as new:
                    new.write_bytes(outcome.rows)
            done += 1
            tell()
    except KeyboardInterrupt as stop:
        end_all()
        stop.add_note(
            f"{done - len(failures)} of {n_all} seeds are kept in {folder}: "
            "the same command goes on from there"
        )
        raise
    return dict(sorted(failures.items()))


def _at_once(settings: Settings) -> int:
    """How many seeds run at once: one a processor, if there is the memory; real networks alone."""
    if settings.real_time:
        return 1
    fabric = make_fabric(settings.topology, settings.k, settings.seed)
    expected = estimate(settings, fabric, failures=0)  # more take time, not memory
    need_memory(expected)
    return max(1, min(os.cpu_count() or 1, available_bytes() // expected.memory))


def _log(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}-failure.txt"


def _finished(folder: Path, seed: int) -> dict[str, Any]:
    """The rows that a seed wrote.

    Raises:
        TableError: Its file was damaged, changed or exchanged.
    """
    path = _file(folder, seed)
    again = "remove it, and the same command makes it anew"
    try:
        rows = read_columns(path)
    except TableError as error:
        raise TableError(f"{error}: {again}") from None
    check_rows(path, rows, f"seed {seed}", again)
    if set(np.asarray(rows["seed"]).tolist()) != {seed}:
        raise TableError(f"{path} is not what seed {seed} wrote: {again}")
    return rows


def check_rows(path: Path, rows: Mapping[str, Any], who: str, again: str) -> None:
    """See that rows have the columns of a comparison.

    Raises:
        TableError: They have others, or none.
    """
    kinds = {name: _KINDS.get(type(column), "") for name, column in rows.items()}
    known = {name: _KIND_OF.get(name, "numbers") for name in COLUMNS}
    if kinds != known or not len(rows["seed"]):
        raise TableError(f"{path} is not what {who} wrote: {again}")


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


def _described(settings: Settings) -> str:
    """The settings in a few words, for the plot."""
    where = f"K={settings.k}" if settings.topology == "fat-tree" else settings.topology
    return f"{where}, faults {settings.faults}, {settings.traffic} traffic, {settings.backend}"
