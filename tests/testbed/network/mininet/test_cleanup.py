# SPDX-License-Identifier: Apache-2.0
"""What a run leaves behind: nothing of its own, everything of others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.network.network import NetworkError
from testbed.network.processes import Cleaned, clean
from tests.patience import PATIENCE_S
from tests.testbed.network.mininet.conftest import (
    TOPOLOGY,
    bring_up,
    died,
    some_backend,
    wait_until,
)

pytestmark = pytest.mark.root


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    some_backend()


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def namespaces(token: str = "") -> set[str]:
    """Network namespaces that a process is in, or a process with a run's token; the machine's own
    is left out, in which the process of all soft switches is."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and token.encode() in (entry / "environ").read_bytes():
                found.add(os.readlink(entry / "ns" / "net"))
        except OSError:
            continue
    return found - {os.readlink("/proc/self/ns/net")}


@pytest.fixture
def foreign() -> Iterator[None]:
    """Somebody else's namespace with a process, interfaces and nftables table."""
    run("ip", "netns", "add", "foreign-test")
    run("ip", "link", "add", "tor0_0-eth9", "type", "veth", "peer", "name", "h9-eth0")
    process = subprocess.Popen(["ip", "netns", "exec", "foreign-test", "sleep", "600"])
    run("ip", "netns", "exec", "foreign-test", "nft", "add", "table", "netdev", "canary")
    try:
        yield
        assert process.poll() is None
        assert "foreign-test" in run("ip", "netns", "list")
        assert "tor0_0-eth9" in run("ip", "-o", "link", "show", "type", "veth")
        tables = run("ip", "netns", "exec", "foreign-test", "nft", "list", "tables")
        assert "table netdev canary" in tables
    finally:
        process.kill()
        process.wait()
        run("ip", "link", "del", "tor0_0-eth9")
        run("ip", "netns", "del", "foreign-test")


RUNNER = """
import sys, time
from pathlib import Path
from typing import Any
from tests.testbed.network.mininet.conftest import bring_up
net = bring_up(Path(sys.argv[1]), sys.argv[2])
net.start()
net.host("h0_0_0").cmd("sleep 1000 &")
print("up", flush=True)
time.sleep(600)
"""


def runner(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(path), some_backend()],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])},  # for `tests`
    )


def test_a_killed_run_is_cleaned_up_and_nothing_else(tmp_path: Path, foreign: None) -> None:
    links = run("ip", "-o", "link")
    process = runner(tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    [file] = (tmp_path / "state").iterdir()
    state = json.loads(file.read_text())
    own = namespaces(state["token"])
    assert len(own) == TOPOLOGY.n_switches + TOPOLOGY.n_hosts
    assert clean(tmp_path / "state") == Cleaned(alive=[process.pid], others=[])
    with bring_up(tmp_path, some_backend()):  # several at once, each in namespaces of its own
        assert len(list((tmp_path / "state").iterdir())) == 2
    assert namespaces(state["token"]) == own
    process.send_signal(signal.SIGKILL)
    process.wait()

    cleaned = clean(tmp_path / "state")

    assert cleaned.switches == TOPOLOGY.n_switches and not cleaned.alive
    assert cleaned.hosts <= TOPOLOGY.n_hosts, "their shells may have ended with the runner"
    deadline = time.monotonic() + PATIENCE_S
    while namespaces() & own and time.monotonic() < deadline:
        time.sleep(0.05)
    assert namespaces() & own == set()
    assert run("ip", "-o", "link") == links
    assert not Path(state["sockets"]).exists()
    assert not list((tmp_path / "state").iterdir())
    assert clean(tmp_path / "state") == Cleaned(others=[], alive=[])


def token_in(state: Path) -> str:
    """The token of the one network that is written down there."""
    try:
        [file] = state.iterdir()
        return json.loads(file.read_text())["token"]
    except (OSError, ValueError):
        return ""


@pytest.mark.nightly
def test_killed_while_it_starts_and_the_next_run_works(tmp_path: Path) -> None:
    tokens: list[str] = []
    for seconds in (0.0, 0.3, 1.0):  # after its first trace
        process = runner(tmp_path)
        while (token := token_in(tmp_path / "state")) in ("", *tokens):
            assert process.poll() is None
            time.sleep(0.005)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
        tokens.append(token)
    with bring_up(tmp_path, some_backend()) as net:
        os.kill(net.process("core0"), signal.SIGSEGV)
        wait_until(lambda: died(net, "core0", "signal SIGSEGV"))
    names = TOPOLOGY.switch_names if net.backend == "bmv2" else ["switches"]
    assert not any(namespaces(token) for token in tokens)
    codes = json.loads((tmp_path / "logs" / "exit-codes.json").read_text())
    assert list(codes["by_itself"].values()) == [-signal.SIGSEGV]
    assert set(codes["exit_code"]) == set(names)


def test_a_switch_that_does_not_start_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "simple_switch_grpc"
    broken.write_text("#!/bin/sh\n[ $1 = --version ] || { echo out of ports >&2; exit 3; }\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(NetworkError, match=r"switch \w+ ended with exit code 3: out of ports"):
        bring_up(tmp_path, "bmv2")
    assert not list((tmp_path / "state").iterdir())


def test_a_node_that_is_killed_while_it_starts_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mininet.node import Node

    popen = Node._popen

    def killed(node: Any, *args: Any, **kwargs: Any) -> Any:
        shell = popen(node, *args, **kwargs)
        if node.name == "h2_0_1":
            shell.kill()
        return shell

    monkeypatch.setattr(Node, "_popen", killed)
    with pytest.raises(NetworkError, match=r"^host h2_0_1 disappeared: its process .* was ended$"):
        bring_up(tmp_path, some_backend())
    assert not list((tmp_path / "state").iterdir())
