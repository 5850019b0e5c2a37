# SPDX-License-Identifier: Apache-2.0
"""Requests of P4Runtime that are right, and ways to make them wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from canary_softswitch.device.messages import p4info_pb2, p4runtime_pb2

NUMBERS = (0, 1, 2, 3, 7, 64, 255, 256, 511, 512, 4096, 65535, 65536)
EDGES = (1 << 31, 1 << 32, 1 << 63, 1 << 64)
BYTES = (b"", b"\0", b"\1", b"\xff", b"\0\0\0\5", b"\xff" * 16, b"\1" + bytes(40), bytes(5000))
TEXTS = ("", "#abc", "#1", "x", "é\n%", "a" * 3000)
LIMITS = {  # of the numbers of a field, by its cpp_type
    1: (-(1 << 31), (1 << 31) - 1),
    2: (-(1 << 63), (1 << 63) - 1),
    3: (0, (1 << 32) - 1),
    4: (0, (1 << 64) - 1),
    8: (-(1 << 31), (1 << 31) - 1),  # an enum of proto3 takes any number
}


def _table_entry(info: Any, table: Any) -> Any:
    entry = p4runtime_pb2.TableEntry(table_id=table.preamble.id)
    for f in table.match_fields:
        one, m = (1).to_bytes((f.bitwidth + 7) // 8, "big"), entry.match.add(field_id=f.id)
        if f.match_type == p4info_pb2.MatchField.LPM:
            m.lpm.value, m.lpm.prefix_len = one, f.bitwidth
        elif f.match_type == p4info_pb2.MatchField.TERNARY:
            m.ternary.value = m.ternary.mask = one
        elif f.match_type == p4info_pb2.MatchField.RANGE:
            m.range.low = m.range.high = one
        elif f.match_type == p4info_pb2.MatchField.OPTIONAL:
            m.optional.value = one
        else:
            m.exact.value = one
    if any(f.match_type != p4info_pb2.MatchField.EXACT for f in table.match_fields):
        entry.priority = 1
    action = next(a for a in info.actions if a.preamble.id == table.action_refs[0].id)
    if table.implementation_id:
        entry.action.action_profile_member_id = 1
    else:
        _action(action, entry.action.action)
    return entry


def _action(action: Any, message: Any) -> None:
    message.action_id = action.preamble.id
    for p in action.params:
        message.params.add(param_id=p.id, value=b"\1")


def entities(info: Any) -> Iterator[Any]:
    """Yield an entity of each kind that a P4Info has, most of which can be written."""
    for a in info.action_profiles:
        table = next(t for t in info.tables if t.preamble.id == a.table_ids[0])
        action = next(x for x in info.actions if x.preamble.id == table.action_refs[0].id)
        member = p4runtime_pb2.ActionProfileMember(action_profile_id=a.preamble.id, member_id=1)
        _action(action, member.action)
        yield p4runtime_pb2.Entity(action_profile_member=member)
        group = p4runtime_pb2.ActionProfileGroup(action_profile_id=a.preamble.id, group_id=1)
        group.members.add(member_id=1, weight=2)
        yield p4runtime_pb2.Entity(action_profile_group=group)
    for t in info.tables:
        entry = _table_entry(info, t)
        yield p4runtime_pb2.Entity(table_entry=entry)
        e = p4runtime_pb2.Entity()
        e.direct_counter_entry.table_entry.CopyFrom(entry)
        e.direct_counter_entry.data.packet_count = 1
        yield e
        e = p4runtime_pb2.Entity()
        e.direct_meter_entry.table_entry.CopyFrom(entry)
        e.direct_meter_entry.config.CopyFrom(p4runtime_pb2.MeterConfig(cir=1, pir=2))
        yield e
    e = p4runtime_pb2.Entity()
    for x in list(info.counters)[:2]:
        e.counter_entry.counter_id, e.counter_entry.index.index = x.preamble.id, 1
        e.counter_entry.data.packet_count = e.counter_entry.data.byte_count = 1
        yield e
    for x in list(info.registers)[:3]:
        e.register_entry.register_id, e.register_entry.index.index = x.preamble.id, 1
        e.register_entry.data.bitstring = b"\1"
        yield e
    for x in info.meters:
        e.meter_entry.meter_id, e.meter_entry.index.index = x.preamble.id, 1
        e.meter_entry.config.CopyFrom(p4runtime_pb2.MeterConfig(cir=1, cburst=1, pir=2, pburst=1))
        yield e
    for x in info.digests:
        e.digest_entry.digest_id = x.preamble.id
        e.digest_entry.config.max_list_size = 10
        yield e
    session = e.packet_replication_engine_entry.clone_session_entry
    session.session_id = 5
    session.replicas.add(egress_port=1, instance=1)
    yield e
    group = e.packet_replication_engine_entry.multicast_group_entry
    group.multicast_group_id = 5
    group.replicas.add(egress_port=1, instance=1)
    yield e


class Mutator:
    """Changes messages at random; ``seed`` says how."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def number(self, kind: int, old: int) -> int:
        low, high = LIMITS[kind]
        near = self.rng.choice((old, *NUMBERS, *EDGES, low, high)) + self.rng.choice((-1, 0, 0, 1))
        return max(low, min(near * self.rng.choice((1, 1, 1, -1)), high))

    def scalar(self, field: Any, old: Any) -> Any:
        if field.cpp_type in LIMITS:
            return self.number(field.cpp_type, old)
        if field.cpp_type == field.CPPTYPE_BOOL:
            return self.rng.random() < 0.5
        if field.type == field.TYPE_STRING:
            return self.rng.choice(TEXTS)
        if field.type == field.TYPE_BYTES:
            return self.rng.choice((*BYTES, old + b"\1", old[1:], self.rng.randbytes(4)))
        return self.rng.choice((0.0, -1.0, 1e300, float("nan"), float("inf")))

    def mutate(self, message: Any) -> Any:
        """Change a message in one place and return it. Every place is as likely."""
        place, field = self.rng.choice(list(self._places(message)))
        if field.label == field.LABEL_REPEATED:
            self._repeated(place, field)
        elif field.message_type is not None:
            part = getattr(place, field.name)
            part.SetInParent()
            if self.rng.random() < 0.2:
                place.ClearField(field.name)
        else:
            setattr(place, field.name, self.scalar(field, getattr(place, field.name)))
        return message

    def _places(self, message: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the fields that are set, and of each message one that may not be."""
        fields = [f for f in message.DESCRIPTOR.fields if not _is_map(f)]
        if fields:
            yield message, self.rng.choice(fields)
        for field, value in message.ListFields():
            if _is_map(field):
                continue
            yield message, field
            if field.message_type is not None:
                parts = value if field.label == field.LABEL_REPEATED else (value,)
                for part in parts:
                    yield from self._places(part)

    def _repeated(self, message: Any, field: Any) -> None:
        values = getattr(message, field.name)
        if len(values) and self.rng.random() < 0.3:
            del values[self.rng.randrange(len(values))]
        elif field.message_type is None:
            example = b"" if field.type == field.TYPE_BYTES else 0
            values.append(self.scalar(field, self.rng.choice(values) if len(values) else example))
        elif len(values) and self.rng.random() < 0.7:
            copy = type(values[0])()
            copy.CopyFrom(self.rng.choice(values))
            values.add().CopyFrom(copy)
        else:
            values.add()


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
