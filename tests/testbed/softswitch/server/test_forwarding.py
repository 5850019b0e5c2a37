"""Real packets over veth pairs, in namespaces the tests make and remove."""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from testbed.softswitch.server.messages import p4info_pb2, p4runtime_pb2
from tests.testbed.softswitch.server.client import PROGRAMS, Client, Process, eventually
from tests.testbed.softswitch.server.frames import udp
from tests.testbed.softswitch.server.test_thrift import free_port
from tests.testbed.softswitch.server.thrift_client import RegisterClient

pytestmark = pytest.mark.root
NUMBERS = itertools.count()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def offloads_off(interface: str) -> None:
    """No checksum, segmentation or VLAN offload, as the network has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for command in (0x17, 0x15, 0x1F, 0x24, 0x2C):  # tx and rx sums, tso, gso, gro
            value = np.array([command, 0], dtype=np.uint32)
            try:
                fcntl.ioctl(s, 0x8946, struct.pack("16sP", interface.encode(), value.ctypes.data))
            except OSError as e:
                if command != 0x15:
                    pytest.skip(f"cannot switch offloads off: {e}")


class Wire:
    """A veth pair: ``port`` is the switch's end, a raw socket sits at the other."""

    def __init__(self) -> None:
        name = f"sp{os.getpid() % 10**6}x{next(NUMBERS)}"
        self.port, self.host = name + "s", name + "h"
        self.socket: socket.socket | None = None
        try:
            ip(
                "link",
                "add",
                self.port,
                "mtu",
                "1600",
                "type",
                "veth",
                "peer",
                "name",
                self.host,
                "mtu",
                "1600",
            )
        except (OSError, subprocess.CalledProcessError) as e:
            pytest.skip(f"veth pairs cannot be made: {e}")
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    def _set_up(self) -> None:
        for end in (self.port, self.host):
            with open(f"/proc/sys/net/ipv6/conf/{end}/disable_ipv6", "w") as f:
                f.write("1")
            offloads_off(end)
            ip("link", "set", end, "up")

    def open(self) -> socket.socket:
        if self.socket is None:
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)  # hears nothing until bound
            s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
            s.setsockopt(263, 23, 1)  # PACKET_IGNORE_OUTGOING
            s.bind((self.host, 3))
            s.settimeout(5)
            self.socket = s
        return self.socket

    def close(self) -> None:
        if self.socket:
            self.socket.close()
        subprocess.run(["ip", "link", "del", self.port], capture_output=True)  # may be gone


@pytest.fixture
def wires() -> Iterator[Callable[[int], list[Wire]]]:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes veth pairs")
    made: list[Wire] = []

    def make(n: int) -> list[Wire]:
        for _ in range(n):
            made.append(Wire())
        return made[-n:]

    yield make
    for w in made:
        w.close()


def attach(wires: list[Wire]) -> list[str]:
    return [x for i, w in enumerate(wires, 1) for x in ("-i", f"{i}@{w.port}")]


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
    lines = p.said.splitlines()
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
        got = []
        frame = udp(size=100)
        for i in range(n):
            source.send(frame[:34] + struct.pack(">H", i) + frame[36:])
            if i % 50 == 49:  # a table write for every 50 packets
                c.write(("insert", c.route(0x0B000000 + i, 32, 1)))
                c.write(("delete", c.route(0x0B000000 + i, 32, 1)))
        try:
            while len(got) < n:
                got.append(struct.unpack_from(">H", sink.recv(200), 34)[0])
        except TimeoutError:
            pass
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
        sink.settimeout(5)
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
s = socket.create_connection(("10.0.0.2", 5000), timeout=10)
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
                    timeout=20,
                )
                assert server.communicate(timeout=10)[0] == "10000000\n"
            finally:
                server.kill()
                server.wait()
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


# ---- the same packets through BMv2 ----


class Bmv2:
    """A simple_switch_grpc in place of ``Process``."""

    def __init__(self, *arguments: str) -> None:
        self.thrift, port = free_port(), free_port()
        self.grpc = f"127.0.0.1:{port}"
        self.popen = subprocess.Popen(
            [
                "simple_switch_grpc",
                "--no-p4",
                "--thrift-port",
                str(self.thrift),
                "--notifications-addr",
                f"ipc:///tmp/softswitch-test-{os.getpid()}g",
                *arguments,
                "--",
                "--grpc-server-addr",
                self.grpc,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def listens() -> bool:
            with socket.socket() as s:
                return not s.connect_ex(("127.0.0.1", port))

        eventually(listens, 15)

    def __enter__(self) -> Bmv2:
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.terminate()
        self.popen.wait()


def entries(c: Client) -> list[tuple[str, Any]]:
    identity = c.entry(
        "CanaryIngress.identity.identity",
        {},
        "CanaryIngress.identity.identify",
        (1, 0, 0x00400201, 0x0A0000FE),
    )
    identity.table_entry.is_default_action = True
    ap = c.id("action_profiles", "CanaryIngress.routing.uplink_selector")
    out: list[tuple[str, Any]] = [("modify", identity)]
    for i in (1, 2, 3):
        out.append(
            (
                "insert",
                p4runtime_pb2.Entity(
                    action_profile_member=p4runtime_pb2.ActionProfileMember(
                        action_profile_id=ap,
                        member_id=10 - i,
                        action=c.action("CanaryIngress.routing.forward", i, i),
                    )
                ),
            )
        )
    group = p4runtime_pb2.ActionProfileGroup(action_profile_id=ap, group_id=4)
    for i, weight in ((8, 1), (7, 3), (9, 2)):
        group.members.add(member_id=i, weight=weight)
    uplink = c.entry("CanaryIngress.routing.uplinks", {"upward": 1})
    uplink.table_entry.action.action_profile_group_id = 4
    out += [
        ("insert", p4runtime_pb2.Entity(action_profile_group=group)),
        ("insert", uplink),
        ("insert", c.route(0x0A000000, 24, 3)),
        ("insert", c.route(0x0A000100, 24, 1, action="forward")),
        ("insert", c.entry("CanaryIngress.routing.routes", {}, "CanaryIngress.routing.up")),
        (
            "insert",
            c.entry(
                "CanaryIngress.fault.faults",
                {"port": 1, "src_port": (7, 0xFF)},
                "CanaryIngress.fault.blackhole",
                (),
                5,
            ),
        ),
    ]
    for sport in range(0, 64, 2):
        flow = 0x0A000001 << 72 | 0x0B000001 << 40 | sport << 24 | 2000 << 8 | 17
        out.append(
            (
                "insert",
                c.entry(
                    "CanaryEgress.usm.rules", {"meta.flow_id": flow}, "CanaryEgress.usm.monitor"
                ),
            )
        )
        out.append(
            (
                "insert",
                c.entry(
                    "CanaryIngress.dsm.rules",
                    {"meta.flow_id": flow, "hdr.shim.path_bf": 5},
                    "CanaryIngress.dsm.monitor",
                ),
            )
        )
    return out


def drive(kind: Callable[..., Process | Bmv2], w: list[Wire]) -> tuple[Any, Any, Any]:
    """What leaves, the registers and the counters after the same packets."""
    sockets = [x.open() for x in w]
    rng = random.Random(5)
    with (
        kind(*([] if kind is Bmv2 else ["--no-p4"]), *attach(w)) as p,
        Client(p.grpc) as c,
        RegisterClient(p.thrift) as r,
    ):
        c.configure()
        c.write(*entries(c))
        seen: list[list[bytes]] = [[], [], []]
        for s in sockets:
            s.settimeout(0.5)
        for n in range(400):
            frame = udp(
                dst=rng.choice([0x0A000005, 0x0A000105, 0x0B000001]),
                sport=rng.randrange(64),
                ttl=rng.choice([64, 17, 16]),
                path_bf=rng.choice([None, 5, 6]),
                size=rng.choice([60, 200]),
            )
            sockets[0].send(frame)
            if n % 20 == 19:
                time.sleep(0.005)  # BMv2 drops in its queues otherwise
        for s, out in zip(sockets, seen, strict=True):
            try:
                while True:
                    out.append(s.recv(2000))
            except TimeoutError:
                pass
        registers = {
            x.preamble.name: r.read_all(x.preamble.name).tolist()
            for x in c.info.registers
            if "icmp_window" not in x.preamble.name
        }
        counters = [
            (e.direct_counter_entry.table_entry.table_id, e.direct_counter_entry.data.packet_count)
            for name in (
                "CanaryIngress.fault.faults",
                "CanaryEgress.usm.rules",
                "CanaryIngress.dsm.rules",
            )
            for e in c.read(
                direct_counter_entry=p4runtime_pb2.DirectCounterEntry(
                    table_entry=p4runtime_pb2.TableEntry(table_id=c.id("tables", name))
                )
            )
        ]
    return [sorted(x) for x in seen], registers, sorted(counters)


@pytest.mark.skipif(
    not shutil.which("simple_switch_grpc"), reason="simple_switch_grpc is not on PATH"
)
def test_same_as_bmv2(wires: Callable[[int], list[Wire]]) -> None:
    w = wires(3)
    mine, theirs = drive(Process, w), drive(Bmv2, w)
    assert [len(x) for x in mine[0]] == [len(x) for x in theirs[0]]
    assert mine[0] == theirs[0]
    for name, values in theirs[1].items():
        assert mine[1][name] == values, name
    assert mine[2] == theirs[2]
    assert max(theirs[1]["CanaryIngress.hashpipe.stage0.flow_id"]) == 2**63 - 1
