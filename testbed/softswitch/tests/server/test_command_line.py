# SPDX-License-Identifier: Apache-2.0
"""The command line, signals, and where the process listens."""

from __future__ import annotations

import json
import queue
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from canary_softswitch.device.messages import p4runtime_pb2
from canary_softswitch.process.single import main
from testbed.softswitch.tests.server.client import JSON, P4INFO, ROOT, Client, Process
from testbed.softswitch.tests.server.frames import udp
from tests import sockets
from tests.patience import PATIENCE_S


def run(*arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "canary_softswitch.process.single", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert not done.stdout
    return done.returncode, done.stderr.splitlines()


FORKS = """
import json, os, sys
import canary_softswitch.device.config, canary_softswitch.p4runtime.server
import canary_softswitch.ports.replay, canary_softswitch.thrift.server
from canary_softswitch.process.single import main
for arguments in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        main(arguments)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("ended:", status, file=sys.stderr, flush=True)
"""


def run_each(*commands: list[str]) -> list[tuple[int, list[str]]]:
    """What `run` gives for each command line, of processes that are forked from one.

    It has imported what a switch needs, which takes longer than what is tested.
    """
    done = subprocess.run(
        [sys.executable, "-c", FORKS, json.dumps(commands)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20 * len(commands),
    )
    assert done.returncode == 0 and not done.stdout, done.stderr
    ends, lines = list[tuple[int, list[str]]](), list[str]()
    for line in done.stderr.splitlines():
        if line.startswith("ended: "):
            ends.append((int(line.split()[1]), lines))
            lines = []
        else:
            lines.append(line)
    assert len(ends) == len(commands)
    return ends


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--no-p4", "--log-consol"], "--log-consol"),
        (["--no-p4", "--log-console", "--log-file", "x"], "--log-file"),
        (["--no-p4", "--log-level", "loud"], "loud"),
        (["--no-p4", "--log-file-max-size", "0"], "--log-file-max-size"),
        (["--no-p4", "--pcap", "/none/such"], "/none/such"),
        (["--no-p4", "--use-files", "soon"], "soon"),
        (["--no-p4", "--use-files", "1", "--packet-in", "ipc:///x"], "--packet-in"),
        (["--no-p4", "--max-port-count", "1", "-i", "1@a", "-i", "2@b"], "--max-port-count"),
        (["--no-p4", "--devic", "1"], "--devic"),
        (["--no-p4", "-i", "eth0"], "eth0"),
        (["--no-p4", "-i", "x@eth0"], "x@eth0"),
        (["--no-p4", "-i", "512@eth0"], "512@eth0"),
        (["--no-p4", "-i", "511@eth0"], "drop port"),
        (["--no-p4", "-i", "1@a", "-i", "1@b"], "port 1 is given twice"),
        (["--no-p4", "-i", "1@a", "--", "--cpu-port", "1"], "port 1 is given twice"),
        (["--no-p4", "--device-id", "-1"], "-1"),
        (["--no-p4", "--thrift-port", "66000"], "66000"),
        (["--no-p4", "--", "--grpc-server-addr", "9559"], "HOST:PORT"),
        (["--no-p4", "--", "--cpu-port", "511"], "511"),
        (["--no-p4", "--", "--cpu-port", "0"], "'0'"),
        (["--no-p4", "--", "--priority-queues", "0"], "'0'"),
        (["--no-p4", "--", "--grpc-server-ssl"], "--grpc-server-cert"),
        (["--no-p4", "--", "--device-id", "1"], "--device-id"),
        (["--no-p4", "x.json"], "--no-p4"),
        ([], "--no-p4"),
    ],
)
def test_bad_command_lines(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as e:
        main(arguments)
    lines = capsys.readouterr().err.splitlines()
    assert e.value.code == 2 and len(lines) == 1 and word in lines[0]


def test_bad_command_line_of_a_process() -> None:
    status, lines = run("--no-p4", "--log-consol")
    assert status == 2 and len(lines) == 1 and "--log-consol" in lines[0]


def test_what_cannot_be_started(tmp_path: Path) -> None:
    with Process("--no-p4") as p:
        busy = ["--", "--grpc-server-addr", p.grpc]
        for arguments, word in (
            (["--no-p4", "--thrift-port", "0", *busy], p.grpc),
            (["--no-p4", "--thrift-port", str(p.thrift)], str(p.thrift)),
            (["--no-p4", "-i", "1@none0"], "none0"),
        ):
            status, lines = run(*arguments)
            assert status == 1 and len(lines) == 1 and word in lines[0], lines


def test_what_is_no_program(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    root = json.loads(JSON.read_text())
    root["actions"][3]["id"] = "3); abort("
    wrong.write_text(json.dumps(root))
    unknown = tmp_path / "unknown.json"
    root["actions"][3].update(id=3, primitives=[{"op": "pray", "parameters": []}])
    unknown.write_text(json.dumps(root))
    files = {
        tmp_path / "none.json": "none.json",
        P4INFO: "not JSON",
        wrong: f"{wrong} is not a valid BMv2 JSON: actions[3].id: it should be a valid integer",
        unknown: "primitive 'pray'",
    }
    ends = run_each(*([str(path)] for path in files))
    for word, (status, lines) in zip(files.values(), ends, strict=True):
        assert status == 2 and len(lines) == 1 and word in lines[0], lines


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it(which: signal.Signals) -> None:
    with Process("--no-p4") as p, Client(p.grpc), socket.create_connection(("127.0.0.1", p.thrift)):
        p.popen.send_signal(which)
        _, errors = p.popen.communicate(timeout=PATIENCE_S)
        assert p.popen.returncode == 0 and not errors


def listening(pid: int) -> list[str]:
    """Local addresses of the listening and unbound sockets of a process, in hex."""
    links = [link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {x.removeprefix("socket:[").rstrip("]") for x in links if x.startswith("socket:")}
    waiting = [row for row in sockets.rows("tcp") if row[3] == "0A"]
    ours = [row for row in (*waiting, *sockets.rows("udp")) if row[9] in inodes]
    return [row[1].partition(":")[0] for row in ours]


def test_only_loopback_is_listened_on() -> None:
    with Process(str(JSON), target=("--cpu-port", "9")) as p, Client(p.grpc):
        loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
        sockets = listening(p.popen.pid)
        assert len(sockets) == 2 and set(sockets) <= loopback


def test_unix_socket(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/p4runtime"
    with Process(str(JSON), address=address) as p, Client(address) as c:
        assert p.grpc == address
        assert listening(p.popen.pid) == ["0100007F"]  # Thrift
        c.configure()


def test_seed_decides_the_dice() -> None:
    def drops(*arguments: str) -> int:
        with (
            Process(str(JSON), *arguments, target=("--cpu-port", "100")) as p,
            Client(p.grpc, device=int(arguments[1])) as c,
        ):
            c.write(
                (
                    "insert",
                    c.entry(
                        "CanaryIngress.fault.faults",
                        {"port": 100},
                        "CanaryIngress.fault.lossy",
                        (1 << 31,),
                        1,
                    ),
                )
            )
            c.write(("insert", c.route(0x0A000000, 8, 100)))
            for i in range(24):
                c.send(packet=p4runtime_pb2.PacketOut(payload=udp(sport=i)))
            c.send(packet=p4runtime_pb2.PacketOut(payload=b"end"))
            seen = 0
            try:
                while True:
                    payload = c.receive("packet", 0.3).payload
                    seen |= 1 << int.from_bytes(payload[34:36], "big")
            except queue.Empty:
                return seen

    first = drops("--device-id", "1", "--seed", "7")
    assert first and first == drops("--device-id", "2", "--seed", "7")
    assert first != drops("--device-id", "2")
