# SPDX-License-Identifier: Apache-2.0
"""Fuzzing that goes on: ``python -m tests.fuzz programs --seconds 3600 --first 20000``."""

from __future__ import annotations

import argparse
import sys
from itertools import count

from tests.fuzz import programs


def main() -> int:
    """Fuzz what the command line names; return 1 if there was a report."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("what", choices=("programs",))
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--most", type=int, help="number of mutations")
    options = parser.parse_args()
    numbers = count(options.first)
    if options.most is not None:
        numbers = iter(range(options.first, options.first + options.most))
    figures = programs.fuzz(numbers, options.seconds, every=200)
    print(figures.line())
    for report in figures.reports:
        print(report)
    return bool(figures.reports)


if __name__ == "__main__":
    sys.exit(main())
