"""Processes of a run: started with their logs, watched, and removed again even after a crash.

Everything that a run makes lives in unnamed network namespaces - interfaces, queueing disciplines,
nftables tables - and ends with the last process in them. So to clean up is to end the run's
processes, which are known by a token in their environment. The token is in the state file before
the first process has it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["STATE", "TOKEN", "ProcessError", "RunState", "Watched", "clean"]

TOKEN = "CANARY_RUN"

STATE = Path("runs/.mininet-state.json")
"""Where a run writes down what `clean` has to remove."""

_ROOT = Path(__file__).resolve().parents[2]


class ProcessError(RuntimeError):
    """A process could not be started, or a run is in the way. One line."""


class RunState:
    """What a run made: its token, its runner and its directories, on disk for `clean`.

    Raises:
        ProcessError: Another run, which is still alive, has this state file.
    """

    def __init__(self, path: Path) -> None:
        clean(path)
        self.path = path
        self.token = uuid.uuid4().hex
        self.sockets = Path(f"/tmp/canary-{self.token[:12]}")  # a Unix socket's path must be short
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(
            {
                "token": self.token,
                "runner": os.getpid(),
                "runner_started": _started(os.getpid()),
                "sockets": str(self.sockets),
            }
        )
        try:
            with open(path, "x") as f:  # of two runs that start at once, one gets it
                f.write(text)
        except FileExistsError:
            raise ProcessError(f"another run is about to start ({path})") from None
        self.sockets.mkdir(mode=0o700)

    def environment(self) -> dict[str, str]:
        """The run's processes have its token, and find this package wherever they are started."""
        path = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, TOKEN: self.token, "PYTHONPATH": os.pathsep.join(path)}

    def remove(self) -> None:
        """End what still runs of this run, and forget it."""
        _end(self.token)
        shutil.rmtree(self.sockets, ignore_errors=True)
        self.path.unlink(missing_ok=True)


def clean(path: Path) -> list[str]:
    """Remove what a crashed run left, and nothing else; returns the names of what was ended.

    Raises:
        ProcessError: The run is still alive.
    """
    try:
        state: dict[str, Any] = json.loads(path.read_text())
        token, runner = str(state["token"]), int(state["runner"])
        sockets = Path(state["sockets"])
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError):
        # torn while it was written: nothing had been started yet
        path.unlink(missing_ok=True)
        return []
    started = _started(runner)
    if started and started == state.get("runner_started") and runner != os.getpid():
        raise ProcessError(f"process {runner} still runs a network ({path}): end it first")
    ended = _end(token)
    if sockets.name == f"canary-{token[:12]}":
        shutil.rmtree(sockets, ignore_errors=True)
    path.unlink(missing_ok=True)
    return ended


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot; "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return ""


def _with_token(token: str) -> dict[int, str]:
    """Processes that have a token in their environment, except this one, with their names."""
    wanted = f"{TOKEN}={token}".encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "comm").read_text().strip()
        except OSError:
            continue
    return found


def _end(token: str, patience: float = 10.0) -> list[str]:
    ended: dict[int, str] = {}
    deadline = time.monotonic() + patience
    while found := _with_token(token):
        for pid, name in found.items():
            ended[pid] = name
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            left = ", ".join(f"{name} ({pid})" for pid, name in found.items())
            raise ProcessError(f"cannot end {left}")
        time.sleep(0.02)
    return list(ended.values())


class Watched:
    """Processes whose end is noticed.

    Args:
        state: The run.
        logs: Gets ``<name>.log`` of every process, and ``exit-codes.json``.
        on_exit: Called from the watching thread with the name of a process that ended by itself
            and how.
    """

    def __init__(self, state: RunState, logs: Path, on_exit: Callable[[str, str], None]) -> None:
        self._state = state
        self._logs = logs
        self._on_exit = on_exit
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._codes: dict[str, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process; its output goes to its log."""
        with open(self._logs / f"{name}.log", "wb") as log:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._state.environment(),
                    start_new_session=True,
                )
            except OSError as e:
                raise ProcessError(f"cannot start {command[0]}: {e.strerror}") from None
        self._processes[name] = process
        return process

    def watch(self) -> None:
        """Notice from now on when a process ends."""
        self._thread.start()

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def ended(self, name: str) -> str:
        """How a process ended, "" while it runs."""
        code = self._processes[name].poll()
        return "" if code is None else _describe(code)

    def last_words(self, name: str) -> str:
        """The last line of a process's log."""
        lines = (self._logs / f"{name}.log").read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _watch(self) -> None:
        while not self._stopping.wait(0.05):
            self._look()

    def _look(self) -> None:
        for name, process in self._processes.items():
            if name not in self._codes and process.poll() is not None:
                self._codes[name] = process.returncode
                self._on_exit(name, _describe(process.returncode))

    def stop(self) -> None:
        """End all, gently first, and write how each ended."""
        if self._thread.is_alive():
            self._stopping.set()
            self._thread.join()
            self._look()
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 2
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        codes = {name: process.returncode for name, process in self._processes.items()}
        text = json.dumps({"by_itself": self._codes, "exit_code": codes}, indent=1)
        (self._logs / "exit-codes.json").write_text(text + "\n")


def _describe(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
