# SPDX-License-Identifier: Apache-2.0
"""What simple_switch_grpc's options write: pcap files and logs; packets from files."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.ports.ports import Capture, Log, Port, Ports
from canary_softswitch.ports.replay import Replay, read_pcap
from testbed.softswitch.tests.server.client import Client, Process, eventually
from testbed.softswitch.tests.server.frames import udp
from testbed.softswitch.tests.server.test_command_line import run, run_each
from testbed.softswitch.tests.server.wires import Wire, attach


def write_pcap(path: Path, *packets: tuple[float, bytes], order: str = "<") -> None:
    out = struct.pack(order + "IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for when, data in packets:
        head = (int(when), round(when % 1 * 1e6), len(data), len(data))
        out += struct.pack(order + "4I", *head) + data
    path.write_bytes(out)


@pytest.mark.root
def test_pcap_files_of_interfaces(wires: Callable[[int], list[Wire]], tmp_path: Path) -> None:
    a, b = wires(2)
    source, sink = a.open(), b.open()
    with (
        Process("--no-p4", "--pcap", str(tmp_path), *attach([a, b])) as p,
        Client(p.grpc) as c,
    ):
        c.configure()
        c.write(("insert", c.route(0x0A000000, 8, 2)))
        source.send(udp(size=200))
        left = sink.recv(2000)
        eventually(lambda: list(read_pcap(tmp_path / f"{b.port}_out.pcap")))
    assert [d for _, d in read_pcap(tmp_path / f"{a.port}_in.pcap")] == [udp(size=200)]
    assert [d for _, d in read_pcap(tmp_path / f"{b.port}_out.pcap")] == [left]
    assert not list(read_pcap(tmp_path / f"{a.port}_out.pcap"))
    assert not list(read_pcap(tmp_path / f"{b.port}_in.pcap"))


@pytest.mark.parametrize("order", "<>")
def test_packets_from_files_come_by_their_time(tmp_path: Path, order: str) -> None:
    stem = tmp_path / "a"
    write_pcap(Path(f"{stem}1_in.pcap"), (3, udp(size=103)), (5, udp(size=105)), order=order)
    write_pcap(Path(f"{stem}2_in.pcap"), (4.5, udp(size=104)), order=order)
    interfaces = ["-i", f"1@{stem}1", "-i", f"2@{stem}2"]
    # The route must be there when the first packet comes, on a busy machine, too.
    with Process("--no-p4", "--use-files", "5", *interfaces) as p, Client(p.grpc) as c:
        c.configure()
        c.write(("insert", c.route(0x0A000000, 8, 2)))
        out = Path(f"{stem}2_out.pcap")
        eventually(lambda: len(list(read_pcap(out))) == 3)
        assert [len(d) - 14 for _, d in read_pcap(out)] == [103, 104, 105]
        assert not list(read_pcap(Path(f"{stem}1_out.pcap")))


def test_pipes_are_read_while_they_are_written(tmp_path: Path) -> None:
    """As p4c's tests do it: with the port behind a blank, and entries between the packets."""
    stem = tmp_path / "pcap"
    for port in (1, 2):
        os.mkfifo(f"{stem}{port}_in.pcap")
    write_pcap(tmp_path / "whole", (1, udp(size=101)), (3, udp(size=103)))
    whole = (tmp_path / "whole").read_bytes()
    at = 24 + 16 + 14 + 101
    interfaces = [f"-i 1@{stem}1", f"-i 2@{stem}2"]
    pipes: list[BinaryIO] = []

    def open_pipes() -> None:
        for port in (1, 2):
            pipes.append(open(f"{stem}{port}_in.pcap", "wb", buffering=0))  # noqa: SIM115
            pipes[-1].write(whole[:24])

    opening = threading.Thread(target=open_pipes)
    opening.start()
    with Process("--no-p4", "--use-files", "0", *interfaces) as p, Client(p.grpc) as c:
        opening.join()
        c.configure()
        c.write(("insert", c.route(0x0A000000, 8, 2)))
        pipes[1].close()
        out = Path(f"{stem}2_out.pcap")
        pipes[0].write(whole[24:at])
        eventually(lambda: len(list(read_pcap(out))) == 1)
        pipes[0].write(whole[at:-1])
        pipes[0].close()
        assert p.popen.wait(20) == 1
    assert "pcap1_in.pcap ends within a packet" in p.errors
    assert [len(d) - 14 for _, d in read_pcap(out)] == [101]


def test_files_that_are_no_pcap(tmp_path: Path) -> None:
    write_pcap(tmp_path / "good", (1, b"x" * 20))
    good = (tmp_path / "good").read_bytes()
    files = (
        (b"", "not a pcap file"),
        (b"x" * 100, "not a pcap file"),
        (good[:-1], "ends within"),
        (good[:30], "ends within"),
        (good[:-24] + struct.pack("<I", 9) + good[-20:], "a packet that is not complete"),
    )
    commands = list[list[str]]()
    for number, (content, _) in enumerate(files):
        Path(f"{tmp_path}/{number}_in.pcap").write_bytes(content)
        interface = ["-i", f"1@{tmp_path}/{number}"]
        commands.append(["--no-p4", "--thrift-port", "0", "--use-files", "0", *interface])
    for (content, word), (status, lines) in zip(files, run_each(*commands), strict=True):
        assert status == 1 and len(lines) == 1 and word in lines[0], (content, lines)
    with pytest.raises(SoftSwitchError, match="cannot read"):
        Replay([(1, str(tmp_path / "none"))], 0)


def logged(log: Log, tmp_path: Path, packets: int = 1) -> list[str]:
    """Lines of a log of packets that a port without a program gets."""
    stem = str(tmp_path / "x")
    ports = Ports([Port(1, stem)], capture=Capture(files=True), log=log)
    for _ in range(packets):
        ports.inject(1, bytes(range(64)))
    ports.say("warn", "two\nlines")
    ports.close()
    return Path(f"{log.file}.txt").read_text().splitlines()


def test_log_lines_are_bmv2s(tmp_path: Path) -> None:
    lines = logged(Log(str(tmp_path / "log"), dump=4), tmp_path)
    assert [x.split("] ", 4)[-1] for x in lines] == [
        f"Adding interface {tmp_path / 'x'}_out.pcap as port 1",
        "Received packet of length 64 on port 1: 00010203",
        "two lines",
    ]
    assert [x.split("] ")[2][1:] for x in lines] == ["D", "I", "W"]
    assert all(" [bmv2] " in x for x in lines)


def test_log_level_keeps_lines_away(tmp_path: Path) -> None:
    (line,) = logged(Log(str(tmp_path / "log"), "warn", dump=4), tmp_path)
    assert line.endswith("two lines")


def test_log_is_begun_anew_when_it_is_full(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"), dump=64, max_size=1000, max_files=2)
    logged(log, tmp_path, packets=100)
    assert sorted(x.name for x in tmp_path.glob("log*")) == ["log.1.txt", "log.2.txt", "log.txt"]
    assert all(x.stat().st_size < 1400 for x in tmp_path.glob("log*"))


def test_log_of_a_process(tmp_path: Path) -> None:
    with Process("--no-p4", "--log-file", str(tmp_path / "log")) as p:
        assert p.grpc in (tmp_path / "log.txt").read_text()
    status, lines = run("--no-p4", "--log-file", str(tmp_path / "no" / "log"))
    assert status == 1 and len(lines) == 1 and "log.txt" in lines[0]


def test_what_has_no_effect_is_told() -> None:
    with Process("--no-p4", "--nanolog", "ipc:///x", "--debugger", "--log-flush") as p:
        pass
    errors = p.errors.splitlines()
    assert len(errors) == 3
    assert all("warning: --" in x and "no effect" in x for x in errors)
