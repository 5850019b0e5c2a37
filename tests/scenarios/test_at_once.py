# SPDX-License-Identifier: Apache-2.0
"""Commands that start at once in one folder: each is right, or says in one line that it waits."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from testbed.record.run import RunDirectory

QUICK = ["--backend", "flow", "--epochs", "1", "--k", "4", "--load", "0.05"]
METHODS = ["--methods", "vigil"]
QUICK += METHODS
PRELOADED = ["scenarios.many.preloaded", "scenarios.command.cli", "scenarios.command.show"]


ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def found_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """They import this module to call `begin`."""
    monkeypatch.syspath_prepend(str(ROOT))


def begin(arguments: list[str], folder: Path, number: int, barrier: Barrier) -> None:
    """In a process of its own: what the command prints goes into files."""
    os.chdir(folder)
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{name}-{number}", os.O_CREAT | os.O_WRONLY), stream)
    from scenarios.command.cli import main

    sys.argv = ["canary", *arguments]
    barrier.wait(60)
    main()


def at_once(folder: Path, commands: list[list[str]]) -> list[tuple[int | None, str, str]]:
    """Exit code, output and errors of commands that start together."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    barrier = context.Barrier(len(commands))
    processes = [
        context.Process(target=begin, args=(command, folder, number, barrier))
        for number, command in enumerate(commands)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    messages = []
    for number, process in enumerate(processes):
        texts = []
        for name in ("out", "err"):
            file = folder / f"{name}-{number}"
            texts.append(file.read_text())
            file.unlink()
        messages.append((process.exitcode, *texts))
    return messages


def refused(result: tuple[int | None, str, str]) -> bool:
    code, _, errors = result
    lines = [line for line in errors.strip().splitlines() if not line.startswith("... ")]
    return code == 2 and len(lines) == 1 and lines[0].startswith("canary: ")


def same_tables(a: Path, b: Path) -> bool:
    files = sorted(path.relative_to(a) for path in a.rglob("*.parquet"))
    assert files
    return all((a / file).read_bytes() == (b / file).read_bytes() for file in files)


night = pytest.mark.nightly
SOME = [pytest.param(2, marks=night), 3, pytest.param(5, marks=night)]


@pytest.mark.parametrize("n", SOME)
def test_of_runs_with_one_name_one_is_made_and_it_is_right(tmp_path: Path, n: int) -> None:
    commands = [["run", *QUICK, "--run", "here", "--seed", str(seed)] for seed in range(n)]
    results = at_once(tmp_path, commands)
    made = [seed for seed, (code, *_) in enumerate(results) if code == 0]
    assert len(made) == 1, results
    assert sum(map(refused, results)) == n - 1, results
    assert os.listdir(tmp_path) == ["here"]
    found = RunDirectory(tmp_path / "here")
    assert found.config["seed"] == found.summary["seed"] == made[0]
    [again] = at_once(tmp_path, [[*commands[made[0]][:-3], "there", "--seed", str(made[0])]])
    assert again[0] == 0
    assert same_tables(tmp_path / "here", tmp_path / "there")


@pytest.mark.parametrize("n", SOME)
def test_runs_without_a_name_get_one_each(tmp_path: Path, n: int) -> None:
    results = at_once(tmp_path, [["run", *QUICK, "--seed", str(seed)] for seed in range(n)])
    assert [code for code, *_ in results] == [0] * n, results
    runs = [path for path in (tmp_path / "runs").iterdir()]
    told = {re.findall(r"^page +(.*)/index\.html$", out, re.MULTILINE)[0] for _, out, _ in results}
    assert told == {f"runs/{path.name}" for path in runs}
    seeds = sorted(RunDirectory(path).summary["seed"] for path in runs)
    assert seeds == list(range(n))


def test_comparisons_exports_plans_and_analyses_do_not_meet(tmp_path: Path) -> None:
    [made] = at_once(tmp_path, [["run", *QUICK, "--run", "run", "--seed", "1"]])
    assert made[0] == 0, made
    compare = ["compare", *QUICK, "--out", "compared", "--seeds"]
    results = at_once(
        tmp_path,
        [
            [*compare, "1"],
            [*compare, "2"],
            ["analyze", "run", *METHODS],
            ["analyze", "run", *METHODS],
            ["export", "run", "--out", "files"],
            ["export", "run", "--out", "files"],
            ["plan", "--out", "plan.parquet"],
            ["plan", "--out", "plan.parquet"],
        ],
    )
    for first in range(0, len(results), 2):
        pair = results[first : first + 2]
        assert [result[0] for result in pair].count(0) >= 1, pair
        assert all(result[0] == 0 or refused(result) for result in pair), pair
    RunDirectory(tmp_path / "run")
    assert sorted(os.listdir(tmp_path)) == ["compared", "files", "plan.parquet", "run"]
    assert sorted(os.listdir(tmp_path / "files")) == ["fabric.parquet", "observations.parquet"]
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name]
