# SPDX-License-Identifier: Apache-2.0
"""Real packets over veth pairs, in namespaces the tests make and remove."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from canary_softswitch.device.messages import p4info_pb2, p4runtime_pb2
from testbed.softswitch.tests.server.client import PROGRAMS, Client, Process, eventually
from testbed.softswitch.tests.server.frames import udp
from testbed.softswitch.tests.server.wires import Wire, attach, ip
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.root


def test_forwarding_and_counting(wires: Callable[[int], list[Wire]]) -> None:
    a, b = wires(2)
    source, sink = a.open(), b.open()
    with Process("--no-p4", *attach([a, b])) as p, Client(p.grpc) as c:
        source.send(udp())  # no pipeline yet: dropped
        c.configure()
        c.write(("insert", c.route(0x0A000000, 8, 2, 0x020000000002)))
        frame = udp(size=1500)
        source.send(frame)
        out = sink.recv(2000)
        assert out[:14] == bytes.fromhex("0200000000020200000000090800")
        assert out[22] == 63 and out[26:] == frame[26:] and len(out) == 1514
        c.write(("modify", c.route(0x0A000000, 8, 1)))  # tables change under traffic
        source.send(frame)
        assert len(source.recv(2000)) == 1514
        c.write(("delete", c.route(0x0A000000, 8, 1)))
        source.send(frame)
        source.settimeout(0.2)
        with pytest.raises(TimeoutError):
            source.recv(2000)
    lines = p.stdout.splitlines()
    assert f"port 1 {a.port}: received 4, sent 1, dropped 1 on receiving and 0 on" in lines[0]
    assert f"port 2 {b.port}: received 0, sent 1, dropped 0 on receiving and 0 on" in lines[1]


def test_nothing_is_lost_at_a_moderate_rate(wires: Callable[[int], list[Wire]]) -> None:
    a, b = wires(2)
    source, sink = a.open(), b.open()
    n = 20000
    with Process("--no-p4", *attach([a, b])) as p, Client(p.grpc) as c:
        c.configure()
        c.write(("insert", c.route(0x0A000000, 8, 2)))
        c.write(
            (
                "insert",
                c.entry(
                    "CanaryEgress.fault.faults", {"port": 2}, "CanaryEgress.fault.healthy", (), 1
                ),
            )
        )
        sink.settimeout(1)
        got: list[int] = []
        frame = udp(size=100)

        def receive(until: int) -> None:
            """Take what has come: an ordinary user's buffer holds some 200 packets."""
            with suppress(TimeoutError):
                while len(got) < until:
                    got.append(struct.unpack_from(">H", sink.recv(200), 34)[0])

        for i in range(n):
            source.send(frame[:34] + struct.pack(">H", i) + frame[36:])
            if i % 50 == 49:  # a table write for every 50 packets
                c.write(("insert", c.route(0x0B000000 + i, 32, 1)))
                c.write(("delete", c.route(0x0B000000 + i, 32, 1)))
                receive(i - 49)
        receive(n)
        assert got == list(range(n))  # all of them, in order
        (counter,) = c.read(
            direct_counter_entry=p4runtime_pb2.DirectCounterEntry(
                table_entry=p4runtime_pb2.TableEntry(
                    table_id=c.id("tables", "CanaryEgress.fault.faults")
                )
            )
        )
        assert counter.direct_counter_entry.data.packet_count == n


def copies(p: Process) -> Client:
    """A controller of a switch with softswitch/programs/copies.p4, which has no tables."""
    c = Client(p.grpc)
    c.configure(info=p4info_pb2.P4Info(), code=(PROGRAMS / "copies.json").read_bytes())
    return c


def test_vlan_tags_stay(wires: Callable[[int], list[Wire]]) -> None:
    a, b = wires(2)
    tagged = bytes(12) + b"\x81\x00\x20\x07\x08\x00" + bytes(50)
    source = a.open()
    sink = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with sink, Process("--no-p4", *attach([a, b])) as p, copies(p):
        sink.bind((b.host, 3))
        sink.settimeout(PATIENCE_S)
        sink.setsockopt(263, 8, 1)  # PACKET_AUXDATA: the kernel takes the tag out again
        source.send(tagged)
        data, control, _, _ = sink.recvmsg(200, 200)
        assert data[4:8] == len(tagged).to_bytes(4, "big")  # what the program saw
        words = struct.unpack("IIIHHHH", control[0][2])
        assert words[5] == 0x2007 and data[12:] == tagged[16:]


def test_clones_and_multicast(wires: Callable[[int], list[Wire]]) -> None:
    w = wires(4)
    sockets = [x.open() for x in w]
    with Process("--no-p4", *attach(w)) as p, copies(p) as c:

        def entry(**what: Any) -> Any:
            return p4runtime_pb2.Entity(
                packet_replication_engine_entry=(p4runtime_pb2.PacketReplicationEngineEntry(**what))
            )

        replicas = [p4runtime_pb2.Replica(egress_port=port, instance=port + 10) for port in (3, 4)]
        c.write(
            (
                "insert",
                entry(
                    clone_session_entry=p4runtime_pb2.CloneSessionEntry(
                        session_id=5, replicas=replicas, packet_length_bytes=20
                    )
                ),
            ),
            (
                "insert",
                entry(
                    multicast_group_entry=p4runtime_pb2.MulticastGroupEntry(
                        multicast_group_id=9, replicas=replicas
                    )
                ),
            ),
        )
        sockets[0].send(bytes([1, 0]) + bytes(40))
        assert len(sockets[1].recv(100)) == 42
        for s in sockets[2:]:
            clone = s.recv(100)
            assert len(clone) == 20 and clone[2] == 1  # an ingress clone
        sockets[0].send(bytes([3, 9]) + bytes(40))
        for port, s in zip((3, 4), sockets[2:], strict=True):
            copy = s.recv(100)
            assert len(copy) == 42 and (copy[2], copy[3]) == (5, port + 10)


def test_an_interface_that_goes_away(wires: Callable[[int], list[Wire]]) -> None:
    a, b, gone = wires(3)
    source, sink, far = a.open(), b.open(), gone.open()
    with Process("--no-p4", *attach([a, b, gone])) as p, Client(p.grpc) as c:
        c.configure()
        c.write(("insert", c.route(0x0A000000, 8, 2)), ("insert", c.route(0x0B000000, 8, 3)))
        ip("link", "set", gone.port, "down")
        source.send(udp(dst=0x0B000001))
        source.send(udp())
        assert len(sink.recv(200)) == 54
        ip("link", "set", gone.port, "up")
        eventually(
            lambda: (
                "LOWER_UP"
                in subprocess.run(
                    ["ip", "link", "show", gone.host], capture_output=True, text=True
                ).stdout
            )
        )
        source.send(udp(dst=0x0B000001))
        assert len(far.recv(200)) == 54


SERVER = """
import socket, sys
s = socket.create_server(("10.0.0.2", 5000)); print("ready", flush=True)
c, _ = s.accept(); n = 0
while data := c.recv(1 << 16): n += len(data)
print(n, flush=True)
"""
SENDER = """
import socket
s = socket.create_connection(("10.0.0.2", 5000), timeout=180)
for _ in range(100): s.sendall(bytes(100000))
"""


def test_tcp_between_namespaces(wires: Callable[[int], list[Wire]]) -> None:
    pair = wires(2)
    names = [f"sp{os.getpid()}n{i}" for i in (1, 2)]
    try:
        for i, (name, w) in enumerate(zip(names, pair, strict=True), 1):
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as e:
                pytest.skip(f"network namespaces cannot be made: {e}")
            ip("link", "set", w.host, "netns", name, "address", f"02:00:00:00:00:0{i}")
            for words in (
                ["address", "add", f"10.0.0.{i}/24", "dev", w.host],
                ["link", "set", w.host, "up", "mtu", "1500"],
                [
                    "neighbor",
                    "add",
                    f"10.0.0.{3 - i}",
                    "lladdr",
                    f"02:00:00:00:00:0{3 - i}",
                    "dev",
                    w.host,
                ],
            ):
                ip("-n", name, *words)
        with Process("--no-p4", *attach(pair)) as p, Client(p.grpc) as c:
            c.configure()
            c.write(
                *[("insert", c.route(0x0A000000 + i, 32, i, 0x020000000000 + i)) for i in (1, 2)]
            )
            server = subprocess.Popen(
                ["ip", "netns", "exec", names[1], sys.executable, "-c", SERVER],
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                assert server.stdout and server.stdout.readline() == "ready\n"
                subprocess.run(
                    ["ip", "netns", "exec", names[0], sys.executable, "-c", SENDER],
                    check=True,
                    timeout=PATIENCE_S,
                )
                assert server.communicate(timeout=PATIENCE_S)[0] == "10000000\n"
            finally:
                server.kill()
                server.wait()
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
