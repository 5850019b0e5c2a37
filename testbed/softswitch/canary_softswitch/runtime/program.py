# SPDX-License-Identifier: Apache-2.0
"""A compiled program: what is in it, and the shared library that runs it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from ctypes import (
    POINTER,
    c_double,
    c_int,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from canary_softswitch.compiler.bmv2_program import DROP_PORT, KeyField
from canary_softswitch.compiler.build import PACKETS, QUICK, kept_library, load_library
from canary_softswitch.compiler.source import Source, read_file, translate
from canary_softswitch.errors import SoftSwitchError

MAX_OUT = 1024  # SS_MAX_OUT of abi.h


class Packet(ctypes.Structure):
    """The C structure ``ss_packet`` of abi.h: a packet that leaves the switch."""

    _fields_ = [
        ("port", c_uint32),
        ("length", c_uint32),
        ("data", c_void_p),
        ("kind", c_uint32),
        ("stored", c_uint32),
        ("priority", c_uint32),
    ]


class Result(ctypes.Structure):
    """The C structure ``ss_result`` of abi.h: the outputs of one processed packet."""

    _fields_ = [
        ("n", c_uint32),
        ("queue_dropped", c_uint32),
        ("egress_port", c_uint32),
        ("observed", c_uint64),
        ("packets", Packet * MAX_OUT),
    ]


class BatchOut(ctypes.Structure):
    """The C structure ``ss_batch_out`` of control.h: the outputs of a batch of packets."""

    _fields_ = [
        ("n", c_uint64),
        ("bytes", c_uint64),
        ("queue_dropped", c_uint64),
        ("faults", c_uint64),
        ("n_cap", c_uint64),
        ("bytes_cap", c_uint64),
        ("ports", c_void_p),
        ("source", c_void_p),
        ("offsets", c_void_p),
        ("data", c_void_p),
        ("first_fault", c_int),
        ("first_fault_packet", c_uint32),
    ]


class Arrival(ctypes.Structure):
    """The structure ``ss_arrival`` of abi.h: a packet of which the first ``stored`` bytes exist."""

    _fields_ = [
        ("room", c_void_p),
        ("data", c_void_p),
        ("now_us", c_uint64),
        ("port", c_uint32),
        ("stored", c_uint32),
        ("length", c_uint32),
    ]


_P, _U32, _U64 = c_void_p, c_uint32, c_uint64
_SIGNATURES = {
    "ss_create": (_P, _U64),
    "ss_destroy": (None, _P),
    "ss_process": (c_int, _P, _U32, _P, _U32, _U64, _P, _P, POINTER(Result)),
    "ss_forward": (c_int, _P, POINTER(Arrival), _P, _P, POINTER(Result)),
    "ss_priority": (_U32, _P),
    "ss_waits": (None, _P, _U32, _U32, _U32),
    "ss_digests_pending": (_U32, _P),
    "ss_table_add": (c_int64, _P, _U32, _P, _P, _U64, _U64, _P),
    "ss_table_modify": (c_int, _P, _U32, _U64, _U64, _P),
    "ss_table_delete": (c_int, _P, _U32, _U64),
    "ss_table_clear": (None, _P, _U32),
    "ss_table_default": (None, _P, _U32, _U64, _P),
    "ss_table_row": (_P, _P, _U32, _U64),
    "ss_table_counters": (_U64, _P, _U32, _P, _U64, _P),
    "ss_many_add": (_U64, _P, _U32, _P, _U64, _P, _U64, _U64, _P, _P),
    "ss_many_delete": (_U64, _P, _U32, _P, _U64, _P),
    "ss_many_counters": (_U64, _P, _U32, _P, _U64, _P, _P),
    "ss_table_default_row": (_P, _P, _U32),
    "ss_table_capacity": (_U32, _P, _U32),
    "ss_table_rows": (_P, _P, _U32),
    "ss_table_count": (_U32, _P, _U32),
    "ss_set_member": (c_int, _P, _U32, _U32, _U64, _P),
    "ss_set_group": (c_int, _P, _U32, _U32, _P, _U32),
    "ss_register": (_P, _P, _U32),
    "ss_register_bytes": (_U64, _P),
    "ss_counter": (_P, _P, _U32),
    "ss_meter_at": (_P, _P, _U32, _U32),
    "ss_meter_set": (None, _P, POINTER(c_double), POINTER(c_uint64)),
    "ss_meter_clear": (None, _P),
    "ss_meter_get": (c_int, _P, POINTER(c_double), POINTER(c_uint64)),
    "ss_table_meter": (_P, _P, _U32, _U64),
    "ss_table_seen": (_U64, _P, _U32, _U64),
    "ss_set_value_set": (c_int, _P, _U32, POINTER(c_uint64), _U32),
    "ss_set_crc": (None, _P, _U32, _U32, _U32, _U32, _U32, c_int, c_int),
    "ss_set_queues": (None, _P, _U32),
    "ss_digest_count": (_U32, _P, _U32),
    "ss_digest_lost": (_U64, _P, _U32),
    "ss_digest_read": (None, _P, _U32, _P, _U32, c_int),
    "ss_digest_since": (_U32, _P, _U32, _U64, _P, _U32),
    "ss_digest_forget": (None, _P, _U32, _U64, _U64),
    "ss_set_session": (c_int, _P, _U32, _U32, _U32, _U32, _U32),
    "ss_delete_session": (None, _P, _U32),
    "ss_set_mgroup": (c_int, _P, _U32, _P, _U32),
    "ss_fault_line": (_U32, _P),
    "ss_free": (None, _P),
    "ss_batch": (
        c_int,
        _P,
        _U64,
        POINTER(c_uint16),
        POINTER(c_uint8),
        POINTER(c_uint64),
        POINTER(c_uint64),
        _U64,
        POINTER(c_uint64),
        POINTER(BatchOut),
    ),
}


@dataclass(frozen=True)
class ActionInfo:
    """An action: its parameters as (name, width in bits)."""

    name: str
    params: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class TableInfo:
    """A table. ``key`` elements have ``name``, ``match`` and ``width`` (bits).

    ``const``: entries cannot be changed; ``profile`` is the action profile or "".
    """

    name: str
    pipeline: str
    key: tuple[KeyField, ...]
    actions: tuple[str, ...]
    size: int
    const: bool
    counters: bool
    meters: bool
    timeouts: bool
    profile: str
    default_action: str
    const_default: bool


@dataclass(frozen=True)
class RegisterInfo:
    """A register array: bits of one element and number of elements."""

    name: str
    width: int
    size: int


@dataclass(frozen=True)
class CounterInfo:
    """An indirect counter array of ``size`` elements."""

    name: str
    size: int


@dataclass(frozen=True)
class MeterInfo:
    """An array of ``size`` meters of bytes, or of packets."""

    name: str
    size: int
    bytes: bool


@dataclass(frozen=True)
class ValueSetInfo:
    """A parser value set: values of ``width`` bits, as many as ``size``."""

    name: str
    width: int
    size: int


@dataclass(frozen=True)
class DigestInfo:
    """A digest: its fields as (name, width in bits)."""

    name: str
    fields: tuple[tuple[str, int], ...]


class Program:
    """A P4 program compiled for the software switch; make switches of it with ``Switch``.

    ``tables``, ``actions``, ``registers``, ``counters``, ``meters``, ``value_sets`` and
    ``digests`` map the full P4 names to descriptions, ``head_bytes`` says how much of a packet the
    program can read, None where that has no bound. ``process_address`` and
    ``digests_pending_address`` are the addresses of ``ss_process`` and ``ss_digests_pending``
    (abi.h) for other C code. ``optimized`` says whether it runs as fast as it can.

    Args:
        source: The program as C.
        observe: As for `load`.
        compiled: Whether to compile it now; else `compile` or `compile_quickly` has to be called
            before a switch can run it.
    """

    def __init__(self, source: Source, observe: str | None, compiled: bool = True) -> None:
        self.definition = definition = source.definition
        self.generated = source.generated
        self.observe = observe
        self.path = definition.path
        d = definition
        #: Of two of a name, p4c's second one for direct calls takes no parameters.
        by_params = sorted(d.actions.values(), key=lambda a: len(a.params))
        self.actions: Mapping[str, ActionInfo] = MappingProxyType(
            {a.name: ActionInfo(a.name, a.params) for a in by_params}
        )
        self.tables: Mapping[str, TableInfo] = MappingProxyType(
            {
                t.name: TableInfo(
                    t.name,
                    t.pipeline,
                    t.key,
                    tuple(d.actions[i].name for i in t.action_ids),
                    t.max_size,
                    t.entries is not None,
                    t.counters,
                    bool(t.meter),
                    t.aged,
                    t.profile,
                    d.actions[t.default.action_id].name if t.default else "",
                    bool(t.default and t.default.entry_const),
                )
                for t in d.tables
            }
        )
        self.registers: Mapping[str, RegisterInfo] = MappingProxyType(
            {r.name: RegisterInfo(r.name, r.width, r.size) for r in d.registers.values()}
        )
        self.counters: Mapping[str, CounterInfo] = MappingProxyType(
            {c.name: CounterInfo(c.name, c.size) for c in d.counters.values()}
        )
        self.meters: Mapping[str, MeterInfo] = MappingProxyType(
            {m.name: MeterInfo(m.name, m.size, m.bytes) for m in d.meters.values()}
        )
        self.value_sets: Mapping[str, ValueSetInfo] = MappingProxyType(
            {v.name: ValueSetInfo(v.name, v.width, v.size) for v in d.value_sets.values()}
        )
        self.digests: Mapping[str, DigestInfo] = MappingProxyType(
            {
                fl.name: DigestInfo(
                    fl.name,
                    tuple(d.sampled(e) for e in fl.elements),
                )
                for fl in d.learn_lists.values()
            }
        )
        self.head_bytes = source.head_bytes
        self.optimized = False
        self._library: ctypes.CDLL | None = None
        self._compiling = threading.RLock()
        if compiled:
            self.compile()

    @property
    def lib(self) -> ctypes.CDLL:
        """Return the library with the program's code.

        Raises:
            SoftSwitchError: It is not compiled yet.
        """
        if self._library is None:
            raise SoftSwitchError("the program is not compiled yet")
        return self._library

    @property
    def compiled(self) -> bool:
        """Return True if the program has code, or gets it from the cache now."""
        with self._compiling:
            if self._library is None:
                self._take(kept_library(self.generated.code, _SIGNATURES, PACKETS))
            return self._library is not None

    def compile(self) -> None:
        """Compile the program, in place of the code that `compile_quickly` made.

        Both work on the same state, so switches may go on meanwhile. Addresses of functions are
        those of the old code until they are asked for again; it stays loaded.

        Raises:
            SoftSwitchError: As for `load`.
        """
        with self._compiling:
            if not self.optimized:
                self._take(load_library(self.generated.code, _SIGNATURES, PACKETS))

    def compile_quickly(self) -> None:
        """Compile the program without optimization, in a third of the time, if it has no code.

        Raises:
            SoftSwitchError: As for `load`.
        """
        with self._compiling:
            if not self.compiled:
                flags = (*PACKETS, QUICK)
                self._library = load_library(self.generated.code, _SIGNATURES, flags)

    def _take(self, library: ctypes.CDLL | None) -> None:
        """Use optimized code from now on, in all objects that have the library already."""
        if library is None:
            return
        self.optimized = True
        if self._library is None:
            self._library = library
        for name in _SIGNATURES:
            setattr(self._library, name, getattr(library, name))

    @classmethod
    def load(
        cls, path: str | Path, observe: str | None = None, drop_port: int = DROP_PORT
    ) -> Program:
        """Return the program of a BMv2 JSON file, compiled or taken from the cache.

        ``observe``: metadata or header field of at most 64 bits whose final value each
        processed packet reports. ``drop_port``: the egress port that means drop, simple_switch's
        ``--drop-port``. Errors: ``InvalidProgram`` when the file is not a BMv2
        JSON, ``UnsupportedProgram`` for a construct this switch does not run,
        ``NoCompiler`` without a C compiler.
        """
        return cls(translate(read_file(path), str(path), observe, drop_port), observe)

    def address(self, function: str) -> int:
        """Return the address of an exported C function as a number, for other C code."""
        return ctypes.cast(getattr(self.lib, function), c_void_p).value or 0

    @property
    def process_address(self) -> int:
        """Return the address of the C function ``ss_process`` (abi.h) as a number."""
        return self.address("ss_process")

    @property
    def digests_pending_address(self) -> int:
        """Return the address of the C function ``ss_digests_pending`` (abi.h) as a number."""
        return self.address("ss_digests_pending")

    def __repr__(self) -> str:
        return f"Program({self.path!r})"
