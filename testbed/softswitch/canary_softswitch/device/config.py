# SPDX-License-Identifier: Apache-2.0
"""A forwarding pipeline configuration: P4Info and BMv2 JSON, checked against each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.text_format import ParseError

from canary_softswitch.compiler.bmv2_program import DROP_PORT, Action, TableDef
from canary_softswitch.compiler.source import read_file, translate
from canary_softswitch.device.messages import (
    INVALID_ARGUMENT,
    UNIMPLEMENTED,
    ControllerHeader,
    P4Error,
    p4info_pb2,
)
from canary_softswitch.errors import InvalidProgram, SoftSwitchError, UnsupportedProgram
from canary_softswitch.runtime.program import Program

MATCH = p4info_pb2.MatchField.MatchType


@dataclass(frozen=True)
class FieldConfig:
    """A match field: its id and kind in P4Info, and its place in the program's key."""

    id: int
    name: str
    width: int
    kind: int
    place: int


@dataclass(frozen=True)
class ActionConfig:
    """An action: parameters as (id, name, bits) in P4Info's order, and the program's order."""

    id: int
    name: str
    params: tuple[tuple[int, str, int], ...]
    order: tuple[int, ...]  # place in params of each of the program's parameters


@dataclass(frozen=True)
class TableConfig:
    """A table of P4Info and its definition in the program."""

    id: int
    name: str
    definition: TableDef
    fields: tuple[FieldConfig, ...]
    prioritized: bool
    actions: dict[int, int]  # action id to scope
    const_default: bool
    const: bool
    counter: int  # id of the direct counter or 0
    meter: int  # id of the direct meter or 0
    profile: int  # id of the action profile or 0


@dataclass(frozen=True)
class ArrayConfig:
    """A counter, meter or register array of P4Info: ``size`` elements, of ``width`` bits."""

    kind: str
    id: int
    name: str
    size: int
    width: int = 0
    unit: int = 0


@dataclass(frozen=True)
class ProfileConfig:
    """An action profile of P4Info: its limits, and the ids of the tables that use it."""

    id: int
    name: str
    size: int
    max_group_size: int
    selector: bool
    tables: tuple[int, ...]


@dataclass(frozen=True)
class DigestConfig:
    """A digest: whether its members stand in a struct, a tuple or alone."""

    id: int
    name: str
    shape: str


def _same(theirs: list[str], ours: list[str], what: str) -> list[int]:
    """Return the index in ``ours`` of each name of ``theirs``; by order if the names differ."""
    if len(theirs) != len(ours):
        raise P4Error(
            INVALID_ARGUMENT, f"{what}: P4Info has {len(theirs)}, the program {len(ours)}"
        )
    places = {name: place for place, name in enumerate(ours)}
    if len(places) == len(ours) and sorted(theirs) == sorted(ours):
        return [places[name] for name in theirs]
    return list(range(len(ours)))


DEVICE_DATA = 3  # field of p4.tmp.P4DeviceConfig that has the program


def unwrapped(device_config: bytes) -> bytes:
    """Return the BMv2 JSON of a p4_device_config.

    p4lang's tutorials and p4-utils wrap it in p4.tmp.P4DeviceConfig; anything else is returned
    unchanged.
    """
    at = 0
    try:
        while at < len(device_config):
            tag, at = _varint(device_config, at)
            size = {1: 8, 5: 4}.get(tag & 7)
            if tag & 7 == 0:
                _, at = _varint(device_config, at)
                continue
            if tag & 7 == 2:
                size, at = _varint(device_config, at)
            if size is None or at + size > len(device_config):
                return device_config
            if tag >> 3 == DEVICE_DATA:
                return device_config[at : at + size]
            at += size
    except IndexError:
        pass
    return device_config


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number in protobuf's wire format, and the index of the byte behind it."""
    value = shift = 0
    while shift < _VARINT_BITS:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise IndexError  # as a number that is cut off: this is no such message


_VARINT_BITS = 70
"""Bits of the ten bytes that a number of protobuf may take."""


@lru_cache(maxsize=1)
def _program(device_config: bytes, drop_port: int) -> Program:
    """Return the program of a BMv2 JSON, not compiled; the last one is cached for other
    switches."""
    try:
        source = translate(device_config, "p4_device_config", drop_port=drop_port)
        return Program(source, None, compiled=False)
    except UnsupportedProgram as e:
        raise P4Error(UNIMPLEMENTED, str(e)) from None
    except SoftSwitchError as e:
        raise P4Error(INVALID_ARGUMENT, str(e)) from None


class PipelineConfig:
    """The configuration of a SetForwardingPipelineConfig request, checked and not compiled yet.

    Errors are ``P4Error``: INVALID_ARGUMENT for a bad P4Info or JSON or when they do not
    belong together, UNIMPLEMENTED for a program the switch cannot run. ``program`` is what the
    device config compiles to, if that is known already.
    """

    def __init__(
        self,
        p4info: Any,
        device_config: bytes,
        cookie: int | None = None,
        drop_port: int = DROP_PORT,
        program: Program | None = None,
    ) -> None:
        if not device_config:
            raise P4Error(INVALID_ARGUMENT, "p4_device_config is empty: it must be BMv2 JSON")
        self.p4info = p4info
        self.device_config = device_config
        self.cookie = cookie
        self.code = unwrapped(device_config)
        self.program = program or _program(self.code, drop_port)
        self._definitions = {t.name: t for t in self.program.definition.tables}
        self._header_types = {
            tuple(f.name for f in h.type.fields): h.type
            for h in reversed(self.program.definition.headers.values())
            if not h.metadata
        }
        ours = self._program_actions()
        self.actions = {
            a.preamble.id: self._action(a, ours.get(a.preamble.id)) for a in p4info.actions
        }
        self.direct_counters = {c.preamble.id: c for c in p4info.direct_counters}
        self.direct_meters = {m.preamble.id: m for m in p4info.direct_meters}
        self.profiles = {a.preamble.id: self._profile(a) for a in p4info.action_profiles}
        self.tables = {t.preamble.id: self._table(t) for t in p4info.tables}
        self.counters = {
            c.preamble.id: self._array("counter", c, self.program.counters, unit=c.spec.unit)
            for c in p4info.counters
        }
        self.meters = {
            m.preamble.id: self._array("meter", m, self.program.meters) for m in p4info.meters
        }
        self.registers = {r.preamble.id: self._register(r) for r in p4info.registers}
        self.digests = {d.preamble.id: self._digest(d) for d in p4info.digests}
        self.headers = {
            h.preamble.name: ControllerHeader(self._controller_fields(h))
            for h in p4info.controller_packet_metadata
        }

    def same_as(self, other: PipelineConfig) -> bool:
        """Return True if another configuration has the same program and the same ids."""
        return self.device_config == other.device_config and self.p4info == other.p4info

    def _known(self, what: str, name: str, known: Any) -> Any:
        if name not in known:
            raise P4Error(INVALID_ARGUMENT, f"P4Info's {what} {name!r} is not in the program")
        return known[name]

    def _translated(self, named: Any) -> bool:
        """Return True if a type of P4Info is translated, so that controllers use another width."""
        new = self.p4info.type_info.new_types
        return named.name in new and new[named.name].WhichOneof("representation") == (
            "translated_type"
        )

    def _check_width(self, described: Any, width: int, what: str) -> None:
        """Check that a value of P4Info has the program's width.

        A translated type may have another width (``sdn_bitwidth``), but values that are written
        must fit into the program's.
        """
        if described.bitwidth == width:
            return
        if not self._translated(described.type_name):
            raise P4Error(INVALID_ARGUMENT, f"{what} has a different width than in the program")
        if not described.bitwidth:
            raise P4Error(UNIMPLEMENTED, f"{what}: types translated to strings are not supported")

    def _program_actions(self) -> dict[int, Action]:
        """Return the program's action for each id of P4Info.

        Names are unique in a table but not in the program: p4c writes an action that is also called
        directly a second time, without parameters.
        """
        definition = self.program.definition
        tables = {
            t.name: {definition.actions[i].name: definition.actions[i] for i in t.action_ids}
            for t in definition.tables
        }
        names = {a.preamble.id: a.preamble.name for a in self.p4info.actions}
        found = {
            r.id: tables[t.preamble.name][names[r.id]]
            for t in self.p4info.tables
            for r in t.action_refs
            if names.get(r.id) in tables.get(t.preamble.name, ())
        }
        by_name = {a.name: a for a in definition.actions.values()}
        return {i: by_name[name] for i, name in names.items() if name in by_name} | found

    def _action(self, a: Any, ours: Action | None) -> ActionConfig:
        name = a.preamble.name
        if ours is None:  # p4c leaves out actions nothing calls
            params = tuple((p.id, p.name, p.bitwidth) for p in a.params)
            return ActionConfig(a.preamble.id, name, params, tuple(range(len(params))))
        places = _same(
            [p.name for p in a.params],
            [p[0] for p in ours.params],
            f"parameters of action {name!r}",
        )
        params = tuple(
            (p.id, p.name, ours.params[place][1]) for p, place in zip(a.params, places, strict=True)
        )
        order = [0] * len(params)
        for i, place in enumerate(places):
            order[place] = i
            what = f"parameter {params[i][1]!r} of action {name!r}"
            self._check_width(a.params[i], params[i][2], what)
        return ActionConfig(a.preamble.id, name, params, tuple(order))

    def _table(self, t: Any) -> TableConfig:
        name = t.preamble.name
        definition: TableDef = self._known("table", name, self._definitions)
        places = _same(
            [f.name for f in t.match_fields],
            [k.name for k in definition.key],
            f"match fields of table {name!r}",
        )
        fields = []
        for f, place in zip(t.match_fields, places, strict=True):
            width = definition.key[place].width
            self._check_width(f, width, f"match field {f.name!r} of table {name!r}")
            fields.append(FieldConfig(f.id, f.name, width, f.match_type, place))
        known = self.program.definition.actions
        actions = {known[i].name: i for i in definition.action_ids}
        for r in t.action_refs:
            if r.id not in self.actions:
                raise P4Error(INVALID_ARGUMENT, f"table {name!r}: no action has the id {r.id}")
            self._known(f"action of table {name!r}", self.actions[r.id].name, actions)
        counters = [r for r in t.direct_resource_ids if r in self.direct_counters]
        meters = [r for r in t.direct_resource_ids if r in self.direct_meters]
        return TableConfig(
            t.preamble.id,
            name,
            definition,
            tuple(fields),
            any(f.kind in (MATCH.TERNARY, MATCH.RANGE, MATCH.OPTIONAL) for f in fields),
            {r.id: r.scope for r in t.action_refs},
            bool(t.const_default_action_id),
            t.is_const_table,
            counters[0] if counters else 0,
            meters[0] if meters else 0,
            t.implementation_id,
        )

    def _profile(self, a: Any) -> ProfileConfig:
        name = a.preamble.name
        self._known("action profile", name, self.program.definition.profiles)
        return ProfileConfig(
            a.preamble.id, name, a.size, a.max_group_size, a.with_selector, tuple(a.table_ids)
        )

    def _array(self, what: str, a: Any, known: Any, width: int = 0, unit: int = 0) -> ArrayConfig:
        ours = self._known(what, a.preamble.name, known)
        return ArrayConfig(what, a.preamble.id, a.preamble.name, ours.size, width, unit)

    def _register(self, r: Any) -> ArrayConfig:
        ours = self._known("register", r.preamble.name, self.program.registers)
        width = self._width(r.type_spec, ours.width, f"register {r.preamble.name!r}")
        return self._array("register", r, self.program.registers, width)

    def _width(self, spec: Any, width: int, what: str) -> int:
        """Return the bits of a type, which are ``width`` in the program."""
        known = self.p4info.type_info.new_types
        for _ in range(len(known) + 1):
            if spec.WhichOneof("type_spec") != "new_type":
                break
            if spec.new_type.name not in known or self._translated(spec.new_type):
                return width
            spec = known[spec.new_type.name].original_type
        else:
            raise P4Error(INVALID_ARGUMENT, f"{what}: its type is defined by itself")
        if spec.WhichOneof("type_spec") == "bool":
            return 1
        kind = spec.bitstring.WhichOneof("type_spec")
        if kind not in ("bit", "int"):
            raise P4Error(UNIMPLEMENTED, f"{what}: only bit and int elements are supported")
        return getattr(spec.bitstring, kind).bitwidth

    def _controller_fields(self, header: Any) -> list[tuple[int, str, int]]:
        """Return the id, name and width in bits of each field of a controller header."""
        same = self._header_types.get(tuple(m.name for m in header.metadata))
        fields: list[tuple[int, str, int]] = []
        for i, m in enumerate(header.metadata):
            width = m.bitwidth
            if self._translated(m.type_name) and same is not None:
                width = same.fields[i].width
            fields.append((m.id, m.name, width))
        return fields

    def _digest(self, d: Any) -> DigestConfig:
        name, spec = d.preamble.name, d.type_spec
        ours = self._known("digest", name, self.program.digests)
        shape = spec.WhichOneof("type_spec")
        if shape == "struct":
            info = self.p4info.type_info.structs
            members = (
                [m.type_spec for m in info[spec.struct.name].members]
                if spec.struct.name in info
                else []
            )
        elif shape == "tuple":
            members = list(spec.tuple.members)
        else:
            shape, members = "bitstring", [spec]
        theirs = tuple(w for _, w in ours.fields)
        widths = tuple(
            self._width(m, w, f"digest {name!r}") for m, w in zip(members, theirs, strict=False)
        )
        if widths != theirs or len(members) != len(theirs):
            raise P4Error(INVALID_ARGUMENT, f"the members of digest {name!r} are not the program's")
        return DigestConfig(d.preamble.id, name, shape)


SUFFIXES = (".p4info.txtpb", ".p4info.txt", ".p4info.pb.txt", ".p4.p4info.txtpb", ".p4.p4info.txt")


def read_config(path: str, drop_port: int) -> Callable[[], PipelineConfig]:
    """Read a BMv2 JSON file and a P4Info file beside it; return a function that checks one against
    the other.

    Packets with the egress port number ``drop_port`` are dropped. Without a P4Info file the program
    runs with the entries that it declares and can be controlled by Thrift, but P4Runtime has no
    entities.

    Raises:
        InvalidProgram: A file cannot be read, or has no program that is valid.
        UnsupportedProgram: The switch cannot run the program.
    """
    code = read_file(path)
    p4info = _p4info_beside(Path(path))
    source = translate(code, path, drop_port=drop_port)  # reports errors at once
    return lambda: PipelineConfig(p4info, code, program=Program(source, None, compiled=False))


MAX_P4INFO = 4 << 20
"""The most bytes of a P4Info file."""


def _p4info_beside(json: Path) -> Any:
    """Return the P4Info of the first file of `SUFFIXES` beside a program; empty without one.

    Raises:
        InvalidProgram: It cannot be read, is too large, or is no P4Info.
    """
    p4info = p4info_pb2.P4Info()
    beside = [json.with_name(json.name.removesuffix(".json") + s) for s in SUFFIXES]
    for file in beside:
        if file.is_file():
            try:
                with file.open("rb") as opened:
                    data = opened.read(MAX_P4INFO + 1)
                if len(data) > MAX_P4INFO:
                    raise ValueError(f"it has more than {MAX_P4INFO >> 20} MiB")
                text_format.Parse(data.decode("utf-8"), p4info)
            except RecursionError:
                raise InvalidProgram(f"{file} has messages that are nested too deeply") from None
            except (OSError, ValueError, ParseError) as e:  # a number may be out of its range
                reason = str(e).splitlines()[0]
                raise InvalidProgram(f"cannot read {file}: {reason}") from None
            break
    return p4info
