# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of ``docs/examples``; what they print is kept in ``docs/examples/output``.

    python -m tests.docs.examples                    write what all of them print
    python -m tests.docs.examples 01_break_a_link    of these alone
    python -m tests.docs.examples --pictures DIR     and keep their pictures in a folder

An example prints nothing that another machine or another day would change: no times, no places of
files. `tests/docs/test_examples.py` runs all of them and compares.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
OUTPUT = FOLDER / "output"
NAMES = sorted(file.stem for file in FOLDER.glob("*.py"))

_SERVER = """
import json, os, runpy, sys, warnings
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas
import scenarios.command.show, scenarios.experiment.run
for request in sys.stdin:
    program, folder, pictures, files = json.loads(request)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fork beside threads, which are idle
        child = os.fork()
    if child == 0:
        for number, name in enumerate(files):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
        os.chdir(folder)
        sys.argv = [program]
        runpy.run_path(program, run_name="__main__")
        for number in plt.get_fignums():
            name, _ = os.path.splitext(os.path.basename(program))
            plt.figure(number).savefig(os.path.join(pictures, f"{name}-{number}.png"))
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Ran:
    """What an example printed on its two outputs, and its exit code."""

    printed: str
    errors: str
    code: int


def kept(name: str) -> Path:
    """Return the file with what an example prints."""
    return OUTPUT / f"{name}.txt"


class Examples:
    """Runs examples, each in a process and a folder of its own; a warning ends it.

    The processes are forks of one that has imported what examples import, which takes most of the
    time of some.
    """

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-P", "-W", "error", "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Examples:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def run(self, name: str, pictures: Path) -> Ran:
        """Run an example.

        Args:
            name: Its file, without suffix.
            pictures: Folder of its pictures, NAME-1.png and so on.
        """
        assert self._server.stdin is not None and self._server.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            folder, out, err = (Path(place, each) for each in ("folder", "out", "err"))
            folder.mkdir()
            files = [os.devnull, str(out), str(err)]
            request = [str(FOLDER / f"{name}.py"), str(folder), str(pictures.absolute()), files]
            print(json.dumps(request), file=self._server.stdin, flush=True)
            code = int(self._server.stdout.readline())
            return Ran(out.read_text(), err.read_text(), code)


def main(words: Sequence[str]) -> int:
    """Write what examples print; return 1 if one of them fails."""
    parser = argparse.ArgumentParser(description="Write what the examples print.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of these alone")
    parser.add_argument("--pictures", type=Path, help="keep the pictures in this folder")
    asked = parser.parse_args(words)
    unknown = [name for name in asked.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no example {unknown[0]}: choose from {', '.join(NAMES)}")
    failed = 0
    with Examples() as examples, tempfile.TemporaryDirectory() as folder:
        pictures = asked.pictures or Path(folder)
        pictures.mkdir(parents=True, exist_ok=True)
        for name in asked.names or NAMES:
            ran = examples.run(name, pictures)
            if ran.code:
                print(f"{name} fails:\n{ran.errors}", file=sys.stderr)
                failed = 1
                continue
            changed = not kept(name).is_file() or kept(name).read_text() != ran.printed
            kept(name).write_text(ran.printed)
            print(f"{name}: {'written' if changed else 'as before'}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
