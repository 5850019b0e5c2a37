# SPDX-License-Identifier: Apache-2.0
"""What commands print of a result: a screen, everything, JSON, or only the path."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
import typer.main

from scenarios.command.cli import app
from scenarios.command.explain import explained, words
from tests.analysis.importers import world
from tests.patience import PATIENCE_S
from tests.scenarios.conftest import Canary, refused

INTERACTIVE = "it is used by a person, and has no result"
ON_SCREEN = "its result is no file, so there is no path to print"
NO_JSON = {"net": INTERACTIVE, "shell": INTERACTIVE, "ui": INTERACTIVE}
NO_QUIET = NO_JSON | {
    name: ON_SCREEN
    for name in ("check-method", "class grade", "clean-net", "diff", "doctor", "explain")
}
QUICK = ["--backend", "flow", "--epochs", "1", "--methods", "canary,netbouncer"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and a comparison, in the folders ``run`` and ``compared``."""
    folder = tmp_path_factory.mktemp("made")
    for arguments in (
        ["run", *QUICK, "--run", "run"],
        ["compare", *QUICK, "--seeds", "1-2", "--out", "compared"],
    ):
        program = [sys.executable, "-m", "scenarios.command.cli"]
        subprocess.run([*program, *arguments], cwd=folder, check=True, capture_output=True)
    return folder


def every_command(group: Any, *before: str) -> Iterator[tuple[str, set[str]]]:
    """The commands that help lists, with the names of their options."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, *before, name)
        elif not command.hidden:
            options = {text for parameter in command.params for text in parameter.opts}
            yield " ".join([*before, name]), options


@pytest.mark.parametrize(("option", "without"), [("--json", NO_JSON), ("--quiet", NO_QUIET)])
def test_every_command_prints_json_and_only_its_path(option: str, without: dict[str, str]) -> None:
    commands = dict(every_command(typer.main.get_command(app)))
    assert len(commands) > 20
    assert {name for name, options in commands.items() if option not in options} == set(without)


def in_terminal(folder: Path, columns: int, *words: str, **environment: str) -> str:
    """What a command prints in a terminal of 24 rows."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    own = {name: v for name, v in os.environ.items() if name not in ("COLUMNS", "LINES")}
    running = subprocess.Popen(
        [sys.executable, "-m", "scenarios.command.cli", *words],
        cwd=folder,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=own | {"TERM": "xterm-256color"} | environment,
    )
    os.close(theirs)
    text = b""
    while select.select([ours], [], [], PATIENCE_S)[0]:
        try:
            text += os.read(ours, 1 << 16)
        except OSError:  # the other end was closed
            break
    os.close(ours)
    assert running.wait(PATIENCE_S) == 0
    return text.decode().replace("\r\n", "\n")


def plainly(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@pytest.mark.parametrize("columns", [80, 60, 120])
def test_a_terminal_shows_what_the_pipe_has(made: Path, columns: int, canary: Canary) -> None:
    text = in_terminal(made, columns, "show", "run")
    assert "\x1b[" in text and len(text.splitlines()) <= 26
    assert re.search(r"^canary +\d", plainly(text), re.MULTILINE)
    if columns == 80:
        piped = canary("show", str(made / "run")).out
        until = piped.index("\npage ")
        assert plainly(text)[:until] == piped[:until]


def test_without_colours_no_escape_is_printed(made: Path) -> None:
    assert "\x1b[3" not in in_terminal(made, 80, "show", "run", NO_COLOR="1")


@pytest.mark.parametrize("what", ["run", "compared"])
def test_show_prints_only_the_path_the_figures_or_everything(
    made: Path, what: str, canary: Canary
) -> None:
    path = str(made / what)
    assert canary("show", "--quiet", path).out == f"{path}\n"
    figures = json.loads(canary("show", "--json", path).out)
    everything, usual = canary("show", "-v", path).out, canary("show", path).out
    assert len(everything) > len(usual) and "precision" in everything
    if what == "run":
        assert figures["rates"].keys() == set(figures["faulty_links"])
        assert all(0 < rate <= 1 for rate in figures["rates"].values())
    refused(canary("show", "--quiet", "--json", path), "--quiet and --json exclude each other")
    refused(canary("show", "--quiet", "--verbose", path), "use one of them")


def test_make_can_ask_for_the_path_and_the_figures(made: Path, canary: Canary) -> None:
    assert canary("show", "QUIET=1", "--", str(made / "run")).out == f"{made / 'run'}\n"
    assert canary("show", "QUIET=0", "--", str(made / "run")).out.count("\n") > 10


def test_a_run_is_only_its_path_or_only_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: Canary
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CANARY_SEED", "7")  # is told, but not on standard output
    result = canary("run", *QUICK, "--run", "one", "--quiet")
    assert (result.code, result.out) == (0, "one\n"), result
    assert "SEED=7" in result.err
    figures = json.loads(canary("run", *QUICK, "--run", "two", "--json").out)
    assert figures["seed"] == 7 and set(figures["rates"]) == set(figures["faulty_links"])
    assert canary("analyze", "one", "-q").out == "one\n"
    assert json.loads(canary("analyze", "one", "--json").out)["seed"] == 7
    monkeypatch.delenv("CANARY_SEED")
    assert canary("compare", *QUICK, "--seeds", "1", "--out", "c", "-q").out == "c\n"
    compared = json.loads(canary("compare", *QUICK, "--seeds", "1", "--out", "c", "--json").out)
    assert {row["method"] for row in compared["rows"]} == {"canary", "netbouncer", "any-loss"}


def test_rankings_and_plans_are_json_or_a_path(made: Path, tmp_path: Path, canary: Canary) -> None:
    files = tmp_path / "files"
    assert canary("export", str(made / "run"), "--out", str(files)).code == 0
    given = ["--topology", str(files / "fabric.parquet")]
    given += ["--telemetry", str(files / "observations.parquet"), "--method", "canary"]
    found = json.loads(canary("localize", *given, "--json").out)
    diagnosis = json.loads((made / "run" / "summary.json").read_text())["methods"]["canary"]
    blamed = diagnosis["directed"]["true_positives"] + diagnosis["directed"]["false_positives"]
    assert len(found["methods"]["canary"]["blamed"]) == blamed
    refused(canary("localize", *given, "--quiet"), "--quiet", "--out")
    out = tmp_path / "ranking.csv"
    assert canary("localize", *given, "-q", "--out", str(out)).out == f"{out}\n"
    assert json.loads(canary("plan", "K=4", "--json").out)["paths"] > 0
    refused(canary("plan", "K=4", "--quiet"), "--out")


def test_files_pages_and_explanations_are_json_or_a_path(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: Canary
) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(made / "run")
    files = ["a/fabric.parquet", "a/observations.parquet"]
    found = json.loads(canary("export", run, "--out", "a", "--json").out)
    assert found == {"path": "a", "files": files} and all(Path(file).is_file() for file in files)
    assert canary("export", run, "--out", "b", "--quiet").out == "b\n"
    page = f"{run}/index.html"
    assert json.loads(canary("page", run, "--json").out) == {"path": page}
    assert canary("page", run, "-q").out == f"{page}\n"
    assert canary("diff", run, run, "--json").code == 0
    lab = json.loads(canary("export-lab", "--out", "lab", "BACKEND=softswitch", "--json").out)
    assert lab["path"] == "lab" and {"README.md", "topology.clab.yml"} <= set(lab["files"])
    every = json.loads(canary("explain", "--json").out)
    assert list(every) == words()
    assert json.loads(canary("explain", "starved", "--json").out) == {"starved": every["starved"]}
    refused(canary("export", run, "--out", "c", "-q", "--json"), "exclude each other")
    assert not Path("c").exists()


def test_the_line_that_says_more_can_be_copied(made: Path, canary: Canary) -> None:
    """Whether or not the shell would find ``canary``."""
    for what in ("run", "compared"):
        [more] = re.findall(r"^more +(.*?)(?:   .*)?$", canary("show", str(made / what)).out, re.M)
        done = subprocess.run(more, shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "precision" in done.stdout, (more, done)


def test_what_is_reproduced_imported_and_checked_is_json_or_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: Canary
) -> None:
    monkeypatch.chdir(tmp_path)
    again = ("reproduce", "FIG=detector-plans", "DRAWS=2", "OUT=here")
    [name, entry] = json.loads(canary(*again, "--json").out).popitem()
    assert (name, entry["path"]) == ("detector-plans", "here/detector-plans")
    assert all(line["verdict"] == "agrees" and line["ours"] for line in entry["lines"])
    assert canary(*again, "QUIET=1").out == "here\n"
    refused(canary("reproduce", "--quiet"), "FIG=")
    listed = json.loads(canary("reproduce", "OUT=here", "--json").out)["experiments"]
    assert listed["detector-plans"]["run"] and not listed["canary-8"]["run"]
    results = ("reproduce", "OUT=here", "RESULTS=results.json")
    assert canary(*results, "--quiet").out == "results.json\n"
    assert json.loads(canary(*results, "--json").out) == {"path": "results.json"}
    (tmp_path / "dc.yml").write_text(world.clab())
    assert canary("import", "clab", "dc.yml", "--out", "dc", "--quiet").out == "dc\n"
    found = json.loads(canary("import", "clab", "dc.yml", "--out", "dc", "--json").out)
    assert found["files"][0] == "dc/fabric.parquet" and "leaf0" in found["notes"][0]
    checks = json.loads(canary("check-method", "mle", "--json").out)["mle"]
    assert len(checks) > 5 and not any(checks.values())
    findings = json.loads(canary("doctor", "--json").out)["findings"]
    assert {"Python", "BACKEND"} <= {each["name"] for each in findings}


def test_a_comparison_says_whether_methods_differ(made: Path, canary: Canary) -> None:
    result = canary("show", str(made / "compared")).out
    lines = result.splitlines()
    assert lines[0].startswith("2 runs   faulty_links") and lines[0].endswith("seeds 1-2")
    assert lines[2].split() == [
        "method",
        "F1",
        "95",
        "%",
        "behind",
        "differs",
        "collected",
        "probes",
    ]
    assert all(len(line) <= 80 for line in lines[: lines.index("", 3)])


@pytest.mark.parametrize("word", words())
def test_every_word_is_explained(word: str) -> None:
    text = explained(word)
    assert text.startswith(f"{word}: ") and len(text) > len(word) + 10
    assert all(len(line) <= 80 for line in text.splitlines())


def test_words_of_the_screen_are_explained_and_others_are_one_line(canary: Canary) -> None:
    for word in ("loses", "found", "missed", "wrong", "F1", "collected", "probes", "starved"):
        assert canary("explain", word).code == 0
    assert canary("explain", "starved").out.startswith("starved: the measurements")
    assert canary("explain", "epoch_ms").out.startswith("EPOCH_MS: ")
    assert canary("explain", "flock+links").out.startswith("flock+links: ")
    refused(canary("explain", "starvd"), "did you mean starved?")
    refused(canary("explain", "zzzzzz"), "canary explain lists them")
    assert all(word in canary("explain").out.replace("\n", " ") for word in words())


def test_words_of_other_tools_are_answered(canary: Canary) -> None:
    refused(canary("mn"), "there is no command mn", "canary net")
    refused(canary("clab"), "canary export-lab")
    refused(canary("run", "--topo", "tree,2"), "there is no option --topo", "--k", "--topology")
    refused(canary("run", "--loss", "5"), "--faults tor0_0-agg0_1:0.05")
    result = canary("warn")
    refused(result, "there is no command warn")
    assert "warm-up" not in result.err, "it is hidden"
