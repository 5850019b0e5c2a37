"""A switch over the wire: P4Runtime for tables and digests, Thrift for registers.

Handles, group and member numbers are given out here, so that adding an entry needs no answer and
writes can wait for each other in a batch. BMv2 answers UNIMPLEMENTED to register reads over
P4Runtime, hence Thrift.

A switch that is gone answers nothing: `RemoteSwitch.lost` says why, writes to it vanish, and what
is read from it is empty. So a run goes on without it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google.protobuf.text_format
import grpc
import numpy as np
import numpy.typing as npt
from p4.config.v1 import p4info_pb2 as _p4info_pb2
from p4.v1 import p4runtime_pb2 as _p4runtime_pb2
from p4runtime_sh.p4runtime import (
    P4RuntimeClient,
    P4RuntimeErrorFormatException,
    P4RuntimeException,
    P4RuntimeWriteException,
)

from testbed.control.switch import BATCH_STAGES
from testbed.control.thrift import CARRIED_BITS, RegisterClient, ThriftError

__all__ = ["RemoteError", "RemoteSwitch"]

# Their classes are made at run time: a type checker sees nothing of them.
p4info_pb2: Any = _p4info_pb2
p4runtime_pb2: Any = _p4runtime_pb2

_MAX_UPDATES = 500  # a write request stays well below gRPC's 4 MB
_COUNTERS_FRESH_S = 0.05
_PATIENCE_S = 30
_GONE = {
    grpc.StatusCode.UNAVAILABLE: "its P4Runtime channel was cut",
    grpc.StatusCode.CANCELLED: "its P4Runtime channel was cut",
    grpc.StatusCode.DEADLINE_EXCEEDED: f"it did not answer in {_PATIENCE_S} s",
}
_WIDE = np.dtype([("lo", "<u8"), ("hi", "<u8")])
_UPSTREAM = "CanaryEgress.usm.rules"


class RemoteError(RuntimeError):
    """A switch refused something, or cannot be reached. One line."""


@dataclass
class RemoteTable:
    """One table of a remote switch, with the face of `testbed.control.switch.TableControl`."""

    _switch: RemoteSwitch
    _info: Any
    _entries: dict[int, Any] = field(default_factory=dict)
    _next: int = 1
    _counters: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    _counted_at: float = -1.0

    def add(
        self,
        match: Sequence[Any],
        action: str,
        params: Sequence[int] = (),
        priority: int | None = None,
    ) -> int:
        message = self._message(match, priority)
        self._switch._fill_action(message.action.action, action, params)
        return self._insert(message)

    def add_group_entry(self, match: Sequence[Any], group: int, priority: int | None = None) -> int:
        message = self._message(match, priority)
        message.action.action_profile_group_id = group
        return self._insert(message)

    def _insert(self, message: Any) -> int:
        # adding is last where it begins to count, see `testbed.control.switch.batch`
        stage = 2 if self._info.preamble.name == _UPSTREAM else 1
        self._switch._write("INSERT", "table_entry", message, stage)
        handle = self._next
        self._next += 1
        self._entries[handle] = message
        return handle

    def delete(self, handle: int) -> None:
        entry = self._entries.pop(handle)
        message = p4runtime_pb2.TableEntry(
            table_id=entry.table_id, match=entry.match, priority=entry.priority
        )
        stage = 0 if self._info.preamble.name == _UPSTREAM else 1
        self._switch._write("DELETE", "table_entry", message, stage)

    def set_default(self, action: str, params: Sequence[int] = ()) -> None:
        message = p4runtime_pb2.TableEntry(table_id=self._info.preamble.id, is_default_action=True)
        self._switch._fill_action(message.action.action, action, params)
        self._switch._write("MODIFY", "table_entry", message, 1)

    def counter(self, handle: int) -> tuple[int, int]:
        """Packets and bytes of an entry; all entries of the table are read at once.

        What was read serves for 50 ms. An entry that still waits in a batch has counted nothing.
        """
        if time.monotonic() - self._counted_at > _COUNTERS_FRESH_S:
            entity = p4runtime_pb2.Entity()
            entity.direct_counter_entry.table_entry.table_id = self._info.preamble.id
            self._counters = {
                _key(e.direct_counter_entry.table_entry): (
                    e.direct_counter_entry.data.packet_count,
                    e.direct_counter_entry.data.byte_count,
                )
                for e in self._switch._read(entity)
            }
            self._counted_at = time.monotonic()
        return self._counters.get(_key(self._entries[handle]), (0, 0))

    def _message(self, match: Sequence[Any], priority: int | None) -> Any:
        message = p4runtime_pb2.TableEntry(table_id=self._info.preamble.id)
        if priority is not None:
            message.priority = priority
        for info, value in zip(self._info.match_fields, match, strict=True):
            _put_match(message, info, value)
        return message


def _put_match(message: Any, info: Any, value: Any) -> None:
    """Add one key field; one that matches everything is left out, as P4Runtime wants it."""
    kind = p4info_pb2.MatchField.MatchType.Name(info.match_type)
    if kind == "EXACT":
        message.match.add(field_id=info.id).exact.value = _bytes(value, info.bitwidth)
        return
    first, second = value
    if kind == "LPM":
        if second:
            lpm = message.match.add(field_id=info.id).lpm
            lpm.value, lpm.prefix_len = _bytes(first, info.bitwidth), second
    elif kind == "TERNARY":
        if second:
            ternary = message.match.add(field_id=info.id).ternary
            ternary.value = _bytes(first & second, info.bitwidth)
            ternary.mask = _bytes(second, info.bitwidth)
    elif first > 0 or second < (1 << info.bitwidth) - 1:
        limits = message.match.add(field_id=info.id).range
        limits.low, limits.high = _bytes(first, info.bitwidth), _bytes(second, info.bitwidth)


def _bytes(value: int, width: int) -> bytes:
    """P4Runtime's canonical number: big-endian without leading zero bytes."""
    if not 0 <= value < 1 << width:
        raise RemoteError(f"{value} does not fit in {width} bits")
    return int(value).to_bytes(max(1, (int(value).bit_length() + 7) // 8), "big")


def _key(entry: Any) -> bytes:
    """What identifies an entry in its table, whatever leading zeros and order a server uses."""
    parts = [b"%d" % entry.priority]
    for match in sorted(entry.match, key=lambda m: m.field_id):
        kind = match.WhichOneof("field_match_type")
        value = getattr(match, kind)
        numbers = [n.lstrip(b"\0") for n in (_get(value, f) for f in _PARTS[kind])]
        parts.append(b"%d:" % match.field_id + b"/".join(n.hex().encode() for n in numbers))
    return b" ".join(parts)


_PARTS = {
    "exact": ("value",),
    "lpm": ("value", "prefix_len"),
    "ternary": ("value", "mask"),
    "range": ("low", "high"),
    "optional": ("value",),
}


def _get(message: Any, name: str) -> bytes:
    value = getattr(message, name)
    return value if isinstance(value, bytes) else b"%d" % value


@dataclass
class RemoteProfile:
    """An action profile, with the face of `testbed.control.switch.ActionProfileControl`."""

    _switch: RemoteSwitch
    _info: Any
    _members: int = 0
    _groups: int = 0

    def add_member(self, action: str, params: Sequence[int] = ()) -> int:
        self._members += 1
        message = p4runtime_pb2.ActionProfileMember(
            action_profile_id=self._info.preamble.id, member_id=self._members
        )
        self._switch._fill_action(message.action, action, params)
        self._switch._write("INSERT", "action_profile_member", message, 1)
        return self._members

    def add_group(self, members: Sequence[int]) -> int:
        self._groups += 1
        message = p4runtime_pb2.ActionProfileGroup(
            action_profile_id=self._info.preamble.id,
            group_id=self._groups,
            max_size=len(members),
        )
        for member in members:
            message.members.add(member_id=member, weight=1)
        self._switch._write("INSERT", "action_profile_group", message, 1)
        return self._groups


class RemoteSwitch:
    """Control of one switch process. Not thread safe: one thread at a time may use a switch.

    Args:
        name: For messages.
        address: Of its P4Runtime server, as gRPC takes it: ``host:port`` or ``unix:PATH``.
        device_id: As the process was started with.
        p4info: The program's P4Info, as text.
        registers: Opens a Thrift connection to it, when it is first needed.
        clock: Nanoseconds of the run; stamps the digests.
        election_id: The highest of a switch's clients may write.

    Raises:
        RemoteError: No P4Runtime server answers as primary.
    """

    def __init__(
        self,
        name: str,
        address: str,
        device_id: int,
        p4info: Path,
        registers: Callable[[], RegisterClient],
        clock: Callable[[], int] = time.monotonic_ns,
        election_id: int = 1,
    ) -> None:
        self.name = name
        self.clock = clock
        self.lost = ""
        self.closed = False
        self._p4info_path = p4info
        self._info = google.protobuf.text_format.Parse(p4info.read_text(), p4info_pb2.P4Info())
        self._client = _connect(name, address, device_id, election_id)
        self._open_registers = registers
        self._registers: RegisterClient | None = None
        self._queue: list[list[Any]] | None = None
        self._tables = {t.preamble.name: RemoteTable(self, t) for t in self._info.tables}
        self._profiles = {
            p.preamble.name: RemoteProfile(self, p) for p in self._info.action_profiles
        }
        self._actions = {a.preamble.name: a for a in self._info.actions}
        self._counters = {c.preamble.name: c for c in self._info.counters}
        self._arrays = {r.preamble.name: r for r in self._info.registers}
        self._digests = {
            d.preamble.id: (d.preamble.name, _digest_type(d, self._info))
            for d in self._info.digests
        }

    def close(self) -> None:
        """Cut the connections."""
        self.closed = True
        self.lost = self.lost or "closed"
        self._client.stream.cancel()
        self._client.tear_down()
        if self._registers is not None:
            self._registers.close()

    def give_up(self, reason: str) -> None:
        """From now on this switch answers nothing."""
        self.lost = self.lost or reason

    def push_program(self, program: Path) -> None:
        """Load the program (BMv2's JSON) and let its digests be sent."""
        self._safely(lambda: self._client.set_fwd_pipe_config(self._p4info_path, program))
        for digest in self._digests:
            message = p4runtime_pb2.DigestEntry(digest_id=digest)
            message.config.max_timeout_ns = 1_000_000
            message.config.max_list_size = 64
            message.config.ack_timeout_ns = 1_000_000_000
            self._write("INSERT", "digest_entry", message, 1)

    # ---- tables ----------------------------------------------------------------------------

    def table(self, name: str) -> RemoteTable:
        return _known(self._tables, "table", name)

    def action_profile(self, name: str) -> RemoteProfile:
        return _known(self._profiles, "action profile", name)

    def counter(self, name: str, indices: Sequence[int] | None = None) -> npt.NDArray[Any]:
        """An indirect counter: fields ``packets`` and ``bytes``. A copy.

        Only ``indices`` are read where they are given, which is quicker; the others are 0.
        """
        info = _known(self._counters, "counter", name)
        counts = np.zeros(info.size, [("packets", "<u8"), ("bytes", "<u8")])
        entities = [p4runtime_pb2.Entity() for _ in (indices or (0,))]
        for position, entity in enumerate(entities):
            entity.counter_entry.counter_id = info.preamble.id
            if indices:
                entity.counter_entry.index.index = indices[position]
        for found in self._read(*entities):
            entry = found.counter_entry
            counts[entry.index.index] = (entry.data.packet_count, entry.data.byte_count)
        return counts

    def begin_batch(self) -> None:
        """Hold writes back until `flush_batch`."""
        self._queue = [[] for _ in range(BATCH_STAGES)]

    def waiting(self, stage: int) -> bool:
        """Whether writes of a stage are held back."""
        return self._queue is not None and bool(self._queue[stage])

    def flush_batch(self, stage: int) -> None:
        """Send what was held back for a stage."""
        if self._queue is not None:
            self._send(self._queue[stage])

    def end_batch(self) -> None:
        """Hold nothing back any more."""
        self._queue = None

    def _write(self, kind: str, what: str, message: Any, stage: int) -> None:
        update = p4runtime_pb2.Update(type=p4runtime_pb2.Update.Type.Value(kind))
        getattr(update.entity, what).CopyFrom(message)
        if self._queue is None:
            self._send([update])
        else:
            self._queue[stage].append(update)

    def _send(self, updates: list[Any]) -> None:
        for at in range(0, len(updates), _MAX_UPDATES):
            request = p4runtime_pb2.WriteRequest(device_id=self._client.device_id)
            request.election_id.high, request.election_id.low = self._client.election_id
            request.updates.extend(updates[at : at + _MAX_UPDATES])
            self._safely(
                lambda request=request: self._client.stub.Write(request, timeout=_PATIENCE_S)
            )

    def _read(self, *entities: Any) -> list[Any]:
        def read() -> list[Any]:
            request = p4runtime_pb2.ReadRequest(device_id=self._client.device_id)
            request.entities.extend(entities)
            return [
                e
                for answer in self._client.stub.Read(request, timeout=_PATIENCE_S)
                for e in answer.entities
            ]

        return self._safely(read) or []

    def _fill_action(self, message: Any, action: str, params: Sequence[int]) -> None:
        info = _known(self._actions, "action", action)
        message.action_id = info.preamble.id
        for param, value in zip(info.params, params, strict=True):
            message.params.add(param_id=param.id, value=_bytes(value, param.bitwidth))

    def _safely(self, call: Callable[[], Any]) -> Any:
        """Run a call; what the switch refuses is an error, a switch that is gone is `lost`."""
        if self.lost:
            return None
        try:
            return call()
        except (P4RuntimeException, grpc.RpcError) as e:
            error: Any = getattr(e, "grpc_error", e)
            if error.code() in _GONE:
                self.give_up(_GONE[error.code()])
                return None
            raise RemoteError(f"{self.name}: {_reason(error)}") from None
        except (ConnectionError, TimeoutError):
            self.give_up("its Thrift connection was cut")
            return None
        except ThriftError as e:
            raise RemoteError(f"{self.name}: {e}") from None

    # ---- registers -------------------------------------------------------------------------

    def register(self, name: str) -> npt.NDArray[Any]:
        """A register array. A copy."""
        return self.read_registers([name])[name]

    def read_registers(self, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Whole arrays by name. Raises RemoteError if values are wider than Thrift carries."""
        infos = [_known(self._arrays, "register", name) for name in names]
        widths = [info.type_spec.bitstring.bit.bitwidth for info in infos]
        for name, width in zip(names, widths, strict=True):
            if width > CARRIED_BITS:
                raise RemoteError(f"register {name!r} has {width} bits; {CARRIED_BITS} can be read")
        arrays = self._safely(lambda: self._thrift().read_all(names))
        if arrays is None:
            arrays = [np.zeros(info.size, np.int64) for info in infos]
        return {
            name: array.astype(_unsigned(width))
            for name, width, array in zip(names, widths, arrays, strict=True)
        }

    def reset_registers(
        self, names: Sequence[str], start: int = 0, stop: int | None = None
    ) -> None:
        """Set elements ``start`` to ``stop - 1`` of each array to zero."""
        if start == 0 and stop is None:
            self._safely(lambda: self._thrift().reset(names))
            return
        by_end: dict[int, list[str]] = {}
        for name in names:
            size = _known(self._arrays, "register", name).size
            by_end.setdefault(size if stop is None else stop, []).append(name)
        for end, some in by_end.items():
            self._safely(lambda end=end, some=some: self._thrift().fill(some, start, end))

    def write_register(self, name: str, values: dict[int, int]) -> None:
        """Write elements by index."""
        self._safely(lambda: self._thrift().write(name, values))

    def set_queue_depth(self, packets: int) -> None:
        """Length of the egress queues, where the switch is BMv2's."""
        self._safely(lambda: self._thrift().queue_depth(packets))

    def _thrift(self) -> RegisterClient:
        if self._registers is None:
            self._registers = self._open_registers()
        return self._registers

    # ---- digests ---------------------------------------------------------------------------

    def digests(self, ack: bool = True) -> dict[str, npt.NDArray[Any]]:
        """Digests since the last call, by name: their fields, ``now_us`` and ``sequence``.

        ``now_us`` is when they were fetched, on the run's clock. They are acknowledged in any case.
        """
        rows: dict[int, list[tuple[Any, ...]]] = {digest: [] for digest in self._digests}
        now_us = self.clock() // 1000
        incoming: queue.Queue[Any] = self._client.stream_in_q["digest"]
        while not self.lost:
            try:
                message = incoming.get_nowait()
            except queue.Empty:
                break
            if message is None:
                self.give_up("its P4Runtime channel was cut")
                break
            batch = message.digest
            for data in batch.data:
                values = [int.from_bytes(m.bitstring, "big") for m in data.struct.members]
                rows[batch.digest_id].append((*values, now_us, batch.list_id))
            acknowledgement = p4runtime_pb2.StreamMessageRequest()
            acknowledgement.digest_ack.digest_id = batch.digest_id
            acknowledgement.digest_ack.list_id = batch.list_id
            self._client.stream_out_q.put(acknowledgement)
        return {
            name: np.array(rows[digest], dtype) for digest, (name, dtype) in self._digests.items()
        }


def _reason(error: Any) -> str:
    """Why a call was refused; of a refused batch the first update's reason."""
    if error.code() == grpc.StatusCode.UNKNOWN:
        try:
            for index, one in P4RuntimeWriteException(error).errors:
                return f"update {index}: {one.message or one.canonical_code}"
        except P4RuntimeErrorFormatException:
            pass
    return error.details() or error.code().name


def _known(things: dict[str, Any], kind: str, name: str) -> Any:
    if name not in things:
        raise RemoteError(f"no {kind} {name!r} in the program; it has {', '.join(sorted(things))}")
    return things[name]


def _unsigned(width: int) -> np.dtype[Any]:
    return np.dtype(f"<u{next(n for n in (1, 2, 4, 8) if width <= 8 * n)}")


def _digest_type(digest: Any, info: Any) -> np.dtype[Any]:
    members = info.type_info.structs[digest.type_spec.struct.name].members
    names = [member.name for member in members]
    return np.dtype([(name, "<u8") for name in [*names, "now_us", "sequence"]])


def _connect(name: str, address: str, device_id: int, election_id: int) -> P4RuntimeClient:
    """A client whose threads do not keep the process alive, and whose failure is an exception."""
    made: list[P4RuntimeClient] = []
    logging.getLogger().addFilter(_quiet)

    def connect() -> None:
        try:
            made.append(P4RuntimeClient(device_id, address, (0, election_id)))
        except (SystemExit, P4RuntimeException, grpc.RpcError):
            return

    thread = threading.Thread(target=connect, daemon=True)  # daemons' children are daemons
    thread.start()
    thread.join(timeout=10)
    if not made:
        raise RemoteError(f"{name}: no P4Runtime server answers at {address}")
    return made[0]


def _quiet(record: logging.LogRecord) -> bool:
    """p4runtime-shell reports a channel's end as critical; `RemoteSwitch.lost` tells it here."""
    return record.module != "p4runtime"
