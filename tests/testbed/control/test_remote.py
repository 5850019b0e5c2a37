# SPDX-License-Identifier: Apache-2.0
"""A soft switch over P4Runtime and Thrift behaves to the controller as one in this process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from canary_softswitch import Program, Switch
from testbed.control.epochs import set_parity
from testbed.control.forwarding import install_forwarding
from testbed.control.local import LocalSwitch
from testbed.control.remote import connection
from testbed.control.remote.connection import Connection, RemoteError
from testbed.control.remote.switch import RemoteSwitch
from testbed.control.remote.thrift import RegisterClient, ThriftError
from testbed.control.switch import batch
from testbed.dataplane import DSM, FAULT, HASHPIPE, IDENTITY, P4INFO, PROGRAM, ROUTING, USM
from testbed.fabric.fat_tree import FatTree
from testbed.measurements.canary.meters import collect
from testbed.softswitch.tests.server.client import Process

REMOTE = Path(__file__).parents[3] / "testbed" / "control" / "remote"


@contextmanager
def process(columns: bool = True) -> Iterator[tuple[Process, RemoteSwitch]]:
    with Process(str(PROGRAM)) as running:
        control = RemoteSwitch(
            "tor0_0",
            running.grpc,
            0,
            P4INFO,
            lambda: RegisterClient(
                socket.create_connection(("127.0.0.1", running.thrift)), columns
            ),
        )
        try:
            yield running, control
        finally:
            control.close()


@pytest.fixture(scope="module", params=[True, False], ids=["columns", "as BMv2"])
def control(request: pytest.FixtureRequest) -> Iterator[RemoteSwitch]:
    """A switch whose registers are read in one message, or as BMv2's are."""
    with process(request.param) as (_, control):
        yield control


def test_the_remote_client_knows_no_program() -> None:
    text = "".join(file.read_text() for file in REMOTE.glob("*.py"))
    assert "Canary" not in text and "testbed.dataplane" not in text


def test_forwarding_and_epoch_are_installed_in_one_batch(control: RemoteSwitch) -> None:
    with batch([control]):
        install_forwarding(FatTree(4), 0, control, mask=1, monitor=True)
        set_parity(control, 1)
        assert control.waiting
    assert not control.waiting
    with pytest.raises(RemoteError, match=r"^tor0_0: update 0: [^\n]+$"):
        control.table(ROUTING.routes).add([(0, 0)], ROUTING.up)  # it is there already


def test_an_uplink_is_drained_and_put_back() -> None:
    with process() as (_, control):
        with batch([control]):
            uplinks = install_forwarding(FatTree(4), 0, control, mask=1, monitor=True)
        assert uplinks is not None
        [(group, ((first, kept), (second, _)))] = uplinks.groups.items()
        uplinks.drain(first)
        uplinks.undrain(first)
        uplinks.drain(second)
        entity = connection.p4runtime_pb2.Entity()
        entity.action_profile_group.group_id = group
        entity.action_profile_group.action_profile_id = 0
        [found] = control.connection.read(entity)
        left = [member.member_id for member in found.action_profile_group.members]
        assert left == [kept]


@pytest.mark.parametrize(
    ("before", "reason"), [(1, "update 1: .*match exists"), (400, "match exists: 400")]
)
def test_a_batch_is_refused_with_its_update(
    before: int, reason: str, control: RemoteSwitch
) -> None:
    table = control.table(ROUTING.routes)
    with pytest.raises(RemoteError, match=reason), batch([control]):
        for i in range(before):
            table.add([(0x14000000 + before + i, 32)], ROUTING.up)
        table.add([(0x14000000 + before, 32)], ROUTING.up)


def test_registers_are_read_and_cleared_like_those_in_process(control: RemoteSwitch) -> None:
    local = LocalSwitch(Switch(Program.load(PROGRAM)))
    flow = 0x0A000002_0A030103_C001_0050_06
    for meter, bucket in ((USM, 7), (DSM, 1024 + 9)):
        values = {
            "count": 3,
            "flow_hi": flow >> meter.half_bits,
            "flow_lo": flow & (1 << meter.half_bits) - 1,
        }
        for field, value in values.items():
            name = meter.rows[1][field]
            control.write_register(name, {bucket: value})
            local.read_registers([name])[name][bucket] = value
    for parity in (0, 1):
        there, here = (collect({5: switch}, parity) for switch in (control, local))
        assert len(there["count"]) == 1
        for column, array in here.items():
            assert np.array_equal(there[column], array) and there[column].dtype == array.dtype
        assert int(there["flow_hi"][0]) << 64 | int(there["flow_lo"][0]) == flow
        assert there["bucket"].tolist() == [[7], [9]][parity]
        assert len(collect({5: control}, parity)["count"]) == 0


def test_entries_count_and_go(control: RemoteSwitch) -> None:
    rules = control.table(USM.rules)
    handle = rules.add([42], USM.monitor)
    assert rules.counters([handle]).tolist() == [[0, 0]]
    rules.delete(handle)
    rules.add([42], USM.monitor)  # there is room for it again
    assert control.counter(FAULT.dropped, [1, 2])["packets"].sum() == 0
    assert all(len(digests) == 0 for digests in control.digests().values())


def test_a_switch_that_restarted_gets_all_again(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/switch"
    running = Process("--no-p4", address=address)
    control = RemoteSwitch(
        *("tor0_0", running.grpc, 0, P4INFO),
        lambda: RegisterClient(socket.create_connection(("127.0.0.1", running.thrift))),
    )
    try:
        control.push_program(PROGRAM)
        with batch([control]):
            uplinks = install_forwarding(FatTree(4), 0, control, mask=1, monitor=True)
            set_parity(control, 1)
        assert uplinks is not None
        assert control.restore() == 0  # everything is there
        rules = control.table(USM.rules)
        kept = rules.add([42], USM.monitor)
        control.write_register(USM.rows[0]["count"], {3: 7})
        before = content(control)

        control.give_up("it restarts")
        [members] = uplinks.groups.values()
        uplinks.drain(members[0][0])
        meanwhile = rules.add([43], USM.monitor)
        running.popen.kill()
        running.popen.wait()
        running = Process("--no-p4", address=address)
        assert control.restore() == len(before) + 1 - 2  # two default actions are none
        now = content(control)
        assert len(now) == len(before) + 1
        assert len(set(now) - set(before)) == 2  # the new rule, and the group without a link
        assert rules.counters([kept, meanwhile]).tolist() == [[0, 0]] * 2
        assert not control.read_registers([USM.rows[0]["count"]])[USM.rows[0]["count"]].any()
        rules.delete(kept)
        assert not control.lost
    finally:
        control.close()
        running.stop()


def content(control: RemoteSwitch) -> list[bytes]:
    """What a switch has: entries and default actions of its tables, members and groups."""
    entities = [connection.p4runtime_pb2.Entity() for _ in range(5)]
    entities[0].table_entry.table_id = 0
    for entity, table in zip(entities[1:3], (IDENTITY.identity, IDENTITY.epoch), strict=True):
        entity.table_entry.table_id = control.table(table)._info.preamble.id
        entity.table_entry.is_default_action = True
    entities[3].action_profile_member.action_profile_id = 0
    entities[4].action_profile_group.action_profile_id = 0
    found = [control.connection.read(entity) for entity in entities]
    return sorted(e.SerializeToString(deterministic=True) for some in found for e in some)


def test_what_cannot_be_is_one_line(control: RemoteSwitch) -> None:
    with pytest.raises(RemoteError, match="no table 'nowhere' in the program; it has"):
        control.table("nowhere")
    with pytest.raises(RemoteError, match="has 104 bits; at most 63 can be read"):
        control.read_registers([HASHPIPE.stages[0]["flow_id"]])
    with pytest.raises(RemoteError, match=r"^tor0_0: standard:bm_register_write was refused: err"):
        control.write_register(USM.rows[0]["count"], {10**6: 1})
    with pytest.raises(RemoteError, match="does not fit in 104 bits"):
        control.table(USM.rules).add([1 << 104], USM.monitor)
    assert control.lost == ""


def test_a_switch_that_died_answers_nothing() -> None:
    with process() as (running, control):
        control.read_registers([USM.rows[0]["count"]])
        running.popen.kill()
        running.popen.wait()
        registers = control.read_registers([USM.rows[0]["count"]])
        assert control.lost == "its Thrift connection broke"
        assert not registers[USM.rows[0]["count"]].any()
        control.table(USM.rules).add([1], USM.monitor)  # vanishes
        assert all(len(digests) == 0 for digests in control.digests().values())
        assert len(collect({0: control}, 0)["count"]) == 0


def test_a_channel_that_is_cut_is_named() -> None:
    with process() as (_, control):
        control.connection.cut()
        deadline = time.monotonic() + 10
        while not control.lost and time.monotonic() < deadline:
            control.digests()
        assert control.lost == "its P4Runtime connection broke"


def test_nobody_listens() -> None:
    with pytest.raises(RemoteError, match=r"^core1: no P4Runtime server answers at 127.0.0.1:9$"):
        RemoteSwitch("core1", "127.0.0.1:9", 0, P4INFO, lambda: pytest.fail("no call"))


def test_a_server_that_speaks_something_else_is_no_thrift_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = RegisterClient(socket.create_connection(server.getsockname()))
        there, _ = server.accept()
        there.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4)
        with pytest.raises(ThriftError, match="not a Thrift server"):
            client.fill(["count"], 0, 1)
        there.close()
        client.close()


class Deaf:
    """A client whose threads wait for a lock that nobody gives back."""

    stream = SimpleNamespace(cancel=lambda: None)

    def tear_down(self) -> None:
        threading.Event().wait()


def test_a_session_that_cannot_be_ended_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_ENDING_S", 0.1)
    session = Connection.__new__(Connection)
    session._client = cast(Any, Deaf())
    ending = threading.Thread(target=session.close, daemon=True)
    ending.start()
    ending.join(10)
    assert not ending.is_alive()
