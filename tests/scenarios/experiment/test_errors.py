# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong is one line that can be read."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from scenarios.experiment.errors import message_line, message_of
from scenarios.experiment.settings import Settings
from tests.scenarios.conftest import Canary, refused


@pytest.mark.parametrize("number", [*errno.errorcode])
def test_what_the_system_refuses_is_a_sentence(number: int) -> None:
    text = message_of(OSError(number, os.strerror(number), "my runs/x"))
    assert text.startswith(f"my runs/x: {os.strerror(number)}") and "rrno" not in text
    library = (
        f"[Errno {number}] Error writing bytes. Detail: [errno {number}] {os.strerror(number)}"
    )
    assert "rrno" not in message_of(OSError(number, library))


def test_a_full_disk_says_what_to_do() -> None:
    text = message_of(OSError(errno.ENOSPC, "No space left on device", "runs/x"))
    assert text.startswith("runs/x: No space left on device: free some, or choose")


def test_a_file_of_ones_own_error_keeps_its_words() -> None:
    assert message_of(OSError("the capture ended")) == "the capture ended"
    error = ValueError("wrong")
    error.add_note("nothing was kept")
    assert message_of(error) == "wrong; nothing was kept"


def test_pydantic_is_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(ValidationError) as found:
        Settings(k=5000)
    assert message_of(found.value) == "k: should be less than or equal to 128"
    with pytest.raises(ValidationError) as found:
        Settings(noise="much")
    assert message_of(found.value).startswith("NOISE=much is not a loss rate")
    with pytest.raises(ValidationError) as found:
        Settings(**{"colour": "red", "k": "x"})  # type: ignore[arg-type]
    assert "pydantic" not in message_of(found.value)


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", f"FAULTS={LONG}"],
        ["run", f"FAULTS={'6links, y ' * 10_000}"],
        ["run", f"K={LONG}"],
        ["run", f"TRAFFIC={LONG}"],
        ["run", f"SCENARIO={LONG}"],
        ["run", f"METHODS={LONG}"],
        ["run", f"METHODS=flock:p_bad={LONG}"],
        ["run", f"NOISE={LONG}"],
        ["run", f"TOPOLOGY={LONG}"],
        ["run", f"TELEMETRY={LONG}", "BACKEND=flow"],
        ["run", f"BACKEND={LONG}"],
        ["run", f"COLOUR={LONG}"],
        ["run", f"CONFIG={LONG}"],
        ["run", f"PARAMETERS={LONG}"],
        ["compare", f"SEEDS={LONG}"],
        ["compare", f"SWEEP={LONG}=4,8"],
        ["compare", f"SWEEP=K={LONG}"],
        ["show", LONG],
        ["analyze", LONG],
        ["page", LONG],
        ["reproduce", f"FIG={LONG}"],
        ["shell", LONG],
        [LONG],
        ["run", f"--{LONG}"],
        ["localize", "--topology", LONG, "--telemetry", LONG],
    ],
    ids=lambda arguments: " ".join(arguments)[:30],
)
def test_a_value_of_100_kb_is_shortened(canary: Canary, arguments: list[str]) -> None:
    result = canary(*arguments)
    refused(result, "")
    assert len(result.err) < (1100 if "…" in result.err else 300), result.err


def test_what_the_environment_says_is_shortened(
    canary: Canary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CANARY_TRAFFIC", LONG)
    result = canary("run", f"RUN={tmp_path}/run")
    refused(result, "TRAFFIC")
    assert len(result.out) < 1100 and len(result.err) < 1100


@pytest.mark.parametrize(
    "text",
    [
        "k: !!bool maybe",
        "k: !!float ''",
        f"k: 1{':1' * 200}.5",
        'faults: "\\0.yaml"',
        'traffic: "\\ud800.pcap"',
        'monitors: "\\ud800"',
    ],
    ids=lambda text: text[:30],
)
def test_values_that_no_file_should_have(canary: Canary, tmp_path: Path, text: str) -> None:
    theirs = tmp_path / "theirs.yaml"
    theirs.write_text(text)
    refused(canary("run", f"CONFIG={theirs}", f"RUN={tmp_path}/run"), str(theirs))
    refused(canary("run", f"PARAMETERS={theirs}", f"RUN={tmp_path}/run"), str(theirs))
    refused(canary("calibrate", f"TRAIN={theirs}", f"OUT={tmp_path}/mine.yaml"), str(theirs))
    assert [*tmp_path.iterdir()] == [theirs]


def test_wrong_input_is_all_that_is_said_whatever_was_chosen(
    canary: Canary, tmp_path: Path
) -> None:
    for wrong in ("FAULTS=core9->agg0_0", "FAULTS=tor0_0->agg0_1:7", "TRAFFIC=none.pcap"):
        result = canary("run", wrong, f"RUN={tmp_path}/here")
        refused(result)
        assert not result.out


def test_spaces_in_names_stay() -> None:
    assert message_line("no  such\n  file a  b\x1b") == "no  such file a  b\\x1b"


KILLED = """
import os, signal, sys
from pathlib import Path
from analysis.methods.registry import find_methods
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import run_experiment
from scenarios.experiment.observer import ProgressObserver
from scenarios.experiment.request import load_scenario
from scenarios.experiment.settings import Settings

def progress(what, share):
    if what.startswith("diagnosis"):
        os.kill(os.getpid(), signal.SIGKILL)

settings = Settings(epochs=1, load=0.01)
observer = ProgressObserver(progress)
methods = find_methods("netbouncer")
run_experiment(layout_of(settings), Path(sys.argv[1]), methods, observer)
"""


def test_a_run_that_was_killed_is_offered(canary: Canary, tmp_path: Path) -> None:
    place = tmp_path / "my run"
    done = subprocess.run([sys.executable, "-P", "-c", KILLED, place])
    assert done.returncode == -9
    result = canary("run", f"RUN={place}", "EPOCHS=1", "LOAD=0.01", "METHODS=netbouncer")
    analyze, remove = f"make analyze 'RUN={place}.partial'", f"rm -r '{place}.partial'"
    refused(result, "1 finished epochs of an interrupted run", analyze, remove, "another RUN")
    result = canary("analyze", f"{place}.partial", "METHODS=netbouncer")
    assert result.code == 0, result.err
    subprocess.run(["sh", "-c", remove], check=True)
    result = canary("run", f"RUN={place}", "EPOCHS=1", "LOAD=0.01", "METHODS=netbouncer")
    assert result.code == 0, result.err


@pytest.mark.root
@pytest.mark.beside
@pytest.mark.parametrize(
    "kilobytes",
    [
        pytest.param(4, marks=pytest.mark.nightly),
        pytest.param(40, marks=pytest.mark.nightly),
        300,
        pytest.param(600, marks=pytest.mark.nightly),
    ],
)
def test_a_full_disk(kilobytes: int, tmp_path: Path, installed: Callable[[str], Path]) -> None:
    """One line and the exit code 2 wherever the space ends, and nothing half-written."""
    canary = installed("scenarios/canary")
    mount = f"mount -t tmpfs -o size={kilobytes}k none {tmp_path} && cd {tmp_path} && "
    given = "--backend flow --epochs 2 --methods netbouncer"
    run, compare = f"run {given} --run here", f"compare {given} --seeds 1-2 --out here"
    for command in (f"{canary} {run}", f"{canary} {compare}"):
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", f"{mount} {command}; echo $?; ls -A"],
            capture_output=True,
            text=True,
        )
        errors = [line for line in done.stderr.splitlines() if not line.startswith("... ")]
        assert done.stdout.split() == ["2"] or "here" in done.stdout, done.stdout
        assert "rrno" not in done.stderr + done.stdout
        assert len(errors) <= 1, errors
