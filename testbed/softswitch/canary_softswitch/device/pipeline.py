# SPDX-License-Identifier: Apache-2.0
"""The state of a running switch behind P4Runtime's Write and Read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from canary_softswitch.device import arrays
from canary_softswitch.device.arrays import only_modify
from canary_softswitch.device.config import ArrayConfig, PipelineConfig
from canary_softswitch.device.groups import ProfileState, Replication
from canary_softswitch.device.messages import (
    INTERNAL,
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    ControllerHeader,
    P4Error,
    one_of,
    p4runtime_pb2,
)
from canary_softswitch.device.notifications import Ageing, Digests
from canary_softswitch.device.table_entries import TableState
from canary_softswitch.device.table_reads import TableReader
from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.ports.ports import Ports
from canary_softswitch.runtime.switch import Switch

KINDS = {
    p4runtime_pb2.Update.INSERT: "INSERT",
    p4runtime_pb2.Update.MODIFY: "MODIFY",
    p4runtime_pb2.Update.DELETE: "DELETE",
}


class Pipeline:
    """A switch that runs a configuration, written and read by P4Runtime entities.

    Not thread safe; the switch itself is guarded by the lock of ``ports``.
    """

    def __init__(self, config: PipelineConfig, ports: Ports, seed: int) -> None:
        self.config = config
        self.ports = ports
        config.program.compile_quickly()  # unless it was compiled before
        try:
            self.switch = switch = Switch(config.program, seed, ports.priorities)
        except SoftSwitchError as e:  # there is no memory for its state
            raise P4Error(RESOURCE_EXHAUSTED, str(e)) from None
        self.profiles = {
            i: ProfileState(c, config, switch, ports) for i, c in config.profiles.items()
        }
        self.tables = {
            i: TableState(c, config, switch, ports, self.profiles.get(c.profile))
            for i, c in config.tables.items()
        }
        self._readers = {i: TableReader(t) for i, t in self.tables.items()}
        self.replication = Replication(switch, ports)
        self.digests = Digests(config.digests, switch, ports)
        self.ageing = Ageing(self._readers.values())
        self.packet_in = config.headers.get("packet_in", ControllerHeader())
        self.packet_out = config.headers.get("packet_out", ControllerHeader())
        self._writers: dict[str, Callable[[str, Any], None]] = {
            "table_entry": self._write_table,
            "action_profile_member": lambda k, e: self._profile(e).write_member(k, e),
            "action_profile_group": lambda k, e: self._profile(e).write_group(k, e),
            "counter_entry": self._write_counter,
            "direct_counter_entry": self._write_direct_counter,
            "meter_entry": self._write_meter,
            "direct_meter_entry": self._write_direct_meter,
            "register_entry": self._write_register,
            "packet_replication_engine_entry": self.replication.write,
            "digest_entry": self.digests.write,
        }

    # ---- writing ----

    def write(self, update: Any) -> None:
        """Apply an Update; raise ``P4Error`` if it is refused, and then nothing has changed."""
        kind = KINDS.get(update.type)
        if kind is None:
            raise P4Error(INVALID_ARGUMENT, "the type of the update is missing")
        which = update.entity.WhichOneof("entity")
        if which is None:
            raise P4Error(INVALID_ARGUMENT, "the entity of the update is missing")
        writer = self._writers.get(which)
        if writer is None:
            raise P4Error(UNIMPLEMENTED, f"{which} is not supported")
        try:
            writer(kind, getattr(update.entity, which))
        except SoftSwitchError as e:
            raise P4Error(INTERNAL, str(e)) from None

    def _write_table(self, kind: str, entry: Any) -> None:
        table = self.tables.get(entry.table_id)
        if table is None:
            one_of("table", self.tables, entry.table_id)
        else:
            table.write(kind, entry)

    def _profile(self, entity: Any) -> ProfileState:
        one_of("action profile", self.profiles, entity.action_profile_id)
        return self.profiles[entity.action_profile_id]

    def _array(self, what: str, known: dict[int, ArrayConfig], id_: int) -> tuple[ArrayConfig, Any]:
        """Return the configuration and the elements of a counter or register array."""
        one_of(what, known, id_)
        view = self.switch.counter if what == "counter" else self.switch.register
        return known[id_], view(known[id_].name)

    def _write_counter(self, kind: str, entry: Any) -> None:
        config, array = self._array("counter", self.config.counters, entry.counter_id)
        arrays.write_counter(config, array, self.ports, kind, entry)

    def _write_register(self, kind: str, entry: Any) -> None:
        config, array = self._array("register", self.config.registers, entry.register_id)
        arrays.write_register(config, array, self.ports, kind, entry)

    def _write_meter(self, kind: str, entry: Any) -> None:
        one_of("meter", self.config.meters, entry.meter_id)
        config = self.config.meters[entry.meter_id]
        arrays.write_meter(config, self.switch, self.ports, kind, entry)

    def _direct(self, entry: Any, what: str) -> TableState:
        """Return the table of a direct resource's entry, which must have one."""
        one_of("table", self.tables, entry.table_entry.table_id)
        table = self.tables[entry.table_entry.table_id]
        if not getattr(table.config, what):
            raise P4Error(INVALID_ARGUMENT, f"table {table.config.name!r} has no direct {what}")
        return table

    def _write_direct_meter(self, kind: str, entry: Any) -> None:
        only_modify(kind, "direct meter entry")
        table = self._direct(entry, "meter")
        rates = None
        if entry.HasField("config"):
            rates = arrays.read_config(entry.config, f"table {table.config.name!r}")
        table.set_meter(table.find(entry.table_entry), rates)

    def _write_direct_counter(self, kind: str, entry: Any) -> None:
        only_modify(kind, "direct counter entry")
        if not entry.HasField("data"):
            raise P4Error(INVALID_ARGUMENT, "the data of the direct counter entry is missing")
        table = self._direct(entry, "counter")
        table.set_counter(table.find(entry.table_entry), entry.data)

    # ---- reading ----

    def read(self, entity: Any) -> Iterator[Any]:
        """Yield the entities that a request's entity selects.

        Many at once are yielded as bytes of a ReadResponse. The entities of a table or an array are
        those of the moment when the first of them was read.
        """
        which = entity.WhichOneof("entity")
        out: list[Any] = []
        if which == "table_entry":
            for reader in self._chosen("table", self._readers, entity.table_entry.table_id):
                yield from reader.read(entity.table_entry)
        elif which == "action_profile_member":
            m = entity.action_profile_member
            for p in self._chosen("action profile", self.profiles, m.action_profile_id):
                p.read_members(m.member_id, out)
        elif which == "action_profile_group":
            g = entity.action_profile_group
            for p in self._chosen("action profile", self.profiles, g.action_profile_id):
                p.read_groups(g.group_id, out)
        elif which == "counter_entry":
            c = entity.counter_entry
            for i in self._chosen_ids("counter", self.config.counters, c.counter_id):
                config, array = self._array("counter", self.config.counters, i)
                yield from arrays.read_counter(config, array, self.ports, c)
        elif which == "register_entry":
            r = entity.register_entry
            for i in self._chosen_ids("register", self.config.registers, r.register_id):
                config, array = self._array("register", self.config.registers, i)
                yield from arrays.read_register(config, array, self.ports, r)
        elif which == "meter_entry":
            m = entity.meter_entry
            for config in self._chosen("meter", self.config.meters, m.meter_id):
                yield from arrays.read_meter(config, self.switch, self.ports, m)
        elif which == "direct_counter_entry":
            yield from self._read_direct("counter", entity.direct_counter_entry)
        elif which == "direct_meter_entry":
            yield from self._read_direct("meter", entity.direct_meter_entry)
        elif which == "packet_replication_engine_entry":
            self.replication.read(entity.packet_replication_engine_entry, out)
        elif which == "digest_entry":
            self.digests.read(entity.digest_entry.digest_id, out)
        else:
            raise P4Error(
                UNIMPLEMENTED if which else INVALID_ARGUMENT,
                f"{which} is not supported" if which else "an entity is empty",
            )
        yield from out

    @staticmethod
    def _chosen_ids(what: str, known: dict[int, Any], id_: int) -> Iterable[int]:
        if not id_:
            return list(known)
        one_of(what, known, id_)
        return [id_]

    def _chosen(self, what: str, known: dict[int, Any], id_: int) -> Iterable[Any]:
        return [known[i] for i in self._chosen_ids(what, known, id_)]

    def _read_direct(self, what: str, request: Any) -> Iterator[Any]:
        if request.table_entry.table_id:
            tables = [self._direct(request, what)]
        else:
            tables = [t for t in self.tables.values() if getattr(t.config, what)]
        for table in tables:
            reader = self._readers[table.config.id]
            yield from reader.read_direct(what, request.table_entry)

    def entities(self) -> list[Any]:
        """Return all entities that a controller has written, in an order for writing them again."""
        out: list[Any] = []
        for p in self.profiles.values():
            p.read_members(0, out)
        for p in self.profiles.values():
            p.read_groups(0, out)
        every = p4runtime_pb2.TableEntry()
        every.counter_data.SetInParent()
        every.meter_config.SetInParent()
        for i, t in self.tables.items():
            if not t.config.const:
                out += self._readers[i].read(every)
            if t.default is not None:
                out += self._readers[i].read(p4runtime_pb2.TableEntry(is_default_action=True))
        for config in self.config.meters.values():
            entry = p4runtime_pb2.MeterEntry(meter_id=config.id)
            for found in arrays.read_meter(config, self.switch, self.ports, entry):
                entities = p4runtime_pb2.ReadResponse.FromString(found).entities
                out += [e for e in entities if e.meter_entry.HasField("config")]
        self.replication.read(p4runtime_pb2.PacketReplicationEngineEntry(), out)
        self.digests.read(0, out)
        return [
            e
            for piece in out
            for e in (
                p4runtime_pb2.ReadResponse.FromString(piece).entities
                if isinstance(piece, bytes)
                else [piece]
            )
        ]

    def restore(self, entities: Iterable[Any]) -> None:
        """Write the entities of another pipeline; raise ``P4Error`` if one does not fit."""
        for e in entities:
            default = e.HasField("meter_entry") or (
                e.HasField("table_entry") and e.table_entry.is_default_action
            )
            kind = p4runtime_pb2.Update.MODIFY if default else p4runtime_pb2.Update.INSERT
            self.write(p4runtime_pb2.Update(type=kind, entity=e))
