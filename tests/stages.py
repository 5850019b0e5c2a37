"""The test suite in two stages, with one summary: ``python tests/stages.py [options of pytest]``.

Tests of real packets measure real time, so they run alone; the others run on all processors, also
those that need root for something else (``beside``). Both stages always run. The options are those
of the second stage.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

REAL_PACKETS = ["-m", "root and not beside and not nightly"]
# One more than there are processors: some tests wait for other processes.
OTHERS = ["-n", str((os.cpu_count() or 1) + 1), "-m", "(beside or not root) and not nightly"]


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


def main(root: Path, stages: list[tuple[str, list[str]]]) -> int:
    """Run the stages on the tests below ``root`` and return the first exit code that is not 0."""
    begin = time.monotonic()
    counts = Counts()
    codes = []
    # Tests start hundreds of programs: each would compile the sources of its packages again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        for number, (title, options) in enumerate(stages):
            print(f"{title}:", flush=True)
            report = Path(folder) / f"{number}.xml"
            # -qq leaves out the summary line of a stage, which is not that of the suite.
            line = [sys.executable, "-P", "-m", "pytest", "-qq", f"--junitxml={report}", *options]
            codes.append(subprocess.run(line, cwd=root).returncode)
            counts.add(report)
            if codes[-1] == 2:  # interrupted
                break
    print(counts.summary(time.monotonic() - begin))
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(
        main(
            Path(__file__).parent.parent,
            [
                ("tests of real packets, one at a time", REAL_PACKETS),
                ("all other tests, on all processors", [*OTHERS, *sys.argv[1:]]),
            ],
        )
    )
