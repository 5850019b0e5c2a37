# SPDX-License-Identifier: Apache-2.0
"""Fuzzing that goes on: ``python -m tests.fuzz programs --seconds 3600 --first 20000``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

import numpy as np

from tests.fuzz import programs

READERS = ("p4info", "captures", "records", "exchange")
SERVERS = ("p4runtime", "thrift")


def main() -> int:
    """Fuzz what the command line names; return 1 if there was a report."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("what", choices=("programs", *READERS, *SERVERS))
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--most", type=int, help="number of mutations")
    options = parser.parse_args()
    numbers: Iterable[int] = count(options.first)
    if options.most is not None:
        numbers = range(options.first, options.first + options.most)
    if options.what == "programs":
        figures = programs.fuzz(numbers, options.seconds, every=200)
        print(figures.line())
        reports = figures.reports
    elif options.what in READERS:
        reports = fuzz_reader(options.what, numbers, options.seconds)
    else:
        reports = fuzz_server(options.what, numbers, options.seconds)
    for report in reports:
        print(report)
    return bool(reports)


def fuzz_reader(what: str, numbers: Iterable[int], seconds: float) -> list[str]:
    """Give damaged inputs to a reader until ``seconds`` have passed; return what was wrong."""
    from tests.fuzz.readers import readers

    with tempfile.TemporaryDirectory() as name:
        place, read = Path(name), readers(Path(name))[what]

        def once(number: int) -> str:
            with tempfile.TemporaryDirectory(dir=place) as folder:
                error = read(Path(folder), np.random.default_rng([number, 0xF023]))
            if error is not None and len(str(error).splitlines()) != 1:
                raise AssertionError(f"not one line: {error!r}")
            return "read" if error is None else "refused"

        return repeated(what, once, numbers, seconds)


def fuzz_server(what: str, numbers: Iterable[int], seconds: float) -> list[str]:
    """Send mutated messages to servers until ``seconds`` have passed; return what was wrong."""
    from tests.fuzz import servers

    def once(number: int) -> str:
        servers.SERVERS[what](number)
        return f"servers of {servers.MESSAGES} messages"

    return repeated(what, once, numbers, seconds)


def repeated(
    what: str, once: Callable[[int], str], numbers: Iterable[int], seconds: float
) -> list[str]:
    """Call ``once`` with each number until ``seconds`` have passed; return what was wrong."""
    ends: Counter[str] = Counter()
    reports: list[str] = []
    end = time.monotonic() + seconds
    for number in numbers:
        if time.monotonic() > end:
            break
        try:
            ends[once(number)] += 1
        except Exception:
            ends["wrong"] += 1
            reports.append(f"{what} {number}: {traceback.format_exc()[-3000:]}")
    print(f"{what}: {dict(ends)}, {len(reports)} reports", flush=True)
    return reports


if __name__ == "__main__":
    sys.exit(main())
