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
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
OUTPUT = FOLDER / "output"
NAMES = sorted(file.stem for file in FOLDER.glob("*.py"))

_PROGRAM = """
import runpy, sys
from pathlib import Path
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
runpy.run_path(sys.argv[1], run_name="__main__")
for number in plt.get_fignums():
    plt.figure(number).savefig(Path(sys.argv[2], f"{Path(sys.argv[1]).stem}-{number}.png"))
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


def run_example(name: str, pictures: Path) -> Ran:
    """Run an example in a process and a folder of its own; a warning ends it.

    Args:
        name: Its file, without suffix.
        pictures: Folder of its pictures, NAME-1.png and so on.
    """
    program = [sys.executable, "-P", "-W", "error", "-c", _PROGRAM]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*program, FOLDER / f"{name}.py", pictures.absolute()],
            cwd=folder,
            capture_output=True,
            text=True,
        )
    return Ran(done.stdout, done.stderr, done.returncode)


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
    with tempfile.TemporaryDirectory() as folder:
        pictures = asked.pictures or Path(folder)
        pictures.mkdir(parents=True, exist_ok=True)
        for name in asked.names or NAMES:
            ran = run_example(name, pictures)
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
