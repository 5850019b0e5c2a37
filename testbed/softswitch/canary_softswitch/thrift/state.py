# SPDX-License-Identifier: Apache-2.0
"""BMv2's service "standard": the state of a switch, parameters of hashes, learning lists."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

from canary_softswitch.compiler.bmv2_program import KeyField, TableDef
from canary_softswitch.device.device import Device
from canary_softswitch.device.notifications import DigestState
from canary_softswitch.device.pipeline import Pipeline
from canary_softswitch.runtime.instance import MeterRates
from canary_softswitch.runtime.switch import CrcParameters, Switch
from canary_softswitch.runtime.tables import MAX_PRIORITY, Entry, Table
from canary_softswitch.thrift.switch import SimpleSwitch
from canary_softswitch.thrift.values import (
    NOTHING,
    STRING,
    Arguments,
    BmError,
    Call,
    CrcErrorCode,
    LearnErrorCode,
    Result,
    text,
)

FORM = "06062016_0"  # of BMv2's saved states
KINDS = ("range", "valid", "exact", "lpm", "ternary", "optional")
"""Match kinds in the order in which BMv2 concatenates the fields of a key."""
GROUP = 1 << 24  # of a reference to a member or group
NOWHERE = "__NULL__"  # the end of a control block
MILLISECOND = 1_000_000  # ns
NEVER = 1 << 62  # ns


class State:
    """BMv2's calls on the state of a whole switch, by name in ``calls``."""

    def __init__(self, device: Device, mirrors: SimpleSwitch) -> None:
        self.device = device
        self._mirrors = mirrors
        self.calls: dict[str, Call] = {
            "bm_reset_state": self._reset,
            "bm_serialize_state": self._serialize,
            "bm_set_crc16_custom_parameters": lambda a: self._set_crc(a, 16),
            "bm_set_crc32_custom_parameters": lambda a: self._set_crc(a, 32),
            "bm_set_toeplitz_hash_key": lambda a: self._set_crc(a, None),
            "bm_learning_ack": self._acknowledge,
            "bm_learning_ack_buffer": self._acknowledge,
            "bm_learning_set_timeout": self._set_timeout,
            "bm_learning_set_buffer_size": self._set_size,
        }

    # ---- all of it ----

    def _reset(self, a: Arguments) -> Result:
        """Reset the state, including const entries, except what BMv2 keeps.

        It keeps mirror sessions, value sets, parameters of CRCs and digests.
        """
        with self.device.lock:
            old = self.device.pipeline
            if old is None:
                return NOTHING
            new = self.device.pipeline_of(old.config)
            for table in new.tables.values():
                table.table.clear()
            for name in old.switch.program.value_sets:
                new.switch.set_value_set(name, old.switch.value_set(name))
            for name, parameters in old.switch.crcs.items():
                new.switch.set_crc(name, parameters)
            new.digests.configure_as(old.digests)
            sessions = self._mirrors.sessions()
            self.device.replace(new)
            self._mirrors.restore(sessions)
        return NOTHING

    def _serialize(self, a: Arguments) -> Result:
        """Return tables, action profiles and meters in BMv2's format.

        The program's MD5 is in hexadecimal; BMv2 writes 16 bytes, with which its own client fails.
        """
        with self.device.lock:
            pipeline = self.device.pipeline
            lines = [FORM]
            if pipeline is not None:
                timeouts = {
                    t.config.name: {
                        s.handle: s.timeout_ns // MILLISECOND for s in t.entries.values()
                    }
                    for t in pipeline.tables.values()
                    if t.config.definition.aged
                }
                lines.append(hashlib.md5(pipeline.config.code).hexdigest())
                with self.device.ports.lock():
                    lines += _saved(pipeline, timeouts)
        return STRING, "\n".join(lines) + "\n"

    # ---- hashes ----

    def _set_crc(self, a: Arguments, width: int | None) -> Result:
        """Set the parameters of a custom CRC of ``width`` bits.

        ``width`` None means the key of a Toeplitz hash, which no v1model program has.
        """
        name, given = text(a, 2), a.get(3, {})
        with self.device.lock:
            pipeline = self.device.pipeline
            definition = pipeline.config.program.definition if pipeline else None
            if definition is None or a.get(1, 0) or name not in definition.calculations:
                raise BmError(CrcErrorCode.INVALID_CALCULATION_NAME)
            if width is None or definition.custom_crcs.get(name) != width:
                raise BmError(CrcErrorCode.WRONG_TYPE_CALCULATION)
            assert pipeline is not None
            full = (1 << width) - 1
            parameters = CrcParameters(
                given.get(1, 0) & full,
                given.get(2, 0) & full,
                given.get(3, 0) & full,
                given.get(4, False),
                given.get(5, False),
            )
            with self.device.ports.lock():
                pipeline.switch.set_crc(name, parameters)
        return NOTHING

    # ---- learning lists ----

    def _digest(self, a: Arguments) -> tuple[Pipeline, DigestState | None]:
        """Return the pipeline, and the digest of a learning list if P4Runtime knows it."""
        pipeline = self.device.pipeline
        lists = pipeline.config.program.definition.learn_lists if pipeline else {}
        if pipeline is None or a.get(1, 0) or a.get(2, 0) not in lists:
            raise BmError(LearnErrorCode.INVALID_LIST_ID)
        return pipeline, pipeline.digests.named(lists[a.get(2, 0)].name)

    def _acknowledge(self, a: Arguments) -> Result:
        """Acknowledge a list that was sent, or those of its samples that argument 4 lists."""
        with self.device.lock:
            pipeline, digest = self._digest(a)
            if digest is not None:
                pipeline.digests.acknowledge(digest, a.get(3, 0), a.get(4))
        return NOTHING

    def _set_timeout(self, a: Arguments) -> Result:
        with self.device.lock:
            _, digest = self._digest(a)
            if digest is not None:  # 0: a list waits until it is full
                digest.timeout_ns = (a.get(3, 0) & 0xFFFFFFFF) * MILLISECOND or NEVER
        self.device.wake()
        return NOTHING

    def _set_size(self, a: Arguments) -> Result:
        with self.device.lock:
            _, digest = self._digest(a)
            if digest is not None:
                digest.size = max(1, a.get(3, 0))
        self.device.wake()
        return NOTHING


def _saved(pipeline: Pipeline, timeouts: dict[str, dict[int, int]]) -> Iterator[str]:
    """Yield the lines of a saved state after its head; ``timeouts``: of entries by table and
    handle, in ms."""
    switch, program = pipeline.switch, pipeline.config.program.definition
    for definition in program.tables:
        yield from _saved_table(switch.table(definition.name), timeouts.get(definition.name, {}))
    for profile in program.profiles.values():
        one = switch.action_profile(profile.name)
        users = [t for t in program.tables if t.profile == profile.name]
        numbers = {program.actions[i].name: i for t in users for i in t.action_ids}
        yield from (str(len(one.members)), str(len(one.members)))
        for member, (action, values) in sorted(one.members.items()):
            number = numbers[action]
            yield from (str(member), *_saved_action(number, values), NOWHERE)
        for uses in _uses(switch, profile.name):
            yield from (str(len(uses)), *map(str, uses))
        yield str(len(one.groups))
        for group, members in sorted(one.groups.items()):
            yield from (str(group), str(len(members)), *map(str, members))
    for name, meters in program.meters.items():
        for i in range(meters.size):
            yield from _saved_meter(switch.meter(name, i))


def _uses(switch: Switch, profile: str) -> tuple[list[int], list[int]]:
    """Return how often each member and each group of an action profile is used."""
    one = switch.action_profile(profile)
    used: Counter[tuple[str, int | None]] = Counter(
        ("member", m) for members in one.groups.values() for m in members
    )
    for definition in switch.program.definition.tables:
        if definition.profile == profile:
            table = switch.table(definition.name)
            for e in table.entries():
                used["group", e.group] += e.group is not None
                used["member", e.member] += e.member is not None
            default = table.default()
            if default is not None:
                used[default[0], default[1]] += 1
    members = range(max(one.members, default=-1) + 1)
    groups = range(max(one.groups, default=-1) + 1)
    return [used["member", m] for m in members], [used["group", g] for g in groups]


def _saved_table(table: Table, timeouts: dict[int, int]) -> Iterator[str]:
    definition = table.definition
    entries = table.entries()
    yield from (definition.name, _miss(definition), str(len(entries)))
    for e in entries:
        yield from (str(e.handle), "0", *_saved_key(table, e))
        if definition.kind == "simple":
            yield from _saved_action(e.action_id, e.params)
            yield _next(definition, e.action)
        else:
            yield str(e.member if e.group is None else e.group | GROUP)
        yield str(timeouts.get(e.handle, 0))
    if definition.meter:
        handles = {e.handle for e in entries}
        for handle in range(definition.max_size):
            yield from _saved_meter(table.meter(handle) if handle in handles else None)
    default = table.default()
    if definition.kind == "simple":
        if default is None:
            yield from ("-1", _miss(definition))
        else:
            _, name, values = default
            yield from _saved_action(table.default_action(), values)
            ways = definition.next_tables
            yield _miss(definition) if "__MISS__" in ways else _next(definition, name)
    elif default is None:
        yield "0"
    else:
        yield from ("1", str(default[1] | (GROUP if default[0] == "group" else 0)))


def _miss(definition: TableDef) -> str:
    """Return the node that a table goes to after a miss."""
    return definition.next_tables.get("__MISS__", definition.base_default_next) or NOWHERE


def _next(definition: TableDef, action: str) -> str:
    """Return the node that a table goes to after an action that an entry runs."""
    ways = definition.next_tables
    return ways.get("__HIT__", ways.get(action, definition.base_default_next)) or NOWHERE


def _saved_action(number: int, values: tuple[int, ...]) -> Iterator[str]:
    yield from (str(number), str(len(values)), *(f"{v:x}" for v in values))


def _saved_meter(rates: MeterRates | None) -> Iterator[str]:
    if rates is None:
        yield "0"
    else:
        yield "1"
        yield f"{rates.peak_rate:g} {rates.peak_burst}"
        yield f"{rates.committed_rate:g} {rates.committed_burst}"


def _saved_key(table: Table, e: Entry) -> Iterator[str]:
    """The key of an entry, and what its match kind has besides: prefix length, or mask and
    priority."""
    fields = sorted(
        zip(table.definition.key, e.as_written, strict=True), key=lambda f: KINDS.index(f[0].match)
    )
    yield "".join(_octets(k, _value(k, m)) for k, m in fields)
    if table.layout.kind == "lpm":
        fixed = sum(8 * _size(k) for k, _ in fields if k.match != "lpm")
        yield str(fixed + next(m[1] for k, m in fields if k.match == "lpm"))
    elif table.layout.kind == "ternary":
        assert e.priority is not None
        yield "".join(_octets(k, _mask(k, m)) for k, m in fields)
        yield str(MAX_PRIORITY - e.priority)


def _size(k: KeyField) -> int:
    return (k.width + 7) // 8


def _octets(k: KeyField, value: int) -> str:
    return value.to_bytes(_size(k), "big").hex()


def _value(k: KeyField, match: object) -> int:
    first = match[0] if isinstance(match, tuple) else match
    return int(first) if isinstance(first, int) else 0


def _mask(k: KeyField, match: object) -> int:
    """Return the mask of a field; for a range, return its last value."""
    full = (1 << k.width) - 1
    if k.match == "optional" or not isinstance(match, tuple):
        return 0 if match is None else full
    return full ^ full >> match[1] if k.match == "lpm" else match[1]
