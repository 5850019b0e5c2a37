# SPDX-License-Identifier: Apache-2.0
"""The same packets through simple_switch_grpc, when it is installed."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from canary_softswitch.device.messages import p4runtime_pb2
from testbed.softswitch.tests.server.client import Client, Process, eventually
from testbed.softswitch.tests.server.frames import udp
from testbed.softswitch.tests.server.test_thrift import free_port
from testbed.softswitch.tests.server.thrift_client import RegisterClient
from testbed.softswitch.tests.server.wires import Wire, attach
from tests.programs import needs

pytestmark = pytest.mark.root


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

        eventually(listens)

    def __enter__(self) -> Bmv2:
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.terminate()
        self.popen.wait()


# Long: one list of entities.
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


@needs("simple_switch_grpc")
def test_same_as_bmv2(wires: Callable[[int], list[Wire]]) -> None:
    w = wires(3)
    mine, theirs = drive(Process, w), drive(Bmv2, w)
    assert [len(x) for x in mine[0]] == [len(x) for x in theirs[0]]
    assert mine[0] == theirs[0]
    for name, values in theirs[1].items():
        assert mine[1][name] == values, name
    assert mine[2] == theirs[2]
    assert max(theirs[1]["CanaryIngress.hashpipe.stage0.flow_id"]) == 2**63 - 1
