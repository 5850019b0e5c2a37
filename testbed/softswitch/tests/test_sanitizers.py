# SPDX-License-Identifier: Apache-2.0
"""Programs compiled with the address and the undefined-behaviour sanitizer, and hostile packets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"


def runtime() -> tuple[str, str]:
    """The library of gcc's address sanitizer, and why it cannot be used, "" where it can."""
    try:
        found = run_with(["gcc", "-print-file-name=libasan.so"]).stdout.strip()
    except OSError:
        found = ""
    if "/" not in found:
        return "", "gcc or its sanitizers' library is not there"
    # It needs a place for its shadow memory, which User-Mode Linux, for one, does not have.
    started = run_with(["true"], LD_PRELOAD=found)
    reason = started.stderr.partition("\n")[0].rpartition("==")[2]
    return found, reason if started.returncode else ""


def run_with(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """How a command with more in its environment ended, and what it run_with."""
    more = {**os.environ, **environment}
    return subprocess.run(command, env=more, capture_output=True, text=True, check=False)


RUNTIME, LACKING = runtime()


MORE = [pytest.param(name, marks=pytest.mark.nightly) for name in ("meters", "copies", "stacks")]

HOSTILE = """
import random, sys
from canary_softswitch import MeterRates, Program, Switch, SwitchFault
sw = Switch(Program.load(sys.argv[1]))
rng = random.Random(1)
sw.set_mirror(5, 3, truncate=9)
sw.set_multicast_group(1, [(1, 1), (2, 2)])
for name, meter in sw.program.meters.items():
    for i in range(meter.size):
        sw.set_meter(name, i, MeterRates(0.5, 10, 1e300, 2**63 - 1))
for i in range(3000):
    size = rng.choice([0, 1, 5, 20, 60, 600, 60000 if i % 100 == 0 else 30])
    data = bytes([rng.randrange(16), rng.randrange(16) * 8]) + rng.randbytes(size)
    try:
        sw.process(rng.randrange(512), data[: rng.choice([1, size, size + 2])], i)
    except SwitchFault:
        pass
"""


@pytest.mark.skipif(bool(LACKING), reason=LACKING)
@pytest.mark.parametrize("name", ["unions", "varbits", *MORE])
def test_no_report(name: str) -> None:
    run = run_with(
        [sys.executable, "-c", HOSTILE, str(PROGRAMS / f"{name}.json")],
        CC=f"gcc {SANITIZERS}",
        LD_PRELOAD=RUNTIME,
        ASAN_OPTIONS="detect_leaks=0",
        PYTHONMALLOC="malloc",  # each packet in memory of its own
    )
    assert run.returncode == 0, run.stderr[-2000:]
