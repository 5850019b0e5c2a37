# SPDX-License-Identifier: Apache-2.0
"""Processor time and memory that each reader takes for files made to take all of it.

`python -m tests.bench.bombs` prints a row for each test of `tests.scenarios.test_bombs`, with the
most of its readers; `-v` prints a row for each reader, with what it said.
"""

from __future__ import annotations

import sys

import pytest

from tests.scenarios import test_bombs


def main(arguments: list[str]) -> int:
    """Run the tests and print the table in Markdown; return pytest's exit code."""
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-n", "0", str(test_bombs.__file__)])
    found: dict[str, list[test_bombs.Figure]] = {}
    for figure in test_bombs.FIGURES:
        name = figure.test.partition("::")[2].removesuffix(" (call)")
        found.setdefault(name, []).append(figure)
    print("| file | readers | seconds, at most | MB, at most |\n| --- | --- | --- | --- |")
    for name, figures in found.items():
        seconds = max(figure.seconds for figure in figures)
        memory = max(figure.memory for figure in figures) / 1e6
        print(f"| `{name}` | {len(figures)} | {seconds:.1f} | {memory:.0f} |")
        for figure in figures if "-v" in arguments else ():
            print(f"| | | {figure.seconds:.2f} | {figure.memory / 1e6:.0f} | {figure.message}")
    seconds = max(figure.seconds for figure in test_bombs.FIGURES)
    memory = max(figure.memory for figure in test_bombs.FIGURES)
    print(f"at most {seconds:.1f} s of processor time and {memory / 1e6:.0f} MB")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
