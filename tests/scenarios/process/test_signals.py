# SPDX-License-Identifier: Apache-2.0
"""Signals at any moment of a command, from the start of its first process on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from analysis.methods.registry import find_methods
from scenarios.experiment.errors import stopped
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import new_run, run_experiment
from scenarios.experiment.settings import make_settings
from scenarios.process import signals as stopping
from testbed.record.run import RunDirectory
from testbed.signals import SIGNALS
from tests.conftest import without_progress
from tests.patience import PATIENCE_S

RUN = ["run", "--backend", "virtual", "--epochs", "1", "--load", "0.005", "--run", "here"]
RUN += ["--methods", "netbouncer"]


@pytest.fixture
def command(installed: Callable[[str], Path]) -> Path:
    return installed("scenarios/canary")


def ended_at(command: Path, place: Path, seconds: float, kind: signal.Signals) -> None:
    """A signal to a run and all its processes, as from a terminal, leaves nothing or a whole run,
    and is told in one line."""
    place.mkdir()
    process = subprocess.Popen(
        [command, *RUN],
        cwd=place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(seconds)
    if process.poll() is None:
        os.killpg(process.pid, kind)
    _, errors = process.communicate(timeout=PATIENCE_S)
    code, printed = process.returncode, without_progress(errors)
    whole = (place / "here").exists()
    if code == -kind:  # the shell says 130: nothing of ours had begun, or all was done
        assert (seconds < 0.5 or whole) and not printed, errors
    elif code:
        assert code == stopping.exit_code(kind), errors
        assert len(printed) == 1 and printed[0].startswith("canary: "), errors
    assert nothing_runs_on(process.pid)
    assert [path.name for path in place.iterdir()] == (["here"] if whole else [])
    assert whole or code < 0 or "nothing was kept" in errors
    if whole:
        assert RunDirectory(place / "here").epochs == 1
        assert "nothing was kept" not in errors


def nothing_runs_on(group: int) -> bool:
    """Whether a group of processes ends soon; some hear of the signal a little later."""
    for _ in range(100):
        if not runs(group):
            return True
        time.sleep(0.05)
    return False


def runs(group: int) -> bool:
    """Whether a process of a group runs. In a container, whose first process may collect no others,
    those that have ended stay in the group."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    states = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, own, *_ = path.read_text().rpartition(")")[2].split()
            states += [state] if int(own) == group else []
    return set(states) != {"Z"}


def test_an_interrupt_at_any_moment_is_one_line(command: Path, tmp_path: Path) -> None:
    for number, seconds in enumerate((0.005, 0.02, 0.05, 0.3, 0.8, 2.0)):
        ended_at(command, tmp_path / str(number), seconds, signal.SIGINT)


@pytest.mark.nightly
@pytest.mark.usefixtures("hangup_is_heard")
@pytest.mark.parametrize("kind", SIGNALS)
def test_signals_at_thirty_moments(
    command: Path, tmp_path: Path, kind: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = time.monotonic()
    subprocess.run([command, *RUN], cwd=tmp_path, capture_output=True, check=True)
    seconds = time.monotonic() - begin
    for number in range(30):
        ended_at(command, tmp_path / str(number), seconds * number / 30, kind)
    with capsys.disabled():
        print(f"\n{kind.name} at 30 moments of {seconds:.1f} s: one line, nothing left")


@pytest.mark.parametrize("early", ["", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_a_signal_that_python_drops_comes_again(early: str) -> None:
    """It came while an object went, where nothing may be raised; again before it was expected."""
    code = (
        "import os, signal, threading, time\n"
        "from scenarios.process.signals import Stopped, raise_on_signals\n"
        "class Timer(threading.Timer):\n"
        "    def start(self):\n"
        "        global early\n"
        "        if early:\n"
        f"            early = False; {early or 'pass'}\n"
        "        super().start()\n"
        "early, threading.Timer = True, Timer\n"
        "class Going:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "raise_on_signals()\n"
        "try:\n"
        "    going = Going()\n"
        "    del going\n"
        "    time.sleep(30)\n"
        "except Stopped as stop:\n"
        "    print('heard', *stop.args)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"heard {signal.SIGTERM:d}\n", "")


def test_a_hangup_that_nohup_ignores_stays_ignored(command: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["nohup", command, *RUN],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not (tmp_path / "here.partial").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(60) == 0
    assert RunDirectory(tmp_path / "here").epochs == 1


EVERY_LINE = """
import signal, sys
from pathlib import Path

from scenarios.experiment.run import new_run
from scenarios.process.signals import Stopped, raise_on_signals

def at(moment):
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if not frame.f_code.co_filename.endswith(("experiment.py", "run.py", "atomic.py")):
            return None
        lines += event == "line"
        if event == "line" and lines == moment:
            signal.raise_signal(signal.SIGINT)
        return trace

    raise_on_signals()
    sys.settrace(trace)
    try:
        with new_run(Path("runs/here"), numbered=False) as writer:
            writer.text("truth.yaml", "faults: []")
            raise EOFError
    except (EOFError, Stopped):
        pass
    finally:
        sys.settrace(None)
    assert list(Path().iterdir()) == [], (moment, list(Path().rglob("*")))
    return lines >= moment

moment = 1
while at(moment):
    moment += 1
print(moment)
"""


def test_an_interrupt_just_after_a_run_was_finished_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It came before the command had taken the result, and said that nothing was kept."""
    settings = make_settings({}, {"backend": "flow", "epochs": 1, "load": 0.005})
    methods = find_methods("netbouncer")
    place = tmp_path / "here"
    with pytest.raises(stopping.Stopped) as stop, new_run(place, numbered=False) as writer:
        run_experiment(layout_of(settings), writer, methods)
        raise stopping.Stopped(signal.SIGINT)
    assert stopped(stop.value) == 130
    assert capsys.readouterr().err == f"canary: interrupted: the run is in {place}\n"


def test_an_interrupt_at_any_line_of_making_a_run_leaves_nothing(tmp_path: Path) -> None:
    """An interrupt just after the run's folder was made left it."""
    done = subprocess.run(
        [sys.executable, "-c", EVERY_LINE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
