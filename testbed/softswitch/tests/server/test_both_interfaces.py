# SPDX-License-Identifier: Apache-2.0
"""Tables that both P4Runtime and Thrift write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from canary_softswitch.device.device import Device
from canary_softswitch.device.messages import code_pb2, p4runtime_pb2
from canary_softswitch.p4runtime.server import Server, Threads
from canary_softswitch.thrift.tables import Tables
from testbed.softswitch.tests.server.client import PROGRAMS, Client, Refused, p4info

ROUTES, DELIVER = "CanaryIngress.routing.routes", "CanaryIngress.routing.deliver"
MAC = 0x020000000001
Thrift = Callable[..., Any]


@pytest.fixture
def client(device: Device) -> Iterator[Client]:
    threads = Threads()
    server = Server(device, "127.0.0.1:0", threads)
    with Client(server.address) as c:
        c.configure()
        yield c
    server.stop()
    threads.stop()


@pytest.fixture
def thrift(device: Device) -> Thrift:
    """A call: its name and its arguments from the second on, the first is a context."""
    calls = Tables(device).calls

    def call(name: str, *arguments: Any) -> Any:
        return calls[name](dict(enumerate(arguments, 2)))[1]

    return call


def lpm(address: int, n: int) -> list[Any]:
    return [{1: 1, 3: {1: address.to_bytes(4, "big"), 2: n}}]


def added(thrift: Thrift, address: int, n: int, port: int) -> int:
    data = [bytes([port]), MAC.to_bytes(6, "big")]
    return thrift("bm_mt_add_entry", ROUTES.encode(), lpm(address, n), DELIVER.encode(), data)


def routes(client: Client) -> list[tuple[int, int, int, int]]:
    """Address, prefix, port and the controller's metadata of what P4Runtime reads."""
    wanted = p4runtime_pb2.TableEntry(table_id=client.id("tables", ROUTES))
    found = [e.table_entry for e in client.read(table_entry=wanted)]
    return [
        (
            int.from_bytes(e.match[0].lpm.value, "big"),
            e.match[0].lpm.prefix_len,
            int.from_bytes(e.action.action.params[0].value, "big"),
            e.controller_metadata,
        )
        for e in found
    ]


def test_p4runtime_sees_every_change_whoever_made_it(client: Client, device: Device) -> None:
    """It goes by what a call does to the table, not by what it is called."""
    assert device.pipeline is not None
    table = device.pipeline.switch.table(ROUTES)
    client.write(("insert", client.route(0x0A000000, 8, 2)))
    assert len(routes(client)) == 1
    first = table.add([(0x0B000000, 8)], DELIVER, [3, MAC])
    assert sorted(routes(client)) == [(0x0A000000, 8, 2, 0), (0x0B000000, 8, 3, 0)]
    table.modify(first, DELIVER, [4, MAC])
    client.write(("insert", client.route(0x0C000000, 8, 5)))  # does not hide that change
    assert (0x0B000000, 8, 4, 0) in routes(client)
    table.delete(first)
    assert sorted(routes(client)) == [(0x0A000000, 8, 2, 0), (0x0C000000, 8, 5, 0)]
    table.clear()
    assert routes(client) == []


def test_p4runtime_reads_and_writes_what_thrift_added(client: Client, thrift: Thrift) -> None:
    client.write(("insert", client.route(0x0A000000, 8, 2)))
    added(thrift, 0x0B123456, 8, 3)
    assert sorted(routes(client)) == [(0x0A000000, 8, 2, 0), (0x0B000000, 8, 3, 0)]
    with pytest.raises(Refused) as refused:
        client.write(("insert", client.route(0x0B000000, 8, 5)))
    assert refused.value.codes == [code_pb2.ALREADY_EXISTS]
    client.write(("modify", client.route(0x0B000000, 8, 4)))
    assert (0x0B000000, 8, 4, 0) in routes(client)
    client.write(("delete", client.route(0x0B000000, 8, 4)))
    assert routes(client) == [(0x0A000000, 8, 2, 0)]


def test_what_thrift_changes_and_deletes(client: Client, thrift: Thrift) -> None:
    for address, port in ((0x0A000000, 2), (0x0B000000, 3)):
        route = client.route(address, 8, port)
        route.table_entry.controller_metadata = port
        client.write(("insert", route))
    data = [b"\x07", MAC.to_bytes(6, "big")]
    thrift("bm_mt_modify_entry", ROUTES.encode(), 0, DELIVER.encode(), data)
    assert routes(client) == [(0x0A000000, 8, 7, 2), (0x0B000000, 8, 3, 3)]
    thrift("bm_mt_delete_entry", ROUTES.encode(), 0)
    assert routes(client) == [(0x0B000000, 8, 3, 3)]
    with pytest.raises(Refused) as refused:
        client.write(("delete", client.route(0x0A000000, 8, 2)))
    assert refused.value.codes == [code_pb2.NOT_FOUND]
    client.write(("insert", client.route(0x0A000000, 8, 9)))
    thrift("bm_mt_clear_entries", ROUTES.encode(), False)
    assert not routes(client)


def test_an_entry_that_thrift_made_anew_is_not_the_controllers(
    client: Client, thrift: Thrift
) -> None:
    for address in (0x0A000000, 0x0B000000):
        route = client.route(address, 8, 2)
        route.table_entry.controller_metadata = 5
        client.write(("insert", route))
    for handle in (0, 1):
        thrift("bm_mt_delete_entry", ROUTES.encode(), handle)
    for address in (0x0C000000, 0x0B000000, 0x0A000000):
        added(thrift, address, 8, 3)
    others = [r for r in routes(client) if r[0] != 0x0B000000]
    assert sorted(others) == [(0x0A000000, 8, 3, 0), (0x0C000000, 8, 3, 0)]


def test_the_default_that_thrift_set(client: Client, thrift: Thrift) -> None:
    wanted = p4runtime_pb2.TableEntry(table_id=client.id("tables", ROUTES), is_default_action=True)

    def default() -> Any:
        (found,) = client.read(table_entry=wanted)
        return found.table_entry.action.action

    before = default()
    data = [b"\x07", MAC.to_bytes(6, "big")]
    thrift("bm_mt_set_default_action", ROUTES.encode(), DELIVER.encode(), data)
    assert default() == p4runtime_pb2.Action(
        action_id=client.id("actions", DELIVER),
        params=[
            p4runtime_pb2.Action.Param(param_id=1, value=b"\x07"),
            p4runtime_pb2.Action.Param(param_id=2, value=bytes.fromhex("020000000001")),
        ],
    )
    thrift("bm_mt_reset_default_entry", ROUTES.encode())
    assert default() == before


def test_an_entry_with_a_timeout_that_thrift_deleted(
    client: Client, thrift: Thrift, capfd: pytest.CaptureFixture[str]
) -> None:
    info, code = PROGRAMS / "rates.p4info.txtpb", PROGRAMS / "rates.json"
    client.configure(info=p4info(info), code=code.read_bytes())
    entry = client.entry("I.entries", {"hdr.h.key": 7}, "I.note")
    entry.table_entry.idle_timeout_ns = 50_000_000
    client.write(("insert", entry))
    thrift("bm_mt_delete_entry", b"I.entries", 0)
    other = client.entry("I.entries", {"hdr.h.key": 8}, "I.note")
    other.table_entry.idle_timeout_ns = 100_000_000
    client.write(("insert", other))
    told = client.receive("idle_timeout_notification")
    assert [e.match[0].exact.value for e in told.table_entry] == [b"\x08"]
    assert "Traceback" not in capfd.readouterr().err
