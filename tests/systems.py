# SPDX-License-Identifier: Apache-2.0
"""Which systems the project ran on, as the jobs that ran say themselves.

    python3 tests/systems.py record FILE WHAT RESULT    add a row on this system to a CSV file
    python3 tests/systems.py collect FILE...            take rows into docs/data/systems.csv

A job records what it did when it ends, with the system's Python and nothing installed; RESULT is
``passed`` or ``failed``, GitHub's ``success``, or an exit code. Of each WHAT on a system the latest
row is kept. `docs/project/systems.md` shows them (``python -m tests.docs.made``).

Where there is no clone, COMMIT names the commit; EMULATED says that QEMU runs the programs.
"""

from __future__ import annotations

import csv
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "docs" / "data" / "systems.csv"
COLUMNS: tuple[str, ...] = (
    *("system", "processor", "python", "compiler", "user", "what"),
    *("result", "commit", "date"),
)
SAME = COLUMNS[:6]
"""The columns that say what ran where."""

Row = dict[str, str]


def this_system(what: str, result: str) -> Row:
    """Return the row of a job on this system."""
    found = platform.uname()
    return {
        "system": _system(),
        "processor": {"arm64": "aarch64"}.get(found.machine, found.machine)
        + (" (QEMU)" if os.environ.get("EMULATED") else ""),
        "python": platform.python_version(),
        "compiler": _compiler(),
        "user": "root" if os.geteuid() == 0 else "ordinary",
        "what": what,
        "result": "passed" if result in ("passed", "success", "0") else "failed",
        "commit": os.environ.get("COMMIT", "") or commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _system() -> str:
    """Return the name and version of the operating system."""
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    release = platform.freedesktop_os_release()
    kernel = " (WSL 2)" if "microsoft" in platform.release().lower() else ""
    name = release.get("NAME", "Linux").replace(" GNU/Linux", "")
    codename = release.get("VERSION_CODENAME", "").capitalize()
    return f"{name} {release.get('VERSION_ID', codename)}{kernel}".strip()


def _compiler() -> str:
    """Return the name and version of the C compiler that a run takes, as `compiler()` chooses."""
    for name in (
        [os.environ.get("CC", "").split(" ")[0]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    ):
        if shutil.which(name):
            first = _said(name, "--version").partition("\n")[0]
            kind = "clang" if "clang" in first else "gcc"
            version = re.search(r"\d+\.\d+(\.\d+)?", re.sub(r"\(.*?\)", "", first))
            return f"{kind} {version[0]}" if version else kind
    for folder in (ROOT / ".venv" / "lib").glob("python3*/site-packages/ziglang-*.dist-info"):
        return f"zig {folder.name.split('-')[1].removesuffix('.dist')}"
    return "none"


def commit() -> str:
    """Return the commit of this clone; "" if it is none."""
    return _said("git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD")


def _said(*command: str) -> str:
    """Return what a command prints; "" if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def read(path: Path) -> list[Row]:
    """Return the rows of a file; none if there is no such file.

    Raises:
        ValueError: It has other columns.
    """
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, strict=True)
        rows = list(reader)
    if tuple(reader.fieldnames or ()) != COLUMNS or any(set(row) != set(COLUMNS) for row in rows):
        raise ValueError(f"{path} does not have the columns {', '.join(COLUMNS)}")
    return rows


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write rows to a file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def latest(rows: Iterable[Row]) -> list[Row]:
    """Return the last row of each thing on each system, sorted; of two of a day the later in
    ``rows``."""
    kept: dict[tuple[str, ...], Row] = {}
    for row in sorted(rows, key=lambda row: row["date"]):
        kept[tuple(row[column] for column in SAME)] = row
    return [kept[key] for key in sorted(kept)]


def main(command: str = "", *arguments: str) -> int:
    """Run the command line: `record` writes the row of a job, `collect` adds rows to the
    table. Return the exit code."""
    if command == "record" and len(arguments) == 3:
        file, what, result = arguments
        write(Path(file), [*read(Path(file)), this_system(what, result)])
        return 0
    if command == "collect" and arguments:
        rows = [row for path in arguments for row in read(Path(path))]
        write(KEPT, latest([*read(KEPT), *rows]))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
