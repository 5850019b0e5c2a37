# SPDX-License-Identifier: Apache-2.0
"""A switch over the wire: P4Runtime for tables and digests, Thrift for registers.

BMv2 answers UNIMPLEMENTED to register reads over P4Runtime, hence Thrift.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import google.protobuf.text_format
import numpy as np
import numpy.typing as npt

from testbed.control.remote.connection import (
    ELECTION_ID,
    TAKEN,
    Connection,
    RemoteError,
    p4runtime_pb2,
)
from testbed.control.remote.tables import RemoteProfile, RemoteTable, known, p4info_pb2, tables_of
from testbed.control.remote.thrift import CARRIED_BITS, RegisterClient, ThriftError

T = TypeVar("T")


class RemoteSwitch:
    """Control of one switch process (`testbed.control.switch.SwitchControl`), for any program.

    Not thread safe: one thread at a time may use a switch.

    Args:
        name: For messages.
        address: Of its P4Runtime server, as gRPC takes it: ``host:port`` or ``unix:PATH``.
        device_id: The device ID that the switch process was started with.
        p4info: The program's P4Info, as text.
        registers: Opens a Thrift connection to it, when it is first needed.
        clock: Returns the time of the run in ns, with which digests are stamped.
        election_id: The client with the highest one is the primary, which may write.
        patience: How many times longer than usual to wait for its P4Runtime server.
        bare: Whether only to load the program; its tables and digests are then left to others.

    Raises:
        RemoteError: No P4Runtime server answers as primary.
    """

    remote = True

    def __init__(
        self,
        name: str,
        address: str,
        device_id: int,
        p4info: Path,
        registers: Callable[[], RegisterClient],
        clock: Callable[[], int] = time.monotonic_ns,
        election_id: int = ELECTION_ID,
        patience: float = 1.0,
        *,
        bare: bool = False,
    ) -> None:
        self.name = name
        self.clock = clock
        self.closed = False
        self._p4info = parsed(p4info.read_text())
        info = p4info_pb2.P4Info() if bare else self._p4info
        self.connection = wire = Connection(name, address, device_id, election_id, patience)
        self._open_registers = registers
        self._registers: RegisterClient | None = None
        self._program: Path | None = None
        self._queue_packets = 0
        self._tables, self._profiles = tables_of(wire, info)
        self._counters = {c.preamble.name: c for c in info.counters}
        self._arrays = {r.preamble.name: r for r in info.registers}
        self._digests = {
            d.preamble.id: (d.preamble.name, _digest_type(d, info)) for d in info.digests
        }

    @property
    def lost(self) -> str:
        """Return why the switch no longer answers, "" if it answers."""
        return self.connection.lost

    def close(self) -> None:
        """Close the P4Runtime session and the Thrift connection for good, once."""
        if self.closed:
            return
        self.closed = True
        self.give_up("closed")
        self.connection.close()
        if self._registers is not None:
            self._registers.close()

    def give_up(self, reason: str) -> None:
        """Mark the switch as `lost` for ``reason``: reads are empty and writes do not reach it."""
        self.connection.give_up(reason)

    def is_primary(self) -> bool:
        """Return False while another controller has the switch, which is `lost` then."""
        return self.connection.is_primary()

    def restore(self) -> int:
        """Bring a restarted switch to the state that was written, loading its program if needed.

        Returns:
            The number of entries, members and groups that were missing, changed or foreign.

        Raises:
            RemoteError: The switch does not answer.
        """
        assert self._program is not None  # as it was in use before
        if self.lost == TAKEN:
            self.connection.resume()
        else:
            self.connection.reconnect()
        if self._registers is not None:
            self._registers.close()
            self._registers = None
        if not self.connection.has_program():
            self.push_program(self._program)
            if self._queue_packets:
                self.set_queue_depth(self._queue_packets)
        self.hold()
        parts = [*self._profiles.values(), *self._tables.values()]
        missing = sum(part.restore() for part in parts)
        self.send()
        return missing

    def push_program(self, program: Path) -> None:
        """Load a program (a file of BMv2 JSON) and enable its digests."""
        self._program = program
        self.connection.push_program(self._p4info, program)
        for digest in self._digests:
            message = p4runtime_pb2.DigestEntry(digest_id=digest)
            message.config.max_timeout_ns = 1_000_000
            message.config.max_list_size = 64
            message.config.ack_timeout_ns = 10_000_000_000  # a busy controller is late
            self.connection.write("INSERT", "digest_entry", message)

    # ---- tables ----------------------------------------------------------------------------

    def table(self, name: str) -> RemoteTable:
        """Return the control of a table. Raises RemoteError if the program has no such table."""
        return known(self._tables, "table", name)

    def action_profile(self, name: str) -> RemoteProfile:
        """Return the control of an action profile. Raises RemoteError if there is none."""
        return known(self._profiles, "action profile", name)

    def hold(self) -> None:
        """Collect writes from now on and send them together with `send`."""
        self.connection.hold()

    @property
    def waiting(self) -> bool:
        """Return True if writes are held back."""
        return self.connection.waiting

    def send(self) -> None:
        """Send the held-back writes; later writes are sent at once again."""
        self.connection.send()

    def counter(self, name: str, indices: Sequence[int] | None = None) -> npt.NDArray[Any]:
        """Return a copy of an indirect counter with the uint64 fields ``packets`` and ``bytes``.

        If ``indices`` is given, only these elements are read; the others are 0.
        """
        info = known(self._counters, "counter", name)
        counts = np.zeros(info.size, [("packets", "<u8"), ("bytes", "<u8")])
        entities = [p4runtime_pb2.Entity() for _ in (indices or (0,))]
        for position, entity in enumerate(entities):
            entity.counter_entry.counter_id = info.preamble.id
            if indices:
                entity.counter_entry.index.index = indices[position]
        for found in self.connection.read(*entities):
            entry = found.counter_entry
            counts[entry.index.index] = (entry.data.packet_count, entry.data.byte_count)
        return counts

    def counts(self, names: Sequence[str], ports: Sequence[int]) -> npt.NDArray[np.int64] | None:
        """Return the packets that counters of ports have counted, int64[len(names), len(ports)];
        None if the switch does not answer or its program lacks one of them.

        Args:
            names: The counters.
            ports: The ports to read, from 1 on.
        """
        if not self._counters.keys() >= set(names):
            return None
        rows = {self._counters[name].preamble.id: row for row, name in enumerate(names)}
        columns = {port: column for column, port in enumerate(ports)}
        entities = []
        for counter in rows:
            for port in ports:
                entities.append(entity := p4runtime_pb2.Entity())
                entity.counter_entry.counter_id = counter
                entity.counter_entry.index.index = port
        counts = np.zeros((len(names), len(ports)), np.int64)
        for found in self.connection.read(*entities):
            entry = found.counter_entry
            at = rows[entry.counter_id], columns[entry.index.index]
            counts[at] = entry.data.packet_count
        return None if self.lost else counts

    def unsent(self) -> dict[int, int] | None:
        """Return the packets that each port lost on sending, by port; None if the switch does not
        answer."""
        found = self._thrift(lambda thrift: thrift.ports())
        return None if found is None else dict(found.tolist())

    # ---- registers -------------------------------------------------------------------------

    @property
    def carried(self) -> list[str]:
        """Return the names of the register arrays that can be read: see `CARRIED_BITS`."""
        widths = {n: r.type_spec.bitstring.bit.bitwidth for n, r in self._arrays.items()}
        return [name for name, width in widths.items() if width <= CARRIED_BITS]

    def read_registers(self, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Return copies of the register arrays ``names``, by name; zeros if the switch is lost.

        Raises:
            RemoteError: An array's elements have more than `CARRIED_BITS` bits.
        """
        infos = [known(self._arrays, "register", name) for name in names]
        widths = [info.type_spec.bitstring.bit.bitwidth for info in infos]
        for name, width in zip(names, widths, strict=True):
            if width > CARRIED_BITS:
                raise RemoteError(
                    f"register {name!r} has {width} bits; at most {CARRIED_BITS} can be read"
                )
        types, sizes = [_unsigned(width) for width in widths], [info.size for info in infos]
        arrays = self._thrift(lambda thrift: thrift.read_all(names, types, sizes))
        if arrays is None:
            arrays = [np.zeros(size, t) for size, t in zip(sizes, types, strict=True)]
        return dict(zip(names, arrays, strict=True))

    def reset_registers(
        self, names: Sequence[str], start: int = 0, stop: int | None = None
    ) -> None:
        """Set elements ``start`` to ``stop - 1``, counted from 0, of each array to zero."""
        by_end: dict[int, list[str]] = {}
        for name in names:
            size = known(self._arrays, "register", name).size
            by_end.setdefault(size if stop is None else stop, []).append(name)
        for end, some in by_end.items():
            self._thrift(lambda thrift, end=end, some=some: thrift.fill(some, start, end))

    def write_register(self, name: str, values: dict[int, int]) -> None:
        """Write single elements of a register array; ``values`` maps index, from 0, to value."""
        self._thrift(lambda thrift: thrift.write(name, values))

    def set_queue_depth(self, packets: int) -> None:
        """Set the length of the egress queues in packets (BMv2's simple_switch)."""
        self._queue_packets = packets
        self._thrift(lambda thrift: thrift.queue_depth(packets))

    def _thrift(self, call: Callable[[RegisterClient], T]) -> T | None:
        """Run a call over Thrift and return its result; None if the switch is or becomes lost."""
        if self.lost:
            return None
        try:
            if self._registers is None:
                self._registers = self._open_registers()
            return call(self._registers)
        except (ConnectionError, TimeoutError):
            self.give_up("its Thrift connection broke")
            return None
        except ThriftError as e:
            raise RemoteError(f"{self.name}: {e}") from None

    # ---- digests ---------------------------------------------------------------------------

    def digests(self) -> dict[str, npt.NDArray[Any]]:
        """Return the digests since the last call, by name, as structured uint64 arrays.

        After the digest's own fields come ``now_us``, the time of this call on the run's clock,
        and ``sequence``, the number of the digest list.
        """
        rows: dict[int, list[tuple[Any, ...]]] = {digest: [] for digest in self._digests}
        now_us = self.clock() // 1000
        for some in self.connection.digest_lists():
            for data in some.data:
                values = [int.from_bytes(m.bitstring, "big") for m in data.struct.members]
                rows[some.digest_id].append((*values, now_us, some.list_id))
        return {
            name: np.array(rows[digest], dtype) for digest, (name, dtype) in self._digests.items()
        }


@lru_cache(maxsize=1)
def parsed(p4info: str) -> Any:
    """Return a P4Info from its text; callers share the message and must not change it."""
    return google.protobuf.text_format.Parse(p4info, p4info_pb2.P4Info())


def _unsigned(width: int) -> np.dtype[Any]:
    return np.dtype(f"<u{next(n for n in (1, 2, 4, 8) if width <= 8 * n)}")


def _digest_type(digest: Any, info: Any) -> np.dtype[Any]:
    members = info.type_info.structs[digest.type_spec.struct.name].members
    names = [member.name for member in members]
    return np.dtype([(name, "<u8") for name in [*names, "now_us", "sequence"]])
