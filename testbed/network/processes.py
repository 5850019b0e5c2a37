# SPDX-License-Identifier: Apache-2.0
"""Processes of a run: started with their logs, watched, and removed again even after a crash.

Everything that a run makes lives in unnamed network namespaces - interfaces, queueing disciplines,
nftables tables - and ends with the last process in them. So cleaning up means ending the run's
processes, which have a token in their environment. The token is written to the state file before
the first process gets it. All state files are in one folder of the machine, whatever directory a
run was started from, and the process that runs a network holds a lock on its own file.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import UserError
from testbed.record.atomic import hold
from testbed.rootless import user_outside

TOKEN = "RUN_OF_CANARY"  # CANARY_* are options of the command line

FORKING_S = 0.2
"""Seconds within which a process forked just before its runner was killed executes its program.

Only then does it have the token in its environment, and has it released the runner's lock.
"""

HOLDING_TRIES = 10

ENDING_S = 5
"""Seconds that a process has to end by itself; the kernel takes 10 ms to close a port's socket."""

SOFT_SWITCHES = "canary-switches"
"""The name of the process in which all soft switches of a network run."""

_NODES = ("switch ", "host ")
_NODE = re.compile(r"^mininet:(\w+)$|^unix:.*/(\w+)\.grpc$")

_ROOT = Path(__file__).resolve().parents[2]


def open_more_files() -> None:
    """Let this process open as many files as it may: an ordinary user's 1,024 are too few for the
    namespaces, sockets and connections of a fat-tree of K=8."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class ProcessError(UserError):
    """A process could not be started or ended, or there is no folder for state files. One line."""


@dataclass(frozen=True)
class Cleaned:
    """The result of `clean`.

    Attributes:
        switches, hosts: How many nodes were ended, each with its shell and its program.
        others: Names of the other programs that were ended, one for each process.
        alive: Process ids of the runners of networks that are up.
    """

    switches: int = 0
    hosts: int = 0
    others: Sequence[str] = ()
    alive: Sequence[int] = ()


def state_folder() -> Path:
    """Return the folder of the state files of running networks, created if need be.

    It is in ``/run`` for root, else in ``XDG_RUNTIME_DIR``, or else in ``/tmp``. Inside and outside
    of a user namespace it is the same.

    Raises:
        ProcessError: There is no such folder that only its owner can read and write.
    """
    for folder in _state_folders():
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError:
            continue
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise ProcessError(f"{folder} can be written by others: remove it; it is made again")
        return folder
    raise ProcessError("there is no folder for the state of networks: set XDG_RUNTIME_DIR")


def _state_folders() -> list[Path]:
    """Return the places for `state_folder`, the first choice first."""
    user = user_outside()
    bases = ["/run"] if user == 0 else []
    bases += filter(os.path.isabs, [os.environ.get("XDG_RUNTIME_DIR", "")])
    return [*(Path(base) / "canary" for base in bases), Path(f"/tmp/canary-of-{user}")]


class RunState:
    """The state file of a run: its token, its runner and its directory of sockets, for `clean`.

    Args:
        folder: The folder of the state files; by default `state_folder`. What crashed runs with a
            state file there left behind is removed first.
    """

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or state_folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        clean(folder)
        lock = None
        while lock is None:  # a `clean` at this moment takes an empty file away
            self.token = uuid.uuid4().hex
            self.path = folder / f"{self.token[:12]}.json"
            self.path.touch(mode=0o600, exist_ok=False)
            with suppress(FileNotFoundError):
                lock = hold(self.path)
        self._lock = lock
        self.sockets = Path(f"/tmp/canary-{self.token[:12]}")  # a Unix socket's path must be short
        state = {"token": self.token, "runner": os.getpid(), "sockets": str(self.sockets)}
        try:
            self.path.write_text(json.dumps(state) + "\n")
            self.sockets.mkdir(mode=0o700)
        except BaseException:
            self.remove()
            raise

    def environment(self) -> dict[str, str]:
        """Return the environment of the run's processes.

        It has the run's token, its directory for temporary files, and a path to this package.
        """
        path = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {TOKEN: self.token, "TMPDIR": str(self.sockets)}
        return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(path)}

    def remove(self) -> None:
        """End the run's remaining processes and remove its directory and state file."""
        _end(self.token)
        shutil.rmtree(self.sockets, ignore_errors=True)
        self.path.unlink(missing_ok=True)
        self._lock.release()


def clean(folder: Path | None = None) -> Cleaned:
    """Remove what crashed runs left behind, and nothing else; return what was removed.

    Args:
        folder: The folder of the state files; by default `state_folder`.
    """
    nodes, others = [], []
    alive: list[int] = []
    for path in sorted((folder or state_folder()).glob("*.json")):
        state = _read(path)
        dead = bool(state) and not Path(f"/proc/{state['runner']}").exists()
        try:
            lock = hold(path)
            for _ in range(HOLDING_TRIES if dead else 0):
                if lock is None:
                    time.sleep(FORKING_S)
                    lock = hold(path)
        except FileNotFoundError:  # another is cleaning up
            continue
        state = _read(path)
        if lock is None:
            alive += [state["runner"]] if state else []
            continue
        if state:  # else it was killed before it started anything
            ended = _end(state["token"])
            time.sleep(FORKING_S)
            ended += _end(state["token"])
            sockets = Path(state["sockets"])
            if SOFT_SWITCHES in ended:
                ended = [what for what in ended if what != SOFT_SWITCHES]
                ended += [f"switch {socket.stem}" for socket in sockets.glob("*.grpc")]
            nodes += {what for what in ended if what.startswith(_NODES)}
            others += [what for what in ended if not what.startswith(_NODES)]
            if sockets.name == f"canary-{state['token'][:12]}":
                shutil.rmtree(sockets, ignore_errors=True)
        path.unlink(missing_ok=True)
        lock.release()
    hosts = sum(what.startswith("host ") for what in nodes)
    return Cleaned(len(nodes) - hosts, hosts, others, alive)


@dataclass(frozen=True)
class RunningNetwork:
    """A network that was started and not yet removed.

    Attributes:
        runner: The id of the process that started it.
        sockets: The directory of its switches' sockets.
        begun_s: When it was started, in seconds since 1970.
    """

    runner: int
    sockets: Path
    begun_s: float


def running_networks(folder: Path | None = None) -> list[RunningNetwork]:
    """Return the networks that were started and not yet removed, the latest first."""
    if folder is None:
        if not any(place.is_dir() for place in _state_folders()):
            return []
        folder = state_folder()
    found = [
        RunningNetwork(state["runner"], Path(state["sockets"]), file.stat().st_mtime)
        for file in folder.glob("*.json")
        if (state := _read(file))
    ]
    return sorted(found, key=lambda network: network.begun_s, reverse=True)


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a state file; {} if it is empty or incomplete."""
    try:
        state = json.loads(path.read_text())
        kinds = {"token": str, "runner": int, "sockets": str}
        return state if all(isinstance(state[key], kind) for key, kind in kinds.items()) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _with_token(token: str) -> dict[int, str]:
    """Return the other processes that have a token in their environment, by process id.

    Each is described as by `_what`.
    """
    wanted = f"{TOKEN}={token}".encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = _what(entry)
        except OSError:
            continue
    return found


def _what(process: Path) -> str:
    """Return what a process of a network is: ``switch agg0_1``, ``host h0_0_0``, else its program.

    Mininet's shell of a node has ``mininet:NODE`` among its arguments, a switch's program its
    socket ``unix:.../NODE.grpc``.
    """
    for argument in (process / "cmdline").read_text(errors="replace").split("\0"):
        if node := _NODE.search(argument):
            name = node[1] or node[2]
            return f"{'host' if name.startswith('h') else 'switch'} {name}"
    return (process / "comm").read_text().strip()


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
    """Processes that are watched, so that the end of one is noticed at once.

    Args:
        state: The state file of the run.
        logs: The folder for each process's ``<name>.log``, and ``exit-codes.json``.
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
        self._replacing = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)
        logs.mkdir(parents=True, exist_ok=True)

    def start(
        self, name: str, command: Sequence[str], orders: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a process and return it; with ``orders`` its input is a pipe.

        Its output is appended to ``<name>.log``.

        Raises:
            ProcessError: It cannot be started.
        """
        with open(self._logs / f"{name}.log", "ab") as log:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE if orders else subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._state.environment(),
                    start_new_session=True,
                )
            except OSError as e:
                raise ProcessError(f"cannot start {command[0]}: {e.strerror}") from None
        with self._replacing:
            self._processes[name] = process
        return process

    def end(self, name: str) -> None:
        """Kill a process without a call of ``on_exit``; `start` may start another in its place."""
        with self._replacing:
            process = self._processes.pop(name)
            process.kill()
            process.wait()
            self._codes.pop(name, None)

    def watch(self) -> None:
        """Start the thread that notices when a process ends."""
        self._thread.start()

    def pid(self, name: str) -> int:
        """Return the process id of a process by its name."""
        return self._processes[name].pid

    def ended(self, name: str) -> str:
        """Return how a process ended, as ``signal SIGKILL``, "" while it runs."""
        code = self._processes[name].poll()
        return "" if code is None else _describe(code)

    def last_words(self, name: str) -> str:
        """Return the last line of a process's log that is not blank, "" if there is none."""
        log = self._logs / f"{name}.log"
        lines = log.read_text(errors="replace").split("\n") if log.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _watch(self) -> None:
        while not self._stopping.wait(0.05):
            self._check_processes()

    def _check_processes(self) -> None:
        ended = []
        with self._replacing:
            for name, process in self._processes.items():
                if name not in self._codes and process.poll() is not None:
                    self._codes[name] = process.returncode
                    ended.append((name, _describe(process.returncode)))
        for name, how in ended:
            self._on_exit(name, how)

    def stop(self) -> None:
        """Terminate all processes, kill those left after `ENDING_S`, and write the exit codes."""
        if self._thread.is_alive():
            self._stopping.set()
            self._thread.join()
            self._check_processes()
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + ENDING_S
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
