# SPDX-License-Identifier: Apache-2.0
"""Python files in the folder that one stands in are data: no command imports one."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from analysis.methods.registry import GROUP
from testbed.network.requirements import missing
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
FLOW = ["--backend", "flow", "--epochs", "1", "--load", "0.01", "--methods", "netbouncer"]
VIRTUAL = ["--backend", "virtual", "--epochs", "1", "--load", "0.005", "--methods", "netbouncer"]

COMMANDS = """
import json, sys
from scenarios.command.cli import main

before = [*sys.path]
for words in json.loads(sys.argv[1]):
    sys.argv = ["canary", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
    assert sys.path == before, (words, sys.path)
"""

LOOKED_FOR = """
import builtins, json, sys

class Recorder:
    names = set()

    def find_spec(self, name, path=None, target=None):
        self.names.add(name.partition(".")[0])

recorder = Recorder()
sys.meta_path.append(recorder)
import pkgutil, scenarios, testbed, analysis
for package in (testbed, analysis, scenarios):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            __import__(module.name)
import p4runtime_sh.shell
names = {name.partition(".")[0] for name in sys.modules}
print(json.dumps(sorted(names | recorder.names | set(sys.stdlib_module_names))))
"""


@pytest.fixture(scope="session")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Every name of a module that is installed, of Python's own, or is looked for in vain.

    It takes seconds to import everything: the first worker does so for all.
    """
    base = tmp_path_factory.getbasetemp()
    kept = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "names.json"
    with kept.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not kept.stat().st_size:
            found = subprocess.run(
                [sys.executable, "-P", "-c", LOOKED_FOR], capture_output=True, text=True, check=True
            )
            file.write(found.stdout)
            file.flush()
    known = json.loads(kept.read_text())
    every = {*known, *packages_distributions(), "sitecustomize", "usercustomize"}
    return sorted(name for name in every if name.isidentifier())


class Folder:
    """A folder full of modules that tell when they are imported."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.path, self._told = path / "here", path / "imported"
        self.path.mkdir()
        self._told.mkdir()
        for name in [*names, "plugged"]:
            told = str(self._told / name)
            (self.path / f"{name}.py").write_text(
                f"open({told!r}, 'a').close()\nraise ImportError('a stranger: {name}')\n"
            )
        (self.path / "matplotlibrc").write_text("text.usetex: True\n")
        plugin = self.path / "plugged-1.dist-info"
        plugin.mkdir()
        (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1\n")
        (plugin / "entry_points.txt").write_text(f"[{GROUP}]\nplugged = plugged:Method\n")

    @property
    def imported(self) -> list[str]:
        return sorted(path.name for path in self._told.iterdir())

    def run(self, *command: str | Path, code: int = 0, text: str = "") -> str:
        """Run a command here to its end; what it printed."""
        done = subprocess.run(
            command, cwd=self.path, input=text, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert not self.imported, (command, self.imported)
        assert not (self.path / "kept").exists(), command
        assert done.returncode == code, done.stderr
        return done.stdout


@pytest.fixture
def folder(tmp_path: Path, names: list[str], monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # of the make that runs these tests
    assert {"json", "numpy", "typing", "yaml", "scapy", "grpc", "dask"} <= set(names)
    return Folder(tmp_path, names)


@pytest.fixture
def canary(installed: Callable[[str], Path]) -> Path:
    return installed("scenarios/canary")


def test_python_itself_would_import_them(folder: Folder) -> None:
    done = subprocess.run([sys.executable, "-c", "import json"], cwd=folder.path)
    assert done.returncode and folder.imported  # which ones differs between versions of Python


def test_no_command_imports_one(folder: Folder, canary: Path) -> None:
    """Those that start other processes and some more as users do, the others in one process.

    That saves a second or two each, in which Python imports the same modules. A command that would
    import from here later must have changed the path.
    """
    folder.run(canary, "--version")
    given = ["--topology", "files/fabric.parquet", "--telemetry", "files/observations.parquet"]
    commands = [
        ["--help"],
        ["run", *FLOW, "--run", "a"],
        ["doctor"],
        ["plan", "--k", "4", "--out", "plan.parquet"],
        ["reproduce"],
        ["run", *VIRTUAL, "--run", "b"],
        ["analyze", "a", "--methods", "netbouncer"],
        ["show", "a"],
        ["page", "a"],
        ["export", "a", "--out", "files"],
        ["localize", *given, "--method", "netbouncer"],
        ["calibrate", "--method", "netbouncer", "--train", "a", "--out", "c.yaml"],
    ]
    folder.run(sys.executable, "-P", "-c", COMMANDS, json.dumps(commands))
    assert (folder.path / "b" / "summary.json").is_file()
    folder.run(canary, "compare", *FLOW, "--seeds", "1", "--out", "one")


def test_seeds_that_a_script_compares_do_not(folder: Folder, tmp_path: Path) -> None:
    """A script has its own folder on its path; its processes must not have that of the caller."""
    script = tmp_path / "mine" / "script.py"
    script.parent.mkdir()
    script.write_text(
        "from pathlib import Path\n"
        "from analysis.methods.registry import find_methods\n"
        "from scenarios.many.compare import compare\n"
        "from scenarios.experiment.settings import Settings\n"
        "if __name__ == '__main__':\n"
        "    settings = Settings(backend='flow', k=4, epochs=1, load=0.01)\n"
        "    methods = find_methods('netbouncer')\n"
        "    compare('faulty_links', settings, [1], methods, Path('c'), lambda *_: None)\n"
    )
    folder.run(sys.executable, script)


def test_the_server_of_a_live_page_does_not(folder: Folder, canary: Path) -> None:
    command = [canary, "run", *VIRTUAL, "--epochs", "200", "--watch"]
    with subprocess.Popen(
        command, cwd=folder.path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        assert run.stdout is not None
        try:
            address = next(line for line in run.stdout if "http://" in line).split()[-1]
            port = int(address.rstrip("/").rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert client.recv(16).startswith(b"HTTP/1.1 200")
        finally:
            run.send_signal(signal.SIGINT)
    assert not folder.imported


@pytest.mark.parametrize("name", ["canary-switch", "canary-switch-grpc"])
def test_a_switch_does_not(name: str, folder: Folder, installed: Callable[[str], Path]) -> None:
    command = installed(f"testbed/softswitch/canary_softswitch/process/{name}")
    folder.run(command, "--help")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--no-p4", "--thrift-port", str(port), "--", "--grpc-server-addr", "unix:grpc"]
    with subprocess.Popen([command, *options], cwd=folder.path) as switch:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not (folder.path / "grpc").exists():
                assert switch.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            switch.terminate()
    assert not folder.imported


@pytest.mark.root
@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0 or bool(missing("softswitch")), reason="needs root, Mininet")
def test_the_processes_of_a_real_network_do_not(folder: Folder, canary: Path) -> None:
    """Switches, what runs in hosts, and p4runtime-sh while the network is up."""
    with subprocess.Popen(
        [canary, "net", "--k", "4"],
        cwd=folder.path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as net:
        assert net.stdin is not None and net.stdout is not None
        try:
            next(line for line in net.stdout if "help, help fault, exit" in line)
            message = folder.run(
                canary, "shell", "agg0_1", text="import numpy\nnumpy.__name__\nexit\n"
            )
            assert "a stranger" not in message and "'numpy'" in message
        finally:
            net.communicate("diagnose\nexit\n", timeout=PATIENCE_S)
    assert not folder.imported
    options = [
        "--backend",
        "softswitch",
        "--methods",
        "netbouncer",
        "--epochs",
        "1",
        "--epoch-ms",
        "2000",
        "--run",
        "real",
    ]
    folder.run(canary, "run", "--k", "4", *options)
