# SPDX-License-Identifier: Apache-2.0
"""Mutated programs: refused in one line, or compiled and run under the sanitizers."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from canary_softswitch.compiler.build import FLAGS
from canary_softswitch.compiler.source import Source, _translate
from canary_softswitch.errors import InvalidProgram, UnsupportedProgram
from testbed.softswitch.tests import mutate
from testbed.softswitch.tests.test_sanitizers import SANITIZERS, runtime
from tests.fuzz import runner

PACKETS = 2000
MOST_SECONDS = 10.0
"""Processor time in which a program must be refused or translated."""
QUICK = (
    "-fsanitize-undefined-trap-on-error",
    *("--param", "asan-instrumentation-with-call-threshold=0"),
)
"""Flags with which the compiler takes a third of the time: checks are calls, or end in SIGILL."""
INLINED = "always_inline, unused"
"""Functions are not copied to where they are called: a large program takes a tenth of the time."""
PACKETS_C = Path(__file__).parent / "packets.c"
ROOT = Path(__file__).parents[2]
FRAMES = (
    "ffffffffffff020000000001080045000032000100004011b6b90a0000010a0000020035003500 1e0000",
    "0200000000020200000000018100006408004500002800010000400666c00a0100010a0200020050 1f90",
    "02000000000202000000000186dd6000000000083a40fe80" + "00" * 14 + "01",
    "0000000000010000000000021234000102030405060708090a0b0c0d0e0f1011121314151617",
    "01020304050607080900",
)


@dataclass
class Figures:
    """What became of programs: counts, and the numbers of the mutations with a report."""

    ends: Counter[str] = field(default_factory=Counter)
    packets: int = 0
    compiled: int = 0
    reports: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return the figures in one line."""
        return (
            f"{sum(self.ends.values()):,} programs {dict(self.ends)}, {self.compiled:,} compiled, "
            f"{self.packets:,} packets, {len(self.reports)} reports {self.reports[:5]}"
        )


class Sanitized:
    """Compiles programs with the sanitizers, and runs them in `tests.fuzz.runner`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        library, lacking = runtime()
        if lacking:
            raise RuntimeError(lacking)
        environment = {
            **os.environ,
            "LD_PRELOAD": library,
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
            "PYTHONPATH": str(ROOT),
        }
        self._runner = subprocess.Popen(
            runner.command(),
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._known: dict[str, Path | None] = {}

    def __enter__(self) -> Sanitized:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._runner.stdin is not None
        self._runner.stdin.close()
        self._runner.wait()

    def compiled(self, code: str) -> Path | None:
        """Return the library of a program; None if it was compiled before and did not compile.

        Raises:
            AssertionError: The compiler refuses the code.
        """
        name = hashlib.sha256(code.encode()).hexdigest()[:32]
        library = self.folder / f"{name}.so"
        if name not in self._known:
            self._known[name] = None
            self._compile(code, library, QUICK)
            self._known[name] = library
        return self._known[name]

    def _compile(self, code: str, library: Path, more: Sequence[str] = ()) -> None:
        source = self.folder / "program.c"
        source.write_text(code.replace(INLINED, "unused") + PACKETS_C.read_text())
        flags = [*("-O0" if flag == "-O2" else flag for flag in FLAGS), *SANITIZERS.split(), *more]
        done = subprocess.run(
            ["gcc", *flags, "-w", "-o", str(library), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"gcc: {done.stderr[:2000]}"

    def run(self, number: int, source: Source, packets: int) -> str:
        """Run a program; return the report of a sanitizer, "" without one."""
        library = self.compiled(source.code)
        if library is None:
            return ""
        ended = self._ended(number, source, packets, library)
        if ended == -signal.SIGILL:  # once more, with a message
            library = library.with_suffix(".slow.so")
            self._compile(source.code, library)
            ended = self._ended(number, source, packets, library)
            ended = ended or "it ended in an illegal instruction, but not again"
        report = self.folder / "report"
        return f"exit {ended}: {report.read_text(errors='replace')[:4000]}" if ended else ""

    def _ended(self, number: int, source: Source, packets: int, library: Path) -> int | str:
        """Return the exit code of a run of a program's library; its messages are in ``report``."""
        pickled = self.folder / "source"
        pickled.write_bytes(pickle.dumps(source))
        request = {
            "number": number,
            "library": str(library),
            "source": str(pickled),
            "report": str(self.folder / "report"),
            "packets": packets,
            "frames": [frame.replace(" ", "") for frame in FRAMES],
        }
        assert self._runner.stdin is not None and self._runner.stdout is not None
        print(json.dumps(request), file=self._runner.stdin, flush=True)
        return int(self._runner.stdout.readline())


def fuzz(
    numbers: Iterable[int],
    seconds: float = float("inf"),
    packets: int = PACKETS,
    every: int = 0,
    files: list[Path] | None = None,
) -> Figures:
    """Try the mutations with these numbers until ``seconds`` have passed; return the figures.

    Args:
        numbers: Each decides a mutation and its packets.
        seconds: When no further one is begun.
        packets: Packets a program.
        every: Print the figures after so many programs; 0: never.
        files: The programs that are mutated.
    """
    figures, end = Figures(), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, Sanitized(Path(folder)) as sanitized:
        for number in numbers:
            if time.monotonic() > end:
                break
            if every and sum(figures.ends.values()) % every == 0:
                print(figures.line(), flush=True)
            _, data = mutate.mutated(number, files or mutate.FILES)
            begun = time.process_time()
            try:
                source = _translate(data, "stranger.json", None, 511)
            except (InvalidProgram, UnsupportedProgram) as error:
                figures.ends["refused"] += 1
                if not str(error).isprintable():
                    figures.reports.append(f"{number}: message {error!r}")
                continue
            except Exception as error:
                figures.ends["defect"] += 1
                figures.reports.append(f"{number}: {type(error).__name__} {error}")
                continue
            if (took := time.process_time() - begun) > MOST_SECONDS:
                figures.reports.append(f"{number}: {took:.0f} s to translate")
            try:
                report = sanitized.run(number, source, packets)
            except AssertionError as error:
                report = str(error)
            figures.ends["ran"] += 1
            figures.packets += packets
            figures.compiled = len(sanitized._known)
            if report:
                figures.reports.append(f"{number}: {report}")
    return figures
