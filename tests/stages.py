# SPDX-License-Identifier: Apache-2.0
"""The test suite in stages, with one summary: ``python tests/stages.py [options of pytest]``.

Tests of real packets measure real time, so they run one at a time. They mostly wait: all others,
also those that need root for something else (``beside``), run meanwhile on all processors, at the
lowest priority, and at the usual one as soon as the real packets are done. Each of these two stages
runs to its end, whatever happens in the other. Options of pytest are those of the second. The real
packets run in namespaces of their own. An ordinary user may not raise a priority again: all tests
then have the usual one.
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

sys.path.insert(0, str(Path(__file__).parent.parent))

from testbed.rootless import LOOPBACK_UP, UNSHARE, forbidden, may_make_networks

PROCESSORS = os.cpu_count() or 1
TESTS = Path(__file__).parent
PLACES = [TESTS, TESTS.parent / "testbed" / "softswitch" / "tests"]
# The files that have such tests: to collect all others takes seconds.
NEED_ROOT = [
    str(file)
    for place in PLACES
    for file in place.rglob("test_*.py")
    if "mark.root" in file.read_text()
]
REAL = ["-m", "root and not beside and not nightly", *sorted(NEED_ROOT)]
# Tests of the soft switch use `ip netns`, which writes below /run.
OWN_RUN = ("--mount", "--", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh")
IN_NAMESPACES = [] if may_make_networks() or forbidden() else [*UNSHARE, *OWN_RUN, *LOOPBACK_UP]
REAL_PACKETS = "tests of real packets, one at a time", REAL
# One more than there are processors: some tests wait for other processes. Each worker begins with
# whole files, whose fixtures are then made once.
WORKERS = ["-n", str(PROCESSORS + 1), "--dist", "worksteal"]
NOT_REAL = [*WORKERS, "-m", "(beside or not root) and not nightly"]
OTHERS = "all other tests, on all processors", NOT_REAL


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
        message = ", ".join(f"{count} {name}" for count, name in counts if count)
        minutes, rest = divmod(round(seconds), 60)
        clock = f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
        return f"{message or 'no tests ran'} in {seconds:.2f}s ({clock})"


class Stage:
    """A run of pytest on the tests below ``root``, which leaves its report in ``folder``."""

    def __init__(self, root: Path, folder: Path, title: str, options: list[str]) -> None:
        self._root, self._title = root, title
        self.report, self._printed = folder / f"{title}.xml", folder / f"{title}.txt"
        # -qq leaves out the summary line of a stage, which is not that of the suite.
        pytest = [sys.executable, "-P", "-m", "pytest", "-qq", f"--junitxml={self.report}"]
        self._command = [*(IN_NAMESPACES if title == REAL_PACKETS[0] else []), *pytest, *options]

    def run(self) -> int:
        """Run the tests and return pytest's exit code."""
        print(f"{self._title}:", flush=True)
        return subprocess.run(self._command, cwd=self._root).returncode

    def begin(self) -> None:
        """Begin to run the tests, at the lowest priority where it can be raised again: by root."""
        with self._printed.open("wb") as file:
            self._process = subprocess.Popen(
                self._command, cwd=self._root, stdout=file, stderr=file, start_new_session=True
            )
        if os.geteuid() == 0:
            self._set_priority(19)

    def _set_priority(self, nice: int) -> None:
        """Change the priority of the tests that run."""
        pid = self._process.pid
        with suppress(OSError):  # they have ended, or this kernel does not group tasks by session
            os.setpriority(os.PRIO_PGRP, pid, nice)
            Path(f"/proc/{pid}/autogroup").write_text(str(nice))

    def end(self) -> int:
        """Go on at the usual priority, print what is printed, and return pytest's exit code."""
        if os.geteuid() == 0:
            self._set_priority(0)
        print(f"{self._title}:", flush=True)
        with self._printed.open() as file:
            while True:
                code = self._process.poll()
                print(file.read(), end="", flush=True)
                if code is not None:
                    return code
                time.sleep(0.2)

    def stop(self) -> None:
        """Interrupt the tests if they still run."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
            self._process.wait()


def main(root: Path, first: tuple[str, list[str]], beside: tuple[str, list[str]]) -> int:
    """Run two stages on the tests below ``root`` and return the first exit code that is not 0.

    Args:
        root: The current folder of pytest.
        first: Title and pytest's options of the stage that runs at the usual priority.
        beside: Those of the stage that begins with it, see `Stage.begin`.
    """
    begin = time.monotonic()
    counts = Counts()
    # Tests start hundreds of programs: each would compile the sources of its packages again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # As in a command: more threads for small matrices would only take processors from other tests.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        one, other = (Stage(root, Path(name), *stage) for stage in (first, beside))
        other.begin()
        try:
            codes = [one.run()]
            counts.add(one.report)
            if codes[0] != 2:  # not interrupted
                codes.append(other.end())
                counts.add(other.report)
        finally:
            other.stop()
    print(counts.summary(time.monotonic() - begin))
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    title, options = OTHERS
    both = REAL_PACKETS, (title, [*options, *sys.argv[1:]])
    sys.exit(main(TESTS.parent, *both))
