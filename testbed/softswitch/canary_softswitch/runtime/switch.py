# SPDX-License-Identifier: Apache-2.0
"""One running switch: packets in and out, and access to its state."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from canary_softswitch.errors import SoftSwitchError, SwitchFault, unknown_name
from canary_softswitch.runtime.action_profiles import ActionProfile
from canary_softswitch.runtime.encoding import number
from canary_softswitch.runtime.instance import METER, Instance, MeterRates, get_meter, set_meter
from canary_softswitch.runtime.program import MAX_OUT, BatchOut, DigestInfo, Program, Result
from canary_softswitch.runtime.tables import Table

WIDE = [("lo", "<u8"), ("hi", "<u8")]
COUNT = [("packets", "<u8"), ("bytes", "<u8")]
FAULTS = {
    1: f"more than {MAX_OUT} output packets: the surplus was dropped",
    2: "more than 256 passes (endless recirculate, resubmit or clone): the packet was cut off",
    3: "a P4 assert or assume failed",
    4: "out of memory",
    5: "a loop in an action jumped more than 1,000,000 times: the rest of the action was skipped",
}


@dataclass(frozen=True)
class CrcParameters:
    """Parameters of a CRC; numbers have as many bits as the CRC."""

    polynomial: int
    initial_remainder: int
    final_xor: int
    data_reflected: bool
    remainder_reflected: bool


@dataclass(frozen=True)
class BatchResult:
    """Outputs of a batch of n packets, m packets in all, in the order they were made.

    ``ports`` u16[m]; ``data`` u8 with packet i at ``offsets[i]:offsets[i + 1]`` (u64[m+1]);
    ``source`` u32[m], the input packet of each; ``observed`` u64[n], the observed field of
    each input packet.
    """

    ports: NDArray[np.uint16]
    data: NDArray[np.uint8]
    offsets: NDArray[np.uint64]
    source: NDArray[np.uint32]
    observed: NDArray[np.uint64]


@cache
def element_dtype(width: int) -> np.dtype[Any]:
    """Return the numpy dtype of a register element or digest field of ``width`` bits."""
    for bits in (8, 16, 32, 64):
        if width <= bits:
            return np.dtype(f"<u{bits // 8}")
    return np.dtype(WIDE)


@cache
def digest_dtype(digest: DigestInfo) -> np.dtype[Any]:
    """Return the numpy dtype of a digest's samples: its fields, ``now_us`` and ``sequence``."""
    names, formats, offsets, at = [], [], [], 0
    for name, width in digest.fields:
        unique = name if name not in names else f"{name}_{len(names)}"
        names.append(unique)
        formats.append("<u8" if width <= 64 else WIDE)
        offsets.append(at)
        at += 8 if width <= 64 else 16
    at = max(at, 8)
    return np.dtype(
        {
            "names": [*names, "now_us", "sequence"],
            "formats": [*formats, "<u8", "<u8"],
            "offsets": [*offsets, at, at + 8],
            "itemsize": at + 16,
        }
    )


class Switch:
    """A switch that runs ``program``; all its state is its own.

    ``seed`` seeds the P4 ``random`` (xoshiro256** seeded by splitmix64, uniform by
    rejection). Each egress port has ``queues`` queues: of the packets that one packet became those
    of a higher ``priority`` leave first, and one whose priority has no queue is dropped, as in
    BMv2. Not thread safe: one thread at a time may use a switch.
    """

    def __init__(self, program: Program, seed: int = 1, queues: int = 1) -> None:
        self.program = program
        self._seed, self._queues = seed, queues
        self._lib = program.lib
        self.restart()

    def restart(self) -> None:
        """Reset all state, as after a power failure: entries, members, samples and counters.

        Afterwards `handle`, tables, profiles and views of registers are new objects.
        """
        program = self.program
        self._instance = instance = Instance(program, number(self._seed, 64, "seed"))
        #: Address of the ``ss_switch`` for other C code.
        self.handle: int = instance.handle
        self._lib.ss_set_queues(self.handle, number(self._queues, 8, "queues"))
        self._result = Result()
        self._registers: dict[str, NDArray[Any]] = {}
        self._value_sets: dict[str, tuple[int, ...]] = {}
        #: Parameters that were set of custom CRCs.
        self.crcs: dict[str, CrcParameters] = {}
        self._profiles = {
            p.name: ActionProfile(instance, p) for p in program.definition.profiles.values()
        }
        self._tables = {
            t.name: Table(
                instance, t, program.generated.tables[t.name], self._profiles.get(t.profile)
            )
            for t in program.definition.tables
        }

    # ---- packets ----

    def process(self, port: int, data: bytes, now_us: int = 0) -> list[tuple[int, bytes]]:
        """Run one packet and return (port, data) of every packet that leaves.

        ``port`` 0..511, ``now_us`` the time in microseconds. Raises ``SwitchFault`` when a
        P4 assert fails, more than 1,024 packets leave, or the packet never stops.
        """
        port = number(port, 9, "port")
        raw = bytes(data)
        r = self._result
        rc = self._lib.ss_process(
            self.handle,
            port,
            raw,
            len(raw),
            number(now_us, 64, "now_us"),
            None,
            None,
            ctypes.byref(r),
        )
        if rc:
            raise SwitchFault(self._fault(rc))
        return [
            (r.packets[i].port, ctypes.string_at(r.packets[i].data, r.packets[i].length))
            for i in range(r.n)
        ]

    def _fault(self, rc: int) -> str:
        text = FAULTS.get(rc, f"fault {rc}")
        if rc == 3:
            line = self.program.generated.asserts[self._lib.ss_fault_line(self.handle)]
            text = f"{text} at {line or 'an unknown line'}"
        return text

    @property
    def observed(self) -> int:
        """Return the observed field of the last ``process`` call's packet, after its last block."""
        return self._result.observed

    def process_batch(
        self,
        ports: NDArray[np.uint16],
        data: NDArray[np.uint8],
        offsets: NDArray[np.uint64],
        now_us: NDArray[np.uint64] | int = 0,
    ) -> BatchResult:
        """Run n packets, one after the other, and return their outputs.

        ``ports`` u16[n]; packet i is ``data[offsets[i]:offsets[i + 1]]`` (``offsets``
        u64[n+1]); ``now_us`` one time for all or u64[n]. Raises ``SwitchFault`` after the
        whole batch when any packet had a fault.
        """
        p = np.ascontiguousarray(ports, dtype=np.uint16)
        d = np.ascontiguousarray(data, dtype=np.uint8)
        o = np.ascontiguousarray(offsets, dtype=np.uint64)
        n = len(p)
        if p.ndim != 1 or d.ndim != 1 or o.shape != (n + 1,):
            raise SoftSwitchError(
                f"process_batch: {n} ports need {n + 1} offsets and flat data, "
                f"not offsets of shape {o.shape}"
            )
        if int(o[-1]) > len(d) or (n and bool(np.any(o[1:] < o[:-1]))):
            raise SoftSwitchError("process_batch: offsets must rise and end within the data")
        if n and int(p.max()) > 511:
            raise SoftSwitchError(f"process_batch: port {int(p.max())} does not fit in 9 bits")
        times = None
        if not isinstance(now_us, int):
            times = np.ascontiguousarray(now_us, dtype=np.uint64)
            if times.shape != (n,):
                raise SoftSwitchError(f"process_batch: now_us has shape {times.shape}, not ({n},)")
        observed = np.zeros(n, dtype=np.uint64)
        out = BatchOut()
        rc = self._lib.ss_batch(
            self.handle,
            n,
            _pointer(p, ctypes.c_uint16),
            _pointer(d, ctypes.c_uint8),
            _pointer(o, ctypes.c_uint64),
            None if times is None else _pointer(times, ctypes.c_uint64),
            now_us if isinstance(now_us, int) else 0,
            _pointer(observed, ctypes.c_uint64),
            ctypes.byref(out),
        )
        result = BatchResult(
            self._take(out.ports, np.dtype("<u2"), out.n),
            self._take(out.data, np.dtype("u1"), out.bytes),
            self._take(out.offsets, np.dtype("<u8"), out.n + 1),
            self._take(out.source, np.dtype("<u4"), out.n),
            observed,
        )
        if rc:
            raise SoftSwitchError("out of memory")
        if out.faults:
            raise SwitchFault(
                f"packet {out.first_fault_packet}: {self._fault(out.first_fault)} "
                f"({out.faults} packets of the batch had faults)"
            )
        return result

    def _take(self, address: int | None, dtype: np.dtype[Any], n: int) -> NDArray[Any]:
        """Return an array over malloc'ed memory, which is freed together with the array."""
        if not address:
            return np.zeros(0, dtype=dtype)
        if not n:
            self._lib.ss_free(address)
            return np.zeros(0, dtype=dtype)
        memory: Any = (ctypes.c_uint8 * (n * dtype.itemsize)).from_address(address)
        weakref.finalize(memory, self._lib.ss_free, address)
        return np.frombuffer(memory, dtype=dtype)

    # ---- state ----

    def table(self, name: str) -> Table:
        """Return the table with this full P4 name."""
        if name not in self._tables:
            raise unknown_name("table", name, self._tables)
        return self._tables[name]

    def action_profile(self, name: str) -> ActionProfile:
        """Return the action profile or selector with this full P4 name."""
        if name not in self._profiles:
            raise unknown_name("action profile", name, self._profiles)
        return self._profiles[name]

    def register(self, name: str) -> NDArray[Any]:
        """Return a register array as a writable view.

        Its elements are u8..u64, (lo, hi) for 65 to 128 bits, else u8[n, w], big-endian. Values
        written must fit the register's width.
        """
        if name in self._registers:
            return self._registers[name]
        if name not in self.program.registers:
            raise unknown_name("register", name, self.program.registers)
        r = self.program.definition.registers[name]
        place = self.program.generated.registers[name]
        address = self._lib.ss_register(self.handle, r.index)
        if not address:
            raise SoftSwitchError("out of memory")
        wide = (r.width + 7) // 8 if r.width > 128 else 0  # bytes of an element, big-endian
        dtype = np.dtype("u1") if wide else element_dtype(r.width)
        size = (r.size - 1) * place.stride + (wide or dtype.itemsize) if r.size else 0
        memory = self._memory(address, size)
        shape, strides = ((r.size, wide), (place.stride, 1)) if wide else (r.size, (place.stride,))
        array = np.ndarray(shape, dtype, memory, strides=strides)
        self._registers[name] = array
        return array

    def counter(self, name: str) -> NDArray[Any]:
        """Return an indirect counter as a writable view with fields ``packets`` and ``bytes``."""
        if name not in self.program.counters:
            direct = self.program.definition.direct_counters
            if name in direct:
                raise SoftSwitchError(
                    f"counter {name!r} is direct: use table({direct[name]!r}).counter(handle)"
                )
            raise unknown_name("counter", name, self.program.counters)
        c = self.program.definition.counters[name]
        return self._view(self._lib.ss_counter(self.handle, c.index), np.dtype(COUNT), c.size)

    def meters(self, name: str) -> NDArray[Any]:
        """Return an array of meters as a view: ``rates`` (committed, peak) and ``configured``."""
        address = self._meter(name, None)
        return self._view(address, np.dtype(METER), self.program.meters[name].size)

    def meter(self, name: str, index: int) -> MeterRates | None:
        """Return the rates of one meter of an array, None if none were set."""
        return get_meter(self._lib, self._meter(name, index))

    def set_meter(self, name: str, index: int, rates: MeterRates | None) -> None:
        """Set the rates of one meter of an array; with None it marks all packets green."""
        set_meter(self._lib, self._meter(name, index), rates)

    def _meter(self, name: str, index: int | None) -> int:
        if name not in self.program.meters:
            direct = self.program.definition.direct_meters
            if name in direct:
                raise SoftSwitchError(
                    f"meter {name!r} is direct: use table({direct[name].table!r}).meter(handle)"
                )
            raise unknown_name("meter", name, self.program.meters)
        m = self.program.definition.meters[name]
        if index is None:
            return self._lib.ss_meter_at(self.handle, m.index, 0)
        if not 0 <= index < m.size:
            raise SoftSwitchError(f"meter {name!r} has {m.size} elements: there is no {index}")
        return self._lib.ss_meter_at(self.handle, m.index, index)

    def value_set(self, name: str) -> tuple[int, ...]:
        """Return the numbers in a parser value set: the fields of the select side by side."""
        if name not in self.program.value_sets:
            raise unknown_name("value set", name, self.program.value_sets)
        return self._value_sets.get(name, ())

    def set_value_set(self, name: str, values: Sequence[int]) -> None:
        """Set the numbers in a parser value set: the fields of the select side by side."""
        self.value_set(name)
        v = self.program.definition.value_sets[name]
        unique = tuple(dict.fromkeys(number(x, v.width, f"value set {name!r}") for x in values))
        words = [w for x in unique for w in (x & (1 << 64) - 1, x >> 64)]
        array = (ctypes.c_uint64 * max(len(words), 1))(*words)
        if self._lib.ss_set_value_set(self.handle, v.index, array, len(unique)):
            raise SoftSwitchError("out of memory")
        self._value_sets[name] = unique

    def set_crc(self, name: str, parameters: CrcParameters) -> None:
        """Set the parameters of a hash that is a custom CRC."""
        crcs = self.program.definition.custom_crcs
        if name not in crcs:
            raise unknown_name("custom CRC", name, crcs)
        width = crcs[name]
        p = parameters
        words = (p.polynomial, p.initial_remainder, p.final_xor)
        self._lib.ss_set_crc(
            self.handle,
            list(crcs).index(name),
            width,
            *(number(word, width, f"CRC {name!r}") for word in words),
            p.data_reflected,
            p.remainder_reflected,
        )
        self.crcs[name] = p

    def _view(self, address: int, dtype: np.dtype[Any], n: int) -> NDArray[Any]:
        return np.frombuffer(self._memory(address, n * dtype.itemsize), dtype=dtype)

    def _memory(self, address: int, size: int) -> Any:
        memory: Any = (ctypes.c_uint8 * size).from_address(address)
        memory._instance = self._instance  # the array keeps its memory
        return memory

    @property
    def digests_pending(self) -> int:
        """Return the number of digest samples not yet acknowledged."""
        return self._lib.ss_digests_pending(self.handle)

    def digests(self, ack: bool = True) -> dict[str, NDArray[Any]]:
        """Return digest samples by digest name, with fields, ``now_us`` and ``sequence``.

        A sample identical to one not yet acknowledged is not kept (BMv2's learn filter);
        ``ack=True`` acknowledges and removes what is returned, ``ack=False`` leaves it.
        """
        out = {}
        for i, d in enumerate(self.program.digests.values()):
            n = self._lib.ss_digest_count(self.handle, i)
            samples = np.zeros(n, dtype=digest_dtype(d))
            self._lib.ss_digest_read(self.handle, i, samples.ctypes.data, n, int(ack))
            out[d.name] = samples
        return out

    def _digest(self, name: str) -> int:
        names = list(self.program.digests)
        if name not in names:
            raise unknown_name("digest", name, names)
        return names.index(name)

    def digest_since(self, name: str, sequence: int, limit: int) -> NDArray[Any]:
        """Return unacknowledged samples, [at most limit], of a digest from ``sequence`` on."""
        i = self._digest(name)
        n = min(limit, self._lib.ss_digest_count(self.handle, i))
        samples = np.zeros(n, dtype=digest_dtype(self.program.digests[name]))
        n = self._lib.ss_digest_since(self.handle, i, sequence, samples.ctypes.data, n)
        return samples[:n]

    def digest_forget(self, name: str, first: int, end: int) -> None:
        """Acknowledge the samples of a digest with numbers ``first <= sequence < end``."""
        self._lib.ss_digest_forget(self.handle, self._digest(name), first, end)

    # ---- packet replication ----

    def set_mirror(
        self, session: int, port: int | None, truncate: int = 0, multicast_group: int = 0
    ) -> None:
        """Configure a clone session: egress ``port`` and/or a multicast group.

        ``truncate``: clones leave cut to this many bytes, 0 for whole.
        """
        session = number(session, 15, "mirror session")
        rc = self._lib.ss_set_session(
            self.handle,
            session,
            0 if port is None else number(port, 9, "port"),
            int(port is not None),
            number(truncate, 31, "truncate"),
            number(multicast_group, 16, "multicast group"),
        )
        if rc:
            raise SoftSwitchError("out of memory")

    def delete_mirror(self, session: int) -> None:
        """Remove the clone session with this number: its clones are no longer made."""
        self._lib.ss_delete_session(self.handle, number(session, 15, "mirror session"))

    def set_multicast_group(self, group: int, ports: Sequence[tuple[int, int]]) -> None:
        """Set the (port, rid) copies of a group, made in this order; its number is 1 to 65535."""
        group = number(group, 16, "multicast group")
        if not group:
            raise SoftSwitchError("multicast group 0 means no multicast")
        if len(ports) > MAX_OUT:
            raise SoftSwitchError(
                f"multicast group {group}: {len(ports)} copies, at most {MAX_OUT}"
            )
        flat: list[int] = []
        for port, rid in ports:
            flat += [number(port, 9, "port"), number(rid, 16, "rid")]
        array = (ctypes.c_uint32 * max(len(flat), 1))(*flat)
        if self._lib.ss_set_mgroup(self.handle, group, array, len(ports)):
            raise SoftSwitchError("out of memory")


def _pointer(array: NDArray[Any], kind: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(kind))
