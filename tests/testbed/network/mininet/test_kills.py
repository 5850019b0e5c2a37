# SPDX-License-Identifier: Apache-2.0
"""Kills at random moments of what takes part in a run on real packets.

A run goes on or ends in one line; `clean-net`, from another folder, leaves nothing of it, and every
epoch that was finished can be read.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from analysis.telemetry.observations import read_telemetry
from testbed.network.processes import TOKEN
from testbed.network.requirements import missing
from testbed.record.run import RunDirectory
from tests.conftest import without_progress
from tests.patience import PATIENCE_S
from tests.real_packets import paced, words
from tests.testbed.network.mininet.test_interruption import fabric_links, finished_epochs, token_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(missing("softswitch")), reason=missing("softswitch") or "never"),
]

EPOCHS = 4
OPTIONS = ["--backend", "softswitch", "--tcp", "0.05", "--run", "here"]
KILLS_OF_A_RUN = 5
MOMENTS_S = 6.0
VICTIMS = {
    "switch": "canary_softswitch.process.many",
    "host": "mininet:h",
    "traffic": "iperf3",
}


@dataclass
class Run:
    """A run under the knife; its temporary files go into a folder of their own."""

    path: Path
    process: subprocess.Popen[str]
    token: str

    @property
    def epochs(self) -> int:
        return max(finished_epochs(self.path / name) for name in ("here.partial", "here"))

    def victims(self, kind: str) -> list[int]:
        return [pid for pid, line in with_token(self.token) if VICTIMS[kind] in line]


def environment(path: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(path / "tmp")}


def begin(path: Path) -> Run:
    (path / "tmp").mkdir(parents=True)
    (path / "elsewhere").mkdir()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "scenarios.command.cli",
            "run",
            *OPTIONS,
            *words(paced(EPOCHS, 1500, 0.1)),
        ],
        cwd=path,
        env=environment(path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + PATIENCE_S
    while not (token := token_of(process)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    return Run(path, process, token)


def with_token(token: str) -> list[tuple[int, str]]:
    """Processes of a run, with their command lines."""
    wanted, found = f"{TOKEN}={token}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append((int(entry.name), line))
        except OSError:
            continue
    return found


def kill_one(run: Run, kind: str, rng: random.Random) -> bool:
    """Kill one of a kind, if there is one."""
    pids = run.victims(kind)
    if not pids:
        return False
    try:
        os.kill(rng.choice(pids), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def operate(path: Path, rng: random.Random, from_epoch: int) -> Counter[str]:
    """One run with kills at random moments, the runner's the last; the kills by what was killed.

    The moments begin with the run, or when so many of its epochs are finished.
    """
    kills: Counter[str] = Counter()
    links = fabric_links()
    run = begin(path)
    deadline = time.monotonic() + PATIENCE_S
    while run.epochs < from_epoch and run.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    *others, last = sorted(rng.uniform(0, MOMENTS_S) for _ in range(KILLS_OF_A_RUN))
    started, seen = time.monotonic(), 0
    for moment in others:
        kind = rng.choice(["switch", "switch", "host", "traffic"])
        while run.process.poll() is None and time.monotonic() < deadline:
            seen = max(seen, run.epochs)
            if time.monotonic() - started >= moment and kill_one(run, kind, rng):
                kills[kind] += 1
                break
            if time.monotonic() - started >= moment + 2:
                kind = "switch"  # there was no other
            time.sleep(0.02)
    while run.process.poll() is None and time.monotonic() - started < last:
        seen = max(seen, run.epochs)
        time.sleep(0.02)
    if run.process.poll() is None:
        seen = max(seen, run.epochs)
        run.process.kill()
        kills["runner"] += 1
    _, errors = run.process.communicate(timeout=PATIENCE_S)
    code = run.process.returncode
    assert code in (0, 2, -signal.SIGKILL), errors
    remarks = [
        line for line in without_progress(errors) if not line.startswith("about ")
    ]  # the estimate
    assert "Traceback" not in errors and len(remarks) <= 1, errors
    if code == 2:  # it ended by itself, and tidied up by itself
        assert not with_token(run.token)
        if not kills:
            print(f"{path.name} ended before anything was killed: {errors}")
    assert_clean(run, links)
    assert_epochs_are_there(run, seen)
    kills["epochs"] = seen
    return kills


def assert_clean(run: Run, links: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scenarios.command.cli", "clean-net"],
        cwd=run.path / "elsewhere",
        env=environment(run.path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not with_token(run.token)  # and with them namespaces, veths and nftables go
    assert fabric_links() == links
    assert not Path(f"/tmp/canary-{run.token[:12]}").exists()
    assert not list((run.path / "tmp").iterdir())
    assert not list((run.path / "elsewhere").iterdir())


def assert_epochs_are_there(run: Run, seen: int) -> None:
    place = run.path / "here" if (run.path / "here").exists() else run.path / "here.partial"
    if not seen:
        return
    found = RunDirectory(place, finished=place.name == "here")
    assert found.epochs >= seen
    telemetry = read_telemetry(found)
    assert telemetry.segments is not None and telemetry.segments.sent.sum() > 0


def many(path: Path, wanted: int, capsys: pytest.CaptureFixture[str]) -> Counter[str]:
    kills: Counter[str] = Counter()
    runs = epochs = 0  # early kills end a run before its first epoch
    while kills.total() < wanted or not epochs:
        assert runs < wanted
        kills += operate(path / str(runs), random.Random(runs), from_epoch=runs % 2)
        epochs += kills.pop("epochs", 0)
        runs += 1
    with capsys.disabled():
        counts = ", ".join(f"{kind} {count}" for kind, count in sorted(kills.items()))
        print(
            f"\n{kills.total()} kills in {runs} runs ({counts}): nothing left, and none of "
            f"{epochs} finished epochs lost"
        )
    assert epochs
    return kills


@pytest.mark.nightly  # every time: test_interruption.py kills one
def test_five_kills_leave_nothing_and_lose_no_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many(tmp_path, 5, capsys)


@pytest.mark.nightly
def test_a_hundred_kills_leave_nothing_and_lose_no_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kills = many(tmp_path, 100, capsys)
    assert kills["switch"] and kills["runner"]
