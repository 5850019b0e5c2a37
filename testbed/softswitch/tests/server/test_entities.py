# SPDX-License-Identifier: Apache-2.0
"""Writing and reading every kind of entity through P4Runtime."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from canary_softswitch.device.messages import code_pb2, p4runtime_pb2
from testbed.softswitch.tests.server.client import Client, Refused

ROUTES = "CanaryIngress.routing.routes"
FAULTS = "CanaryIngress.fault.faults"
SEGMENTS = "CanaryIngress.heavy_hitter.segments"
USM = "CanaryEgress.usm.rules"
UPLINKS = "CanaryIngress.routing.uplinks"
SELECTOR = "CanaryIngress.routing.uplink_selector"


def refused(client: Client, *updates: tuple[str, Any]) -> list[int]:
    with pytest.raises(Refused) as e:
        client.write(*updates)
    assert all("\n" not in m and (m or not c) for c, m in e.value.details)
    return e.value.codes


def entries(client: Client, table: str, **options: Any) -> list[Any]:
    request = p4runtime_pb2.TableEntry(table_id=client.id("tables", table), **options)
    return [e.table_entry for e in client.read(table_entry=request)]


def fault(client: Client, port: int, priority: int = 1, threshold: int = 1, **match: Any) -> Any:
    return client.entry(
        FAULTS, {"port": port, **match}, "CanaryIngress.fault.lossy", (threshold,), priority
    )


def test_every_match_kind_comes_back_canonical(client: Client) -> None:
    rows = [
        client.route(0x0A010000, 16, 3),
        fault(client, 1, 7, 9, **{"hdr.ipv4.src_ip": (0x0A000001, 0xFF0000FF), "src_port": (0, 1)}),
        client.entry(
            SEGMENTS,
            {"hdr.shim.path_bf": 5, "meta.hashpipe_count": (16, 0xFFFFFFFF)},
            "CanaryIngress.heavy_hitter.report",
            (),
            1,
        ),
        client.entry(USM, {"meta.flow_id": 1 << 103 | 1}, "CanaryEgress.usm.monitor"),
    ]
    client.write(*[("insert", r) for r in rows])
    lpm, ternary, ranged, exact = (entries(client, t)[0] for t in (ROUTES, FAULTS, SEGMENTS, USM))
    assert lpm.match[0].lpm.value == b"\x0a\x01\0\0" and lpm.match[0].lpm.prefix_len == 16
    assert [p.value for p in lpm.action.action.params] == [b"\x03", b"\x02\0\0\0\0\x01"]
    assert [m.field_id for m in ternary.match] == [1, 2, 5]
    assert (ternary.match[0].exact.value, ternary.match[2].ternary.value) == (b"\x01", b"\x00")
    assert ternary.match[1].ternary.value == b"\x0a\0\0\x01" and ternary.priority == 7
    assert (ranged.match[1].range.low, ranged.match[1].range.high) == (b"\x10", b"\xff" * 4)
    assert exact.match[0].exact.value == b"\x80" + bytes(11) + b"\x01" and exact.priority == 0
    assert len(client.read(table_entry=p4runtime_pb2.TableEntry())) == 4
    for r in rows:  # what was read can be written
        client.write(("delete", r))
    assert client.read(table_entry=p4runtime_pb2.TableEntry()) == []


def test_insert_modify_delete(client: Client) -> None:
    one = client.route(0x0A000000, 8, 1)
    assert refused(client, ("modify", one)) == [code_pb2.NOT_FOUND]
    client.write(("insert", one))
    assert refused(client, ("insert", one)) == [code_pb2.ALREADY_EXISTS]
    other = client.route(0x0A000000, 8, 2)
    other.table_entry.controller_metadata, other.table_entry.metadata = 5, b"note"
    client.write(("modify", other))
    (read,) = entries(client, ROUTES)
    assert read.action.action.params[0].value == b"\x02"
    assert (read.controller_metadata, read.metadata) == (5, b"note")
    client.write(("delete", client.entry(ROUTES, {"hdr.ipv4.dst_ip": (0x0A000000, 8)})))
    assert refused(client, ("delete", one)) == [code_pb2.NOT_FOUND]


def test_errors_of_a_batch_are_told_apart(client: Client) -> None:
    good, again = client.route(0x0A000000, 8, 1), client.route(0x0B000000, 8, 1)
    wide = client.route(0x0C000000, 8, 1)
    wide.table_entry.action.action.params[0].value = b"\x02\x00"
    codes = refused(
        client,
        ("insert", good),
        ("insert", good),
        ("insert", wide),
        ("insert", again),
        ("delete", wide),
    )
    assert codes == [
        code_pb2.OK,
        code_pb2.ALREADY_EXISTS,
        code_pb2.OUT_OF_RANGE,
        code_pb2.OK,
        code_pb2.NOT_FOUND,
    ]
    assert len(entries(client, ROUTES)) == 2


def edited(entity: Any, **fields: Any) -> Any:
    copy = p4runtime_pb2.Entity()
    copy.CopyFrom(entity)
    for name, value in fields.items():
        if hasattr(value, "CopyFrom"):
            getattr(copy.table_entry, name).CopyFrom(value)
        else:
            setattr(copy.table_entry, name, value)
    return copy


# Long: one table of mistakes.
def test_wrong_entries(client: Client) -> None:
    bad = code_pb2.INVALID_ARGUMENT
    route = client.route(0x0A000000, 8, 1)
    nowhere = edited(route, table_id=1)
    host_bits = client.entry(
        ROUTES, {"hdr.ipv4.dst_ip": (0x0A000001, 8)}, "CanaryIngress.routing.up"
    )
    zero = client.entry(ROUTES, {"hdr.ipv4.dst_ip": (0, 0)}, "CanaryIngress.routing.up")
    kind = client.route(0x0A000000, 8, 1)
    kind.table_entry.match[0].exact.value = b"\x01"
    twice = client.route(0x0A000000, 8, 1)
    twice.table_entry.match.add().CopyFrom(twice.table_entry.match[0])
    field = client.route(0x0A000000, 8, 1)
    field.table_entry.match[0].field_id = 9
    params = client.route(0x0A000000, 8, 1)
    del params.table_entry.action.action.params[0]
    foreign = client.entry(
        ROUTES, {"hdr.ipv4.dst_ip": (0x0A000000, 8)}, "CanaryIngress.fault.blackhole"
    )
    empty = client.route(0x0A000000, 8, 1)
    empty.table_entry.match[0].lpm.value = b""
    no_action = client.entry(ROUTES, {"hdr.ipv4.dst_ip": (0x0A000000, 8)})
    idle = edited(route, idle_timeout_ns=1)
    cases = [
        (nowhere, code_pb2.NOT_FOUND),
        (host_bits, bad),
        (zero, bad),
        (kind, bad),
        (twice, bad),
        (field, bad),
        (params, bad),
        (foreign, bad),
        (empty, bad),
        (no_action, bad),
        (idle, bad),
        (edited(route, priority=1), bad),
        (fault(client, 1, 0), bad),
        (fault(client, 1, -1), bad),
        (fault(client, 1, src_port=(1, 0)), bad),
        (fault(client, 1, src_port=(1, 2)), bad),
        (fault(client, 1 << 9), code_pb2.OUT_OF_RANGE),
        (client.entry(FAULTS, {}, "CanaryIngress.fault.healthy", (), 1), bad),
        (
            client.entry(
                SEGMENTS,
                {"hdr.shim.path_bf": 1, "meta.hashpipe_count": (2, 1)},
                "CanaryIngress.heavy_hitter.report",
                (),
                1,
            ),
            bad,
        ),
        (
            client.entry(
                "CanaryIngress.identity.epoch", {}, "CanaryIngress.identity.set_parity", (1,)
            ),
            bad,
        ),
        (p4runtime_pb2.Entity(), bad),
        (p4runtime_pb2.Entity(meter_entry=p4runtime_pb2.MeterEntry()), code_pb2.NOT_FOUND),
    ]
    assert refused(client, *[("insert", e) for e, _ in cases]) == [c for _, c in cases]
    assert client.read(table_entry=p4runtime_pb2.TableEntry()) == []


def test_full_table(client: Client) -> None:
    client.write(*[("insert", client.route(0x0A000000 + i, 32, 1)) for i in range(1024)])
    assert refused(client, ("insert", client.route(0x0B000000, 8, 1))) == [
        code_pb2.RESOURCE_EXHAUSTED
    ]


def test_atomicity_is_not_promised(client: Client) -> None:
    request = p4runtime_pb2.WriteRequest(
        device_id=0, atomicity=p4runtime_pb2.WriteRequest.DATAPLANE_ATOMIC
    )
    request.election_id.low = client.election
    with pytest.raises(grpc.RpcError) as e:
        client.stub.Write(request)
    error: Any = e.value
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def default(client: Client, table: str, action: str = "", values: Any = ()) -> Any:
    return edited(client.entry(table, {}, action, values), is_default_action=True)


def test_default_entries(client: Client) -> None:
    table, action = "CanaryIngress.identity.epoch", "CanaryIngress.identity.set_parity"
    (initial,) = entries(client, table, is_default_action=True)
    assert initial.action.action.params[0].value == b"\0"
    client.write(("modify", default(client, table, action, (1,))))
    (changed,) = entries(client, table, is_default_action=True)
    assert changed.action.action.params[0].value == b"\x01" and changed.is_default_action
    client.write(("modify", default(client, table)))
    assert entries(client, table, is_default_action=True) == [initial]
    set_one = default(client, table, action, (1,))
    assert refused(client, ("insert", set_one), ("delete", set_one)) == 2 * [
        code_pb2.INVALID_ARGUMENT
    ]


# ---- action profiles ----


def member(client: Client, number: int, port: int) -> Any:
    return p4runtime_pb2.Entity(
        action_profile_member=p4runtime_pb2.ActionProfileMember(
            action_profile_id=client.id("action_profiles", SELECTOR),
            member_id=number,
            action=client.action("CanaryIngress.routing.forward", port, port),
        )
    )


def group(client: Client, number: int, members: dict[int, int]) -> Any:
    e = p4runtime_pb2.Entity()
    g = e.action_profile_group
    g.action_profile_id, g.group_id = client.id("action_profiles", SELECTOR), number
    for m, weight in members.items():
        g.members.add(member_id=m, weight=weight)
    return e


def uplink(client: Client, **action: Any) -> Any:
    e = client.entry(UPLINKS, {"upward": 1})
    e.table_entry.action.CopyFrom(p4runtime_pb2.TableAction(**action))
    return e


def test_members_and_groups(client: Client) -> None:
    client.write(
        *[("insert", member(client, i, i)) for i in (10, 20)],
        ("insert", group(client, 1, {10: 1, 20: 3})),
    )
    client.write(("insert", uplink(client, action_profile_group_id=1)))
    (entry,) = entries(client, UPLINKS)
    assert entry.action.action_profile_group_id == 1
    assert refused(
        client,
        ("delete", group(client, 1, {})),
        ("delete", member(client, 10, 1)),
        ("insert", member(client, 10, 1)),
        ("insert", group(client, 1, {})),
        ("insert", group(client, 2, {30: 1})),
        ("modify", member(client, 30, 1)),
        ("insert", group(client, 2, {10: 0})),
        ("insert", member(client, 0, 1)),
    ) == [
        code_pb2.FAILED_PRECONDITION,
        code_pb2.FAILED_PRECONDITION,
        code_pb2.ALREADY_EXISTS,
        code_pb2.ALREADY_EXISTS,
        code_pb2.NOT_FOUND,
        code_pb2.NOT_FOUND,
        code_pb2.INVALID_ARGUMENT,
        code_pb2.INVALID_ARGUMENT,
    ]
    client.write(("modify", member(client, 10, 5)), ("modify", group(client, 1, {10: 2})))
    members = client.read(action_profile_member=p4runtime_pb2.ActionProfileMember())
    assert [m.action_profile_member.member_id for m in members] == [10, 20]
    assert members[0].action_profile_member.action.params[0].value == b"\x05"
    (g,) = client.read(action_profile_group=p4runtime_pb2.ActionProfileGroup())
    assert [(m.member_id, m.weight) for m in g.action_profile_group.members] == [(10, 2)]
    client.write(
        ("modify", uplink(client, action_profile_member_id=20)),
        ("delete", group(client, 1, {})),
        ("delete", member(client, 10, 1)),
    )
    assert refused(client, ("delete", member(client, 20, 1))) == [code_pb2.FAILED_PRECONDITION]
    client.write(("delete", uplink(client)), ("delete", member(client, 20, 1)))


def action_set(client: Client, *ports: int) -> Any:
    out = p4runtime_pb2.ActionProfileActionSet()
    for p in ports:
        out.action_profile_actions.add(
            action=client.action("CanaryIngress.routing.forward", p, p), weight=p
        )
    return out


def test_one_shot_action_sets(client: Client) -> None:
    client.write(("insert", uplink(client, action_profile_action_set=action_set(client, 1, 2))))
    (entry,) = entries(client, UPLINKS)
    assert [a.weight for a in entry.action.action_profile_action_set.action_profile_actions] == [
        1,
        2,
    ]
    for n in range(200):  # what is let go is made free: 512 members would not do otherwise
        client.write(
            ("modify", uplink(client, action_profile_action_set=action_set(client, 1 + n % 2, 3)))
        )
    client.write(("delete", uplink(client)))
    assert client.read(action_profile_member=p4runtime_pb2.ActionProfileMember()) == []
    direct = client.entry(UPLINKS, {"upward": 1}, "CanaryIngress.routing.forward", (1, 1))
    assert refused(
        client,
        ("insert", direct),
        ("insert", uplink(client, action_profile_group_id=3)),
        ("insert", uplink(client, action_profile_action_set=action_set(client))),
    ) == [code_pb2.INVALID_ARGUMENT, code_pb2.NOT_FOUND, code_pb2.INVALID_ARGUMENT]


# ---- arrays ----


def test_counters(client: Client) -> None:
    i = client.id("counters", "CanaryIngress.fault.dropped")
    data = p4runtime_pb2.CounterData(packet_count=3, byte_count=400)
    one = p4runtime_pb2.CounterEntry(counter_id=i, index=p4runtime_pb2.Index(index=7), data=data)
    client.write(("modify", p4runtime_pb2.Entity(counter_entry=one)))
    every = client.read(counter_entry=p4runtime_pb2.CounterEntry(counter_id=i))
    assert len(every) == 512 and every[7].counter_entry.data == data
    assert every[8].counter_entry.data == p4runtime_pb2.CounterData()
    wrong = p4runtime_pb2.CounterEntry(
        counter_id=i, index=p4runtime_pb2.Index(index=512), data=data
    )
    nameless = p4runtime_pb2.CounterEntry(counter_id=1, data=data)
    assert refused(
        client,
        ("modify", p4runtime_pb2.Entity(counter_entry=wrong)),
        ("insert", p4runtime_pb2.Entity(counter_entry=one)),
        ("modify", p4runtime_pb2.Entity(counter_entry=nameless)),
    ) == [code_pb2.OUT_OF_RANGE, code_pb2.INVALID_ARGUMENT, code_pb2.NOT_FOUND]


def test_direct_counters(client: Client) -> None:
    client.write(("insert", fault(client, 1)), ("insert", fault(client, 2)))
    one = p4runtime_pb2.DirectCounterEntry(table_entry=fault(client, 2).table_entry)
    one.data.packet_count, one.data.byte_count = 5, 600
    client.write(("modify", p4runtime_pb2.Entity(direct_counter_entry=one)))
    one.ClearField("data")
    (read,) = client.read(direct_counter_entry=one)
    assert (
        read.direct_counter_entry.data.packet_count,
        read.direct_counter_entry.data.byte_count,
    ) == (5, 600)
    every = p4runtime_pb2.DirectCounterEntry(
        table_entry=p4runtime_pb2.TableEntry(table_id=client.id("tables", FAULTS))
    )
    assert len(client.read(direct_counter_entry=every)) == 2
    counted = entries(client, FAULTS, counter_data=p4runtime_pb2.CounterData())
    assert sorted(e.counter_data.packet_count for e in counted) == [0, 5]
    assert not entries(client, FAULTS)[0].HasField("counter_data")
    plain = p4runtime_pb2.DirectCounterEntry(table_entry=client.route(1 << 24, 8, 1).table_entry)
    plain.data.packet_count = 1
    assert refused(client, ("modify", p4runtime_pb2.Entity(direct_counter_entry=plain))) == [
        code_pb2.INVALID_ARGUMENT
    ]


def register(
    client: Client, name: str, index: int | None = None, value: bytes | None = None
) -> Any:
    e = p4runtime_pb2.RegisterEntry(register_id=client.id("registers", name))
    if index is not None:
        e.index.index = index
    if value is not None:
        e.data.bitstring = value
    return e


def test_registers(client: Client) -> None:
    name = "CanaryIngress.hashpipe.stage0.flow_id"
    value = bytes(range(1, 14))
    client.write(
        ("modify", p4runtime_pb2.Entity(register_entry=register(client, name, 3, b"\0" + value)))
    )
    read = client.read(register_entry=register(client, name))
    assert [e.register_entry.data.bitstring for e in read] == 3 * [b"\0"] + [value] + 28 * [b"\0"]
    (one,) = client.read(register_entry=register(client, name, 3))
    assert one.register_entry.data.bitstring == value
    client.write(
        ("modify", p4runtime_pb2.Entity(register_entry=register(client, name, None, b"\0")))
    )
    assert (
        client.read(register_entry=register(client, name, 3))[0].register_entry.data.bitstring
        == b"\0"
    )
    assert refused(
        client,
        *[
            ("modify", p4runtime_pb2.Entity(register_entry=r))
            for r in (
                register(client, name, 32, b"\0"),
                register(client, name, 0, bytes([1, *bytes(13)])),
                register(client, name, 0),
            )
        ],
    ) == [code_pb2.OUT_OF_RANGE, code_pb2.OUT_OF_RANGE, code_pb2.INVALID_ARGUMENT]


# ---- packet replication ----


def replication(**what: Any) -> Any:
    return p4runtime_pb2.Entity(
        packet_replication_engine_entry=(p4runtime_pb2.PacketReplicationEngineEntry(**what))
    )


def test_clone_sessions_and_multicast_groups(client: Client) -> None:
    replicas = [p4runtime_pb2.Replica(egress_port=p, instance=1) for p in (1, 2)]
    session = p4runtime_pb2.CloneSessionEntry(session_id=5, replicas=replicas)
    group = p4runtime_pb2.MulticastGroupEntry(multicast_group_id=9, replicas=replicas)
    s, g = replication(clone_session_entry=session), replication(multicast_group_entry=group)
    client.write(("insert", s), ("insert", g))
    assert client.read(
        packet_replication_engine_entry=(p4runtime_pb2.PacketReplicationEngineEntry())
    ) == [s, g]
    session.packet_length_bytes = 64
    s = replication(clone_session_entry=session)
    client.write(("modify", s))
    assert client.read(
        packet_replication_engine_entry=(
            p4runtime_pb2.PacketReplicationEngineEntry(
                clone_session_entry=p4runtime_pb2.CloneSessionEntry(session_id=5)
            )
        )
    ) == [s]
    twice = replication(
        multicast_group_entry=p4runtime_pb2.MulticastGroupEntry(
            multicast_group_id=10, replicas=[replicas[0], replicas[0]]
        )
    )
    none = replication(clone_session_entry=p4runtime_pb2.CloneSessionEntry(session_id=0))
    assert refused(client, ("insert", s), ("insert", g), ("insert", twice), ("insert", none)) == [
        code_pb2.ALREADY_EXISTS,
        code_pb2.ALREADY_EXISTS,
        code_pb2.INVALID_ARGUMENT,
        code_pb2.INVALID_ARGUMENT,
    ]
    client.write(("delete", s), ("delete", g))
    assert refused(client, ("delete", s), ("modify", g)) == 2 * [code_pb2.NOT_FOUND]
