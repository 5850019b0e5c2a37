# SPDX-License-Identifier: Apache-2.0
"""Damaged run directories: refused in one line that names the run, or equal to what they were."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.methods.registry import find_methods
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import MissingTelemetry
from analysis.telemetry.views.segments import read_minus_meters
from scenarios.command.localize import export
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import make_settings
from testbed.fabric.clos import TopologyError
from testbed.record.manifest import MANIFEST
from testbed.record.run import RunDirectory, RunError
from testbed.record.schema import TableError

SECONDS = 10
NIGHTLY = pytest.param(range(40, 5000), marks=pytest.mark.nightly)

VALUES: list[Any] = [
    None, True, -1, 0, 1, 2, 3, 10**9, 2**31, 2**63, 10**400, 0.5, 1e9, -1e308, "", "two",
    "\x1b[31m", "[red]x", "a" * 5000, [], [[]], [1, "x"], {}, {"": {}}, [[0, 10**6]],
    float("nan"), float("inf"),
]  # fmt: skip
NUMBERS = [-1, -(2**31), 2**31 - 1, 10**6, 255, 64, 20, 16, 7, 2, 0]

Mutation = Callable[[Path, np.random.Generator, Path], str]


def files(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if path.is_file())


def pick(rng: np.random.Generator, things: list[Any]) -> Any:
    return things[int(rng.integers(len(things)))]


def any_file(run: Path, rng: np.random.Generator, suffix: str = "") -> Path:
    return pick(rng, [path for path in files(run) if path.name.endswith(suffix)])


# ---- what may have happened to a run ----------------------------------------------------------


def flip(run: Path, rng: np.random.Generator, other: Path) -> str:
    path = any_file(run, rng)
    content = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(1, 5))):
        content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
    path.write_bytes(content)
    return path.name


def cut(run: Path, rng: np.random.Generator, other: Path) -> str:
    path = any_file(run, rng)
    path.write_bytes(path.read_bytes()[: int(rng.integers(path.stat().st_size))])
    return path.name


def remove(run: Path, rng: np.random.Generator, other: Path) -> str:
    path = any_file(run, rng)
    path.unlink()
    return path.name


def exchange(run: Path, rng: np.random.Generator, other: Path) -> str:
    """A file of another run, or another file of the same run."""
    path = any_file(run, rng)
    same = other / path.relative_to(run)
    source = same if same.is_file() and rng.random() < 0.7 else any_file(run, rng, path.suffix)
    path.write_bytes(source.read_bytes())
    return f"{path.name} of {source.parent.name}"


def add(run: Path, rng: np.random.Generator, other: Path) -> str:
    name = pick(rng, ["registers/epoch-000", "registers/epoch-009", "drops", "segments", "rules"])
    path = run / f"{name}.parquet"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(any_file(other, rng, ".parquet").read_bytes())
    return name


def field(run: Path, rng: np.random.Generator, other: Path) -> str:
    """A field of a JSON file replaced, removed or added, however deep."""
    path = any_file(run, rng, ".json")
    content = inner = json.loads(path.read_text())
    while True:
        keys: list[Any] = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = pick(rng, keys)
        if not isinstance(inner[key], dict | list) or not inner[key] or rng.random() < 0.3:
            break
        inner = inner[key]
    what = rng.random()
    if what < 0.15:
        del inner[key]
    elif what < 0.25 and isinstance(inner, dict):
        inner["new"] = pick(rng, VALUES)
    else:
        inner[key] = pick(rng, VALUES)
    path.write_text(json.dumps(content))
    return f"{path.name}: {key}"


def column(run: Path, rng: np.random.Generator, other: Path) -> str:
    """A column dropped, of another type, with values out of range or of another length."""
    path = any_file(run, rng, ".parquet")
    table = pq.read_table(path)
    at = int(rng.integers(table.num_columns))
    name, values = table.column_names[at], table.column(at).to_pylist()
    what = pick(rng, ["drop", "type", "value", "value", "value", "rows", "extra", "rename"])
    if what == "drop":
        table = table.drop_columns([name])
    elif what == "rename":
        table = table.rename_columns([n + "_" if n == name else n for n in table.column_names])
    elif what == "extra":
        table = table.append_column("extra", table.column(at))
    elif what == "rows":
        half = table.slice(0, table.num_rows // 2)
        table = pick(rng, [half, pa.concat_tables([table, half]), table.slice(0, 0)])
    elif what == "type":
        n = len(values)
        made: list[Any] = [[str(v) for v in values], [None] * n, [1.5] * n, [[1]] * n, [True] * n]
        table = table.set_column(at, name, pa.array(pick(rng, [*made, np.full(n, 2**63)])))
    elif values:
        kind, row = table.schema.field(at).type, int(rng.integers(len(values)))
        values[row] = _other(values[row], rng)
        try:
            table = table.set_column(at, name, pa.array(values, kind))
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            table = table.drop_columns([name])
    pq.write_table(table, path)
    return f"{path.name}: {what} {name}"


def _other(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, list):
        links = list(value)
        links.insert(int(rng.integers(len(links) + 1)), pick(rng, NUMBERS))
        return pick(rng, [links, [], value[:1], value[::-1]])
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return pick(rng, [-1.0, 2.0, float("nan"), float("inf"), 0.5])
    if isinstance(value, str):
        return pick(rng, ["", "x", "tor0_0->agg0_0", value + "\x00", "detector"])
    return pick(rng, [*NUMBERS, value + 1, value * 1000 + 1])


MUTATIONS: list[Mutation] = [flip, cut, remove, exchange, add, field, field, column, column, column]


# ---- what becomes of it -----------------------------------------------------------------------


@contextmanager
def in_time() -> Iterator[None]:
    """What takes more than SECONDS of processor time would not end, on however slow a machine."""

    def late(*_: object) -> None:
        raise AssertionError(f"it took more than {SECONDS} s of processor time")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def read_everything(path: Path, out: Path, trust: bool) -> None:
    """What `analyze`, `show` and `export` read, all tables, and the telemetry of it."""
    run = RunDirectory(path, trust=trust)
    _ = run.summary
    for file in path.rglob("*.parquet"):
        name = str(file.relative_to(path).with_suffix(""))
        if not name.startswith("registers/"):
            run.table(name)
    telemetry = read_telemetry(run)
    assert telemetry.segments is not None
    if run.has("registers/epoch-000"):
        read_minus_meters(run)
    export(path, out, ".parquet", trust)


def is_refusal(error: BaseException, path: Path) -> bool:
    """Whether it is one line of our own that says where."""
    message = str(error)
    ours = isinstance(error, RunError | TableError | TopologyError | MissingTelemetry)
    placed = str(path) in message or isinstance(error, MissingTelemetry)
    return ours and placed and message.isprintable() and len(message) < 800


def contents(run: Path) -> dict[str, Any]:
    """Of all files; of the manifest what it says, as nobody vouches for its bytes."""
    found: dict[str, Any] = {str(path.relative_to(run)): path.read_bytes() for path in files(run)}
    with suppress(KeyError, ValueError):
        found[MANIFEST] = json.dumps(json.loads(found[MANIFEST]), sort_keys=True)  # true is not 1
    return found


@pytest.fixture(scope="module")
def runs(run_path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    """Runs with and without packets, and for each another one."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, changes in (
        ("a", {"seed": 1}),
        ("b", {"seed": 2, "epochs": 3}),
        ("ls", {"seed": 3, "topology": "leaf-spine:6:3:2", "faults": "2links"}),
    ):
        asked = {"backend": "flow", "epochs": 2, "epoch_ms": 100, "load": 0.1} | changes
        run_experiment(
            layout_of(make_settings(asked)),
            folder / name,
            find_methods("canary-mle,007"),
        )
    a, b, ls = (folder / name for name in ("a", "b", "ls"))
    return [(run_path, a), (a, b), (b, ls), (ls, a), (a, run_path)]


@pytest.mark.parametrize("numbers", [range(40), NIGHTLY])
def test_a_damaged_run_is_refused_in_one_line(
    runs: list[tuple[Path, Path]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    numbers: range,
) -> None:
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for number in numbers:
        rng = np.random.default_rng([number, 0xF022])
        original, other = runs[number % len(runs)]
        run = tmp_path / "run"
        shutil.copytree(original, run)
        mutation = pick(rng, MUTATIONS)
        what = f"{number}: {mutation.__name__} {mutation(run, rng, other)}"
        same = contents(run) == contents(original)
        for trust in (False, True):
            try:
                with in_time():
                    read_everything(run, tmp_path / "out", trust)
                kind = "equal" if same else "on trust" if trust else "changed"
                counts[f"accepted, {kind}"] += 1
                if kind == "changed":
                    wrong.append(f"{what}: accepted")
            except (Exception, AssertionError) as error:
                counts["refused on trust" if trust else "refused"] += 1
                if same or not is_refusal(error, run):
                    wrong.append(f"{what}, trust={trust}: {error!r}")
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.rmtree(run)
    assert not wrong, f"{len(wrong)} of {len(numbers)}:\n" + "\n".join(wrong[:20])
    assert counts["refused"] > 0.9 * len(numbers)
    assert counts["refused on trust"] > 0.5 * len(numbers)
    with capsys.disabled():
        found = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
        print(f"\n{len(numbers)} damaged runs, each read twice: {found}")
