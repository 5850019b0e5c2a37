# SPDX-License-Identifier: Apache-2.0
"""Processes that a test looks for: `pgrep` is not on every machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def child_of(pid: int, program: str) -> int:
    """The one child of a process whose command line names a program."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == pid and program in (process / "cmdline").read_text():
                found.append(int(process.name))
    [child] = found
    return child
