# SPDX-License-Identifier: Apache-2.0
"""The test suite in stages, with one summary: ``python tests/stages.py [options of pytest]``.

Tests of real packets measure real time, so they run one at a time; the others run on all
processors, also those that need root for something else (``beside``). All stages always run.

Real packets mostly wait. Where root runs them, tests that only compute run meanwhile, at the lowest
priority, and at the usual one as soon as the real packets are done. With options of pytest, which
are those of the last stage, that stage has all the other tests.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROCESSORS = os.cpu_count() or 1
NOT_REAL = "(beside or not root) and not nightly"
FOLDERS = ["tests/analysis", "tests/docs", "tests/p4"]
LEFT_OUT = [f"--ignore={folder}" for folder in FOLDERS]  # none of these tests needs root
REAL = "root and not beside and not nightly"
REAL_PACKETS = "tests of real packets, one at a time", ["-m", REAL, *LEFT_OUT]
COMPUTING = "tests that only compute", ["-n", str(PROCESSORS), "-m", NOT_REAL, *FOLDERS]
# More than there are processors: some tests wait for other processes, a third of the time.
OTHERS = "all other tests, on all processors", ["-n", str(PROCESSORS + 2), "-m", NOT_REAL]


@dataclass
class Counts:
    """How many tests ended in which way."""

    failed: int = 0
    passed: int = 0
    skipped: int = 0
    errors: int = 0

    def add(self, report: Path) -> None:
        """Add the tests of a JUnit report; a stage that left none counts as an error."""
        if not report.is_file():
            self.errors += 1
            return
        for suite in ET.parse(report).getroot().iter("testsuite"):
            tests, failed, errors, skipped = (
                int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
            )
            self.failed += failed
            self.errors += errors
            self.skipped += skipped
            self.passed += tests - failed - errors - skipped

    def summary(self, seconds: float) -> str:
        """The line that pytest ends with."""
        errors = "error" if self.errors == 1 else "errors"
        counts = (
            (self.failed, "failed"),
            (self.passed, "passed"),
            (self.skipped, "skipped"),
            (self.errors, errors),
        )
        said = ", ".join(f"{count} {name}" for count, name in counts if count)
        minutes, rest = divmod(round(seconds), 60)
        clock = f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
        return f"{said or 'no tests ran'} in {seconds:.2f}s ({clock})"


class Stage:
    """A run of pytest on the tests below ``root``, which leaves its report in ``folder``."""

    def __init__(self, root: Path, folder: Path, title: str, options: list[str]) -> None:
        self._root, self._title = root, title
        self.report, self._printed = folder / f"{title}.xml", folder / f"{title}.txt"
        # -qq leaves out the summary line of a stage, which is not that of the suite.
        pytest = [sys.executable, "-P", "-m", "pytest", "-qq", f"--junitxml={self.report}"]
        self._command = [*pytest, *options]

    def run(self) -> int:
        """Run the tests and return pytest's exit code."""
        print(f"{self._title}:", flush=True)
        return subprocess.run(self._command, cwd=self._root).returncode

    def begin(self) -> None:
        """Begin to run the tests, at the lowest priority."""
        with self._printed.open("wb") as file:
            self._process = subprocess.Popen(
                self._command, cwd=self._root, stdout=file, stderr=file, start_new_session=True
            )
        self.set_priority(19)

    def set_priority(self, nice: int) -> None:
        """Change the priority of the tests that run."""
        pid = self._process.pid
        with suppress(OSError):  # they have ended, or this kernel does not group tasks by session
            os.setpriority(os.PRIO_PGRP, pid, nice)
            Path(f"/proc/{pid}/autogroup").write_text(str(nice))

    def end(self) -> int:
        """Wait for the tests, print what they printed and return pytest's exit code."""
        code = self._process.wait()
        print(f"{self._title}:\n{self._printed.read_text()}", end="", flush=True)
        return code

    def stop(self) -> None:
        """Interrupt the tests if they still run."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
            self._process.wait()


def main(
    root: Path,
    stages: list[tuple[str, list[str]]],
    meanwhile: tuple[str, list[str]] | None = None,
) -> int:
    """Run the stages on the tests below ``root`` and return the first exit code that is not 0.

    Args:
        root: The current folder of pytest.
        stages: Title and pytest's options of each.
        meanwhile: Those of a stage that begins with the first one, at the lowest priority.
    """
    begin = time.monotonic()
    counts = Counts()
    codes = []
    # Tests start hundreds of programs: each would compile the sources of its packages again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as name:
        beside = None if meanwhile is None else Stage(root, Path(name), *meanwhile)
        if beside is not None:
            beside.begin()
        try:
            for title, options in stages:
                stage = Stage(root, Path(name), title, options)
                codes.append(stage.run())
                counts.add(stage.report)
                if codes[-1] == 2:  # interrupted
                    break
                if beside is not None:
                    beside.set_priority(0)
            else:
                if beside is not None:
                    codes.append(beside.end())
                    counts.add(beside.report)
        finally:
            if beside is not None:
                beside.stop()
    print(counts.summary(time.monotonic() - begin))
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    root = Path(__file__).parent.parent
    title, options = OTHERS
    if os.geteuid() or sys.argv[1:]:
        sys.exit(main(root, [REAL_PACKETS, (title, [*options, *sys.argv[1:]])]))
    sys.exit(main(root, [REAL_PACKETS, (title, [*options, *LEFT_OUT])], COMPUTING))
