# SPDX-License-Identifier: Apache-2.0
"""Runs many seeds of one scenario in parallel, and scores each method on every run.

Each seed is a run and a piece of work of `scenarios.many.work`. The same command continues an
interrupted comparison, and more seeds can be added later.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, ValidationError

import canary_softswitch
from analysis.evaluation.comparison import COLUMNS, average_precision, degraded_seeds, found_at
from analysis.evaluation.comparison_plot import plot
from analysis.evaluation.pictures import files_of, new_files
from analysis.methods.base import views_of
from analysis.methods.parameters import DEFAULTS, Parameters
from analysis.methods.registry import GROUP, BuiltMethod, find_methods
from scenarios.experiment.estimate import available_bytes, need_memory
from scenarios.experiment.fabrics import topology_file
from scenarios.experiment.inputs import Layout, layout_of
from scenarios.experiment.observer import Progress
from scenarios.experiment.request import load_scenario
from scenarios.experiment.run import expected_of, run_config, run_experiment
from scenarios.experiment.settings import Settings, described
from scenarios.extras import can_draw
from scenarios.many.cluster import workers_of
from scenarios.many.work import complete, hold_folder, is_of
from testbed.errors import UserError
from testbed.fabric.names import plain, shortened
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.paths import Paths, pointers
from testbed.faults.specification import fault_file
from testbed.measurements.registry import chosen
from testbed.record.bounded import read_json
from testbed.record.files import read_columns, write_columns
from testbed.record.json_files import document_text
from testbed.record.messages import first_problem
from testbed.record.run import RunDirectory, RunError
from testbed.record.schema import TableError
from testbed.traffic.demand import capture_file, make_traffic, traffic_file

SETTINGS_FILE = "comparison.json"
TRIES = 3
"""How often a seed is run at most until its run is not degraded."""
_OF_PAPERS = ("pages", "plot", "results", "tables", "verdicts")
_OF_LIVE = ("loopback", "net", "publisher", "server", "watched_run")
_SOFT_SWITCH = {Path("testbed/softswitch")}  # hashed as the package that is installed
_PAGES = {Path("analysis/pages")}
_PAGES |= {Path(f"scenarios/live/{name}.py") for name in _OF_LIVE}
_PAGES |= {Path(f"scenarios/papers/{name}.py") for name in _OF_PAPERS}
_KINDS = {list: "texts", Paths: "lists", np.ndarray: "numbers"}
_TEXTS = ("method", "own_name", "bench", "native", "parameters", "parameters_from", "degraded")
_KIND_OF = dict.fromkeys(_TEXTS, "texts") | {"found_at": "lists"}  # the others are numbers


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        rows: The rows of the seeds that ran, by column (`analysis.evaluation.comparison.COLUMNS`).
        failures: For each seed that failed, the reason in one line.
        capture: What becomes of a capture's frames (`testbed.traffic.replay.Account`); None without
            a capture.
    """

    rows: Mapping[str, Any]
    failures: Mapping[int, str]
    capture: Mapping[str, Any] | None = None


def default_folder(
    name: str, settings: Settings, methods: Sequence[BuiltMethod], parameters: Parameters = DEFAULTS
) -> Path:
    """Return the path ``runs/compare-<scenario>-<key>``; the key is a hash of everything but the
    seeds."""
    key = json.dumps(_key(name, settings, methods, parameters), sort_keys=True)
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return Path("runs") / f"compare-{Path(name).stem}-{digest}"


def compare(
    name: str,
    settings: Settings,
    seeds: Sequence[int],
    methods: Sequence[BuiltMethod],
    folder: Path,
    progress: Progress,
    parameters: Parameters = DEFAULTS,
    cluster: str | None = None,
) -> Comparison:
    """Run every seed that ``folder`` lacks, write ``results.parquet`` and, with Matplotlib, the
    figure ``f1`` there, and return the comparison. ``seeds`` are the numbers of all its seeds.

    ``parameters`` are those that the methods were built with; other processes need them to build
    the methods again from their names.

    Real networks run one at a time. Other runs use all processors of this machine, or the workers
    of ``cluster``, see `scenarios.many.cluster`.

    Raises:
        ValueError: ``folder`` holds another comparison, is in use by another command, or cannot be
            written; or no seed ran.
        KeyboardInterrupt: Finished seeds are kept; a note on the exception says how to continue.
    """
    if cluster is not None and settings.network.real_time:
        raise RunError(
            "CLUSTER= runs only simulated networks: leave it out to run a real one on this machine"
        )
    # With the settings' own faults: a scenario that fails with a seed fails there.
    layout = layout_of(replace(settings, seed=seeds[0]), name=name)
    capture = _account(layout, progress)
    key = _key(name, settings, methods, parameters)
    with hold_folder(folder, SETTINGS_FILE, "comparison", _is_key) as file:
        document_text(file, key)  # checks that the key has the declared form
        if not is_of(file, key):
            raise RunError(f"{folder} holds a comparison of other settings or code: choose another")
        every = {f"seed-{seed}": seed for seed in seeds}
        lacking = {each: seed for each, seed in every.items() if not _file(folder, seed).exists()}
        own = settings
        if "threads" not in settings.network.lacks and not settings.threads:
            own = replace(settings, threads=1)  # several seeds run at once and share the cores
        failures: dict[int, str] = {}
        if lacking:
            named = ",".join(method.name for method in methods)
            pieces = {
                each: partial(_seed_file, name, replace(own, seed=seed), named, parameters)
                for each, seed in lacking.items()
            }
            with workers_of(cluster, _parallel_runs(layout)) as workers:
                theirs = partial(_key_of_names, name, settings, named, parameters)
                workers.check(json.loads(json.dumps(key)), theirs)
                n_before = len(every) - len(pieces)
                failed = complete(pieces, n_before, folder, workers, "seeds", progress)
                failures = {every[each]: reason for each, reason in failed.items()}
        done = [seed for seed in seeds if seed not in failures]
        if not done:
            seed, reason = next(iter(failures.items()))
            raise UserError(f"no seed ran: seed {seed}: {reason}")
        rows = _join([_finished(folder, seed) for seed in done])
        write_columns(folder / "results.parquet", rows)
        without = len(degraded_seeds(rows))
        runs = f"{len(done) - without} runs" + f", {without} degraded left out" * bool(without)
        title = f"{Path(name).stem}, {_described(settings)}, {runs}"
        if can_draw():
            with new_files(folder / "f1") as drawn:
                plot(rows, title, drawn)
        else:
            for picture in files_of(folder / "f1").values():
                picture.unlink(missing_ok=True)  # it would be that of other seeds
    return Comparison(rows, failures, capture)


def _account(layout: Layout, progress: Progress) -> Mapping[str, Any] | None:
    """Return what becomes of a capture's frames, computed once and not by each seed; None without a
    capture."""
    fabric, demand = layout.fabric, layout.demand
    if not isinstance(fabric, PacketFabric) or capture_file(demand.traffic) is None:
        return None
    _, account = make_traffic(demand, fabric, lambda share: progress("capture", share))
    return None if account is None else account.as_dict()


def _key(
    name: str, settings: Settings, methods: Sequence[BuiltMethod], parameters: Parameters
) -> dict[str, Any]:
    """Return everything that determines the figures of a seed: settings, hashes of the files they
    name, versions, methods, and a hash of the code."""
    names = [each.name for each in methods]
    made = chosen(views_of(each.method for each in methods), settings.measure)
    own = replace(settings, seed=0).as_dict() | {"scenario": Path(name).stem}
    key = run_config(own, made) | {"methods": names}
    key["parameters"] = {
        each.name: {"values": each.parameters, "from": each.origin} for each in methods
    }
    key["code_sha256"] = code_digest()
    files = {
        "scenario": Path(name) if name.endswith(".py") else None,
        "faults": fault_file(settings.faults),
        "traffic": traffic_file(settings.traffic),
        "topology": topology_file(settings.topology),
        "packages": Path(__file__).parents[2] / "requirements.lock",
    }
    for what, path in files.items():
        if path is not None and path.exists():  # if there is no such file, each seed reports it
            key[f"{what}_sha256"] = _digest(path)
    if named := {method.partition(":")[0] for method in names} & parameters.files.keys():
        key["methods_sha256"] = {name: _digest(parameters.files[name]) for name in sorted(named)}
    plugged = {point.name: point.dist for point in entry_points(group=GROUP)}
    key["plugged_in"] = {
        method: f"{dist.name} {dist.version}"
        for method in names
        if (dist := plugged.get(method.partition(":")[0]))
    }
    return key


def _key_of_names(
    name: str, settings: Settings, methods: str, parameters: Parameters
) -> dict[str, Any]:
    """Return the same key in another process, which builds the methods from their names."""
    return _key(name, settings, find_methods(methods, parameters), parameters)


def _digest(path: Path) -> str:
    """Return the SHA-256 hash of a file, or of the names and hashes of the files in a folder, as an
    import makes it."""
    if path.is_dir():
        inside = [(each.name, _digest(each)) for each in sorted(path.iterdir()) if each.is_file()]
        return hashlib.sha256(repr(inside).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def code_digest() -> str:
    """Return a hash of all sources and tables but those of pages, so that figures of different code
    are not mixed. Pages show figures and do not change them."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    folders = [root / package for package in ("analysis", "scenarios", "testbed")]
    for folder in [*folders, Path(canary_softswitch.__file__).parent]:
        for path in sorted(folder.rglob("*")):
            own = path.relative_to(folder.parent)
            shows = (_PAGES | _SOFT_SWITCH) & {own, *own.parents}
            if path.suffix in (".py", ".c", ".h", ".txt") and not shows:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _parallel_runs(layout: Layout) -> int:
    """Return how many seeds run at once: one for each processor if the memory suffices; one for
    real networks."""
    if layout.network.real_time:
        return 1
    expected = expected_of(layout)
    need_memory(expected)
    return max(1, min(os.cpu_count() or 1, available_bytes() // expected.memory))


def _file(folder: Path, seed: int) -> Path:
    """Return the path of the file with a seed's rows."""
    return folder / f"seed-{seed}.parquet"


def _seed_file(
    name: str, settings: Settings, methods: str, parameters: Parameters, place: Path
) -> bytes:
    """Run a scenario until a run is not degraded, at most `TRIES` times, and return the content of
    the Parquet file with the rows of the last run."""
    layout = layout_of(settings, load_scenario(name), name)
    chosen = find_methods(methods, parameters)
    degraded, tries, path = True, 0, place
    while degraded and tries < TRIES:
        tries += 1
        path = place / f"run-{tries}"
        degraded = bool(run_experiment(layout, path, chosen)["degraded"])
    write_columns(place / "rows.parquet", _rows(RunDirectory(path), settings.seed, tries))
    return (place / "rows.parquet").read_bytes()


def _rows(run: RunDirectory, seed: int, tries: int) -> dict[str, Any]:
    """Return the figures of a finished run, with a row for each method."""
    faulty: npt.NDArray[np.bool_] = np.asarray(run.table("links")["faulty"], np.bool_)
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for method, entry in run.summary["methods"].items():
        native = entry["native"]
        score, truth = run.table(f"diagnoses/{method}")["score"], faulty
        if native == "undirected":
            score, truth = np.maximum(score[::2], score[1::2]), faulty[::2] | faulty[1::2]
        found = found_at(score, truth)
        own = entry[native]
        lost = entry["lost"][native]["f1"] if "lost" in entry else None
        fabric = entry["fabric"][native]["f1"] if "fabric" in entry else None
        figures = {
            "seed": seed,
            "method": method,
            "native": native,
            "faulty": int(truth.sum()),
            "undirected_f1": entry["undirected"]["f1"],
            "average_precision": average_precision(found),
            "fed": entry.get("fed", np.nan),
            "own_name": entry.get("own_name", ""),
            "unranked": int(entry.get("unranked", False)),
            "unobserved": len(own.get("unobserved", ())),
            "found_at": found,
            "lost_f1": lost,
            "fabric_f1": fabric,
            "degraded": "; ".join(run.summary["degraded"]),
            "tries": tries,
        }
        for column in COLUMNS:
            known = figures if column in figures else own if column in own else entry
            value = known.get(column)
            columns[column].append(math.nan if value is None else value)  # undefined precision
    lengths = [len(found) for found in columns["found_at"]]
    links = np.concatenate([np.zeros(0, np.int32), *columns["found_at"]])
    ptr = pointers(lengths)
    return columns | {"found_at": Paths(ptr, links)}


def _finished(folder: Path, seed: int) -> dict[str, Any]:
    """Return the rows that a seed wrote.

    Raises:
        TableError: The seed's file is damaged, or was changed or replaced.
    """
    path = _file(folder, seed)
    again = "remove it, and run the same command again"
    try:
        rows = _read_rows(path)
    except TableError as error:
        raise TableError(f"{error}: {again}") from None
    _check_rows(path, rows, f"seed {seed}", again)
    if set(np.asarray(rows["seed"]).tolist()) != {seed}:
        raise TableError(f"{path} was changed after seed {seed} wrote it: {again}")
    return rows


def _read_rows(path: Path) -> dict[str, Any]:
    """Return the rows in a file; those of older comparisons have no ``own_name``, ``unranked`` and
    ``fabric_f1``.

    Raises:
        TableError: The file is damaged.
    """
    rows = read_columns(path)
    n = len(rows.get("method", ()))
    absent = {"own_name": [""] * n, "unranked": np.zeros(n, np.int64)}
    return absent | {"fabric_f1": np.full(n, np.nan)} | rows


def _check_rows(path: Path, rows: Mapping[str, Any], who: str, again: str) -> None:
    """Check that rows have the columns of a comparison.

    Raises:
        TableError: They have other columns, or there are no rows.
    """
    kinds = {name: _KINDS.get(type(column), "") for name, column in rows.items()}
    known = {name: _KIND_OF.get(name, "numbers") for name in COLUMNS}
    if kinds != known or not len(rows["seed"]):
        raise TableError(f"{path} was changed after {who} wrote it: {again}")


def _join(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rows of all tables in one table, in order."""
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
    """Return the settings in a few words, for the title of the plot."""
    where = f"K={settings.k}" if settings.topology == "fat-tree" else settings.topology
    return f"{where}, faults {settings.faults}, {settings.traffic} traffic, {settings.backend}"


@dataclass(frozen=True)
class Compared:
    """A comparison that was read from its folder: its rows
    (`analysis.evaluation.comparison.COLUMNS`), and in ``key`` the content of
    ``comparison.json``."""

    folder: Path
    rows: Mapping[str, Any]
    key: Mapping[str, Any]

    @property
    def seeds(self) -> list[int]:
        """Return the seeds that have rows in this comparison, as ascending numbers."""
        return sorted(set(np.asarray(self.rows["seed"]).tolist()))


class _Parameters(BaseModel):
    """The parameters of a method, and their origin."""

    values: str
    origin: str = Field(alias="from")


class _Key(BaseModel):
    """The entries of ``comparison.json`` that are read, besides the settings."""

    scenario: str
    backend: str
    parameters: dict[str, _Parameters]


def _is_key(content: Mapping[str, Any]) -> bool:
    """Return True if this is the content of the file `SETTINGS_FILE` of some comparison."""
    return {"scenario", "backend", "methods", "code_sha256"} <= content.keys()


def is_comparison(folder: Path) -> bool:
    """Return True if a folder holds a comparison."""
    return (folder / SETTINGS_FILE).is_file()


def read_comparison(folder: Path) -> Compared:
    """Return the comparison in ``folder``, as far as it has ended.

    Raises:
        RunError: The comparison has no results yet, or ``comparison.json`` is damaged.
        TableError: ``results.parquet`` is damaged, or is another table.
    """
    results = folder / "results.parquet"
    if not results.is_file():
        raise RunError(f"{folder} has no results yet: let the same canary compare go on to its end")
    rows = _read_rows(results)
    _check_rows(results, rows, "canary compare", "the same command writes it again")
    file = folder / SETTINGS_FILE
    try:
        key = read_json(file)
        _Key.model_validate(key)
        Settings(**{s.name: key[s.name] for s in described() if s.name in key})
    except ValidationError as error:
        place, reason = first_problem(error)
        where = ".".join(str(part) for part in place)
        problem = shortened(plain(f"{where}: {reason}"))
        raise RunError(f"{file} is damaged: {problem}: make the comparison again") from None
    except (OSError, ValueError):
        raise RunError(f"{file} is damaged: make the comparison again") from None
    return Compared(folder, rows, key)
