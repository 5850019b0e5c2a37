# SPDX-License-Identifier: Apache-2.0
"""iperf3 that fails: the run goes on, and says so."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from testbed.fabric.fat_tree import FatTree
from testbed.network.mininet import MininetNetwork
from testbed.network.network import NetworkError
from testbed.network.schedules import Packets
from testbed.network.speed import patience
from testbed.traffic import iperf
from testbed.traffic.flows import TCP, Traffic
from testbed.traffic.iperf import Iperf
from testbed.traffic.sockets import Connection
from testbed.traffic.transfers import Transfers

N = 3

Spawn = Callable[[list[str]], list[str]]


class Host:
    """A network that runs what it is told to instead of iperf3."""

    def __init__(self, logs: Path, instead: Spawn) -> None:
        self.topology = FatTree(4)
        self.logs = logs
        self._instead = instead
        self.cut_off: set[int] = set()
        self._start = time.monotonic_ns()

    @property
    def now_ns(self) -> int:
        return time.monotonic_ns() - self._start

    def host_pids(self) -> list[int]:
        return []

    def before_stop(self, close: Callable[[], None]) -> None:
        """Each test closes it itself."""

    def spawn(self, host: int, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        with open(log, "ab") as output:
            return subprocess.Popen(self._instead(command), stdout=output, stderr=output)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    told = SimpleNamespace(
        overflows=0, close=lambda: None, ended=list, open=list, source="", read=set
    )
    monkeypatch.setattr(iperf, "TcpSockets", lambda pids: told)
    monkeypatch.setattr(iperf, "watch_retransmissions", lambda sockets: told)
    monkeypatch.setattr(iperf, "_patiently", tuple)  # asks iperf3, which may not be installed
    return told


def run(tmp_path: Path, instead: Spawn) -> Iperf:
    """Three transfers from one host to another, the last 0.2 s after the first."""
    traffic = Traffic(
        src_host=np.zeros(N, np.int32),
        dst_host=np.full(N, 9, np.int32),
        src_port=np.arange(N).astype(np.uint16),
        dst_port=np.arange(N).astype(np.uint16),
        protocol=np.full(N, TCP, np.uint8),
        packets=Packets(
            np.zeros(0, np.uint64),
            np.zeros(0, np.uint32),
            np.zeros(0, np.uint16),
        ),
    )
    transfers = Transfers(
        flow=np.arange(N, dtype=np.int32),
        start_ns=np.arange(N, dtype=np.int64) * 100_000_000,
        payload=np.full(N, 10_000),
        rate_bps=np.full(N, 1e6),
    )
    network: Any = Host(tmp_path, instead)
    limit = 10 * patience()
    tcp = Iperf(cast(MininetNetwork, network), traffic, transfers, limit)
    tcp.start()
    while tcp._thread.is_alive():
        if tcp._next_client == N and not tcp._clients:
            tcp._stop.set()
        time.sleep(0.01)
    assert network.now_ns < 1e9 * limit
    return tcp


def is_client(command: list[str]) -> bool:
    return "-c" in command


def test_transfers_that_go_well_degrade_nothing(tmp_path: Path, kernel: Any) -> None:
    tcp = run(tmp_path, lambda command: ["true"])
    assert tcp.report()["finished"] == N
    assert tcp.degraded == []


def test_a_client_that_fails_degrades_the_run_with_its_words(tmp_path: Path, kernel: Any) -> None:
    def instead(command: list[str]) -> list[str]:
        refused = is_client(command) and command[command.index("--cport") + 1] == "1"
        return ["sh", "-c", "echo iperf3: refused >&2; exit 1"] if refused else ["true"]

    tcp = run(tmp_path, instead)
    assert tcp.degraded == ["1 of 3 TCP transfers failed, the first with: iperf3: refused"]
    assert (tcp.report()["finished"], tcp.report()["failed"]) == (2, 1)


def test_a_connection_that_links_broke_degrades_nothing(tmp_path: Path, kernel: Any) -> None:
    def instead(command: list[str]) -> list[str]:
        if not is_client(command):
            return ["true"]
        words = ["Connection reset by peer", "Connection timed out", "Connection refused"]
        number = int(command[command.index("--cport") + 1])
        # All three end at the same time, each with words of its own.
        return ["sh", "-c", f"sleep 0.{3 - number}; echo iperf3: error - {words[number]}; exit 1"]

    tcp = run(tmp_path, instead)
    src, dst = (int(tcp._network.topology.host_ip[host]) for host in (0, 9))
    kernel.ended = lambda: [Connection(src, dst, 0, 0, 75, 5)]
    tcp.counts()
    assert tcp.report()["failed"] == N
    failed = "1 of 3 TCP transfers failed, the first with: iperf3: error - Connection refused"
    assert tcp.degraded == [failed]


def test_a_connection_that_never_was_open_at_its_server_degrades_nothing(
    tmp_path: Path, kernel: Any
) -> None:
    def instead(command: list[str]) -> list[str]:
        if is_client(command):
            return ["sh", "-c", "echo iperf3: error - Connection reset by peer; exit 1"]
        waits = command[command.index("-p") + 1] != "2"
        return ["sleep", "60"] if waits else ["true"]

    tcp = run(tmp_path, instead)
    assert tcp.report()["failed"] == N
    failed = "1 of 3 TCP transfers failed, the first with: iperf3: error - Connection reset by peer"
    assert tcp.degraded == [failed]


@pytest.mark.parametrize(
    "words",
    ["control socket has closed unexpectedly", "unable to send control message: Broken pipe"],
)
def test_a_server_that_waited_in_vain_for_its_client_degrades_nothing(
    tmp_path: Path, kernel: Any, words: str
) -> None:
    """iperf3 3.18 ends a server to which a client's parameters did not come for ten seconds."""
    closed = f"iperf3: error - {words}"

    def instead(command: list[str]) -> list[str]:
        if is_client(command):
            return ["sh", "-c", f"sleep 0.3; echo '{closed}'; exit 1"]
        return ["echo", "iperf3: error - unable to receive parameters from client: Bad file"]

    tcp = run(tmp_path, instead)
    assert (tcp.report()["failed"], tcp.degraded) == (N, [])
    (tmp_path / "other").mkdir()
    tcp = run(tmp_path / "other", lambda c: instead(c) if is_client(c) else ["true"])
    assert tcp.degraded == [f"3 of 3 TCP transfers failed, the first with: {closed}"]


def test_transfers_of_a_host_that_was_switched_off_degrade_nothing(
    tmp_path: Path, kernel: Any
) -> None:
    tcp = run(tmp_path, lambda command: ["sh", "-c", "echo no route; exit 1"])
    assert tcp.degraded == ["3 of 3 TCP transfers failed, the first with: no route"]
    tcp._network.cut_off.add(9)
    assert tcp.degraded == []


def test_iperf3_that_cannot_start_degrades_the_run(tmp_path: Path, kernel: Any) -> None:
    def instead(command: list[str]) -> list[str]:
        if is_client(command):
            raise NetworkError("cannot start nice: No such file or directory")
        return ["sleep", "60"]

    tcp = run(tmp_path, instead)
    assert tcp.degraded == [
        "TCP ended after 0 of 3 transfers: cannot start nice: No such file or directory"
    ]
    assert all(server.poll() is not None for server in tcp._servers.values())


def test_connections_that_no_kernel_could_tell_degrade_the_run(tmp_path: Path, kernel: Any) -> None:
    tcp = run(tmp_path, lambda command: ["true"])
    kernel.overflows = 1
    assert tcp.degraded == [
        "so many TCP connections ended at once that the kernel could not report all of them"
    ]
