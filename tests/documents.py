# SPDX-License-Identifier: Apache-2.0
"""The figures that README.md and the first hour show: made by the commands that stand beside them.

    python -m tests.documents            write all of them anew
    python -m tests.documents --check    say which are not what comes, and change nothing
    python -m tests.documents --quick    leave out those that take long

A place for figures is a comment and what follows it, a block of text or a table:

    <!-- output: canary, 007 -->        what the last command of the block of commands above prints,
                                        of these methods; times are …, as they differ, and
                                        the last lines, which name folders, are left out
    <!-- table: canary F1; metered -->  a row for each command of that block, and these figures

The commands are those of ``make scenario`` and ``make compare``; `tests/test_documents.py` runs
them, too, those of ``nightly output`` and ``nightly table`` every night. What `FIGURES` has can be
in a table: ``METHOD FIGURE`` is a method's, others are of the run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from analysis.evaluation.columns import in_bytes
from scenarios.command.show import figures_of
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.request import make_request
from scenarios.experiment.run import expected_of

ROOT = Path(__file__).parent.parent
DOCUMENTS = (
    "README.md",
    "docs/start/first_hour.md",
    "docs/reference/measurements.md",
    "docs/do/compare.md",
    "docs/do/fabric.md",
)

_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(
    r"^<!-- (?P<nightly>nightly )?(?P<kind>output|table): (?P<what>[^\n]*) -->\n"
    r"(?P<shown>```\n.*?^```$|(?:^\|[^\n]*$\n?)*)",
    re.MULTILINE | re.DOTALL,
)
_HIDDEN = "…"


@dataclass(frozen=True)
class Place:
    """A place for figures.

    Attributes:
        file: The document, from the project's root.
        start: Where what it shows begins in the document's text.
        shown: That.
        kind: ``output`` or ``table``.
        what: What of the output or the figures is shown.
        commands: The words after ``make`` of the commands of the block above.
        nightly: Whether only the nightly tests make it.
    """

    file: str
    start: int
    shown: str
    kind: str
    what: Sequence[str]
    commands: Sequence[tuple[str, ...]]
    nightly: bool

    def made(self) -> str:
        """Run the commands, and return what the document should show."""
        if self.kind == "output":
            return f"```\n{_output(self.commands[-1], self.what)}\n```"
        return _table(self.commands, self.what)


def places(file: str) -> list[Place]:
    """Return the places of a document, in their order."""
    text = (ROOT / file).read_text()
    blocks = [(block.end(), _commands(block[1])) for block in _COMMANDS.finditer(text)]
    found = []
    for match in _PLACE.finditer(text):
        above = [commands for end, commands in blocks if end < match.start() and commands]
        what = re.split(r"; *" if match["kind"] == "table" else r", *", match["what"])
        start, shown = match.start("shown"), match["shown"].rstrip("\n")
        place = Place(file, start, shown, match["kind"], what, above[-1], bool(match["nightly"]))
        found.append(place)
    return found


def _commands(block: str) -> list[tuple[str, ...]]:
    """Return the words of the commands of a block that make figures."""
    lines = block.replace("\\\n", " ").splitlines()
    every = [shlex.split(line, comments=True) for line in lines]
    return [tuple(words[1:]) for words in every if words[:2] in _MAKE]


_MAKE = (["make", "scenario"], ["make", "compare"])


# ---- what a command prints -----------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its figures: ``summary.json`` or what ``show --json`` has."""

    printed: str
    figures: Mapping[str, Any]


@cache
def _ran(command: tuple[str, ...]) -> Ran:
    """Run a command as ``make`` would, but for where it writes and that it takes no root."""
    target, *words = command
    words = [word for word in words if not word.startswith(("RUN=", "OUT="))]
    if target == "scenario" and not any(word.startswith("BACKEND=") for word in words):
        words.append("BACKEND=virtual")
    with tempfile.TemporaryDirectory() as folder:
        place = "RUN=run" if target == "scenario" else "OUT=run"
        name = {"scenario": "run", "compare": "compare"}[target]
        printed = _canary(folder, name, *words, place)
        return Ran(printed, json.loads(json.dumps(figures_of(Path(folder, "run"), trust=False))))


def _canary(folder: str, *words: str) -> str:
    program = str(Path(sys.executable).with_name("canary"))
    wide = os.environ | {"COLUMNS": "400"}  # no line is broken, however long a time is
    done = subprocess.run([program, *words], cwd=folder, env=wide, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(words)}: {done.stderr}")
    return done.stdout


def _output(command: tuple[str, ...], methods: Sequence[str]) -> str:
    """Return the screen that a command prints, without times and without its last lines, which name
    folders; of the table of methods the rows of ``methods``."""
    lines = _ran(command).printed.splitlines()
    lines = [line for line in lines if not line.startswith("BACKEND=auto")]
    top = next(number for number, line in enumerate(lines) if line.startswith("method "))
    names = [*_ran(command).figures["methods" if command[0] == "scenario" else "means"]]
    head = [re.sub(r"\d+\.\d s$", f"{_HIDDEN} s", line) for line in lines[:top]]
    end = lines.index("", top)
    table = [line for line in lines[top + 1 : end] if line.split(" ")[0] in methods]
    if len(methods) < len(names):
        return "\n".join([*head, lines[top], *table, "..."])
    return "\n".join([*head, *lines[top:end]])


# ---- tables --------------------------------------------------------------------------------------


def _estimate(command: tuple[str, ...]) -> str:
    """Return the estimate that a long command prints before it begins."""
    given = dict(word.split("=", 1) for word in command[1:])
    name = given.pop("SCENARIO", None)
    request = make_request(name, {key.lower(): value for key, value in given.items()})
    return str(expected_of(layout_of(request.settings(), request.scenario, request.name)))


OF_METHOD: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "F1": lambda entry: f"{entry[entry['native']]['f1']:.3f}",
    "missed": lambda entry: f"{entry[entry['native']]['false_negatives']:,}",
    "wrong": lambda entry: f"{entry[entry['native']]['false_positives']:,}",
    "F1u": lambda entry: f"{entry['undirected']['f1']:.3f}",
    "data": lambda entry: in_bytes(entry["telemetry_bytes"]),
    "probes": lambda entry: f"{entry['probe_packets']:,}",
}
OF_RUN: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "packets metered": lambda figures: f"{figures['metered']['packets']:,}",
    "faulty links": lambda figures: f"{len(figures['faulty_links']):,}",
}
ESTIMATE = "estimate"


def _table(commands: Sequence[tuple[str, ...]], what: Sequence[str]) -> str:
    """Return a Markdown table: what of its settings only this command has, and its figures."""
    common = set.intersection(*(set(command) for command in commands))
    rows = [["", *what], ["---"] * (1 + len(what))]
    for command in commands:
        own = [word for word in command if word not in common]
        first = f"`{' '.join(own)}`" if own else "as it is"
        rows.append([first, *(_figure(command, name) for name in what)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows).replace("|  |", "| |")


def _figure(command: tuple[str, ...], name: str) -> str:
    if name == ESTIMATE:
        return _estimate(command)
    figures = _ran(command).figures
    if name in OF_RUN:
        return OF_RUN[name](figures)
    method, figure = name.replace("`", "").split()
    if command[0] == "compare":
        mean = figures["means"][method][figure]
        return "–" if mean is None else f"{mean:.3f}"
    return OF_METHOD[figure](figures["methods"][method])


# ---- all of them ---------------------------------------------------------------------------------


def differing(file: str, quick: bool) -> Iterator[tuple[Place, str]]:
    """Run the commands of a document, and yield each place that shows something else than what
    comes, and that.

    Args:
        quick: Leave out what is run nightly.
    """
    for place in places(file):
        if not (quick and place.nightly) and (made := place.made()) != place.shown:
            yield place, made


def write(file: str, found: Sequence[tuple[Place, str]]) -> None:
    """Write into a document what `differing` found."""
    text = (ROOT / file).read_text()
    for place, made in reversed(found):
        rest = text[place.start + len(place.shown) :]
        text = text[: place.start] + made + ("" if place.shown else "\n") + rest
    (ROOT / file).write_text(text)


def main() -> int:
    """Rewrite or check the documents."""
    parser = argparse.ArgumentParser(description="Rewrite the figures in the documents.")
    parser.add_argument("--check", action="store_true", help="say what differs, and change nothing")
    parser.add_argument("--quick", action="store_true", help="leave out what is run nightly")
    asked = parser.parse_args()
    changed = 0
    for file in DOCUMENTS:
        found = list(differing(file, asked.quick))
        changed += len(found)
        for place, made in found:
            print(f"{file}: after make {shlex.join(place.commands[-1])} comes\n{made}\n")
        if not asked.check:
            write(file, found)
    return changed if asked.check else 0


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
