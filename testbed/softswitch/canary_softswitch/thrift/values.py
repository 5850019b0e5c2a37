# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the values of BMv2's calls in Thrift's binary protocol; error codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

from thrift.Thrift import TType

Arguments = dict[int, Any]
#: Type and value of a result: a TType and what it takes, ("list", element type) and a sequence.
Result = tuple[Any, Any]
Call = Callable[[Arguments], Result]
NOTHING: Result = (TType.VOID, None)
I16, I32, I64, BOOL = TType.I16, TType.I32, TType.I64, TType.BOOL
DOUBLE, STRING, STRUCT = TType.DOUBLE, TType.STRING, TType.STRUCT


class BmError(Exception):
    """One of BMv2's exceptions: a struct with an error code, its first declared one."""

    def __init__(self, code: IntEnum) -> None:
        super().__init__(code.name)
        self.code = code


class CounterErrorCode(IntEnum):
    """Why a call on a counter failed: BMv2's ``CounterOperationErrorCode``."""

    INVALID_COUNTER_NAME = 1
    INVALID_INDEX = 2
    ERROR = 3


class RegisterErrorCode(IntEnum):
    """Why a call on a register failed: BMv2's ``RegisterOperationErrorCode``."""

    INVALID_REGISTER_NAME = 1
    INVALID_INDEX = 2
    ERROR = 3


class MeterErrorCode(IntEnum):
    """Why a call on a meter failed: BMv2's ``MeterOperationErrorCode``."""

    INVALID_METER_NAME = 1
    INVALID_INDEX = 2
    BAD_RATES_LIST = 3
    INVALID_INFO_RATE_VALUE = 4
    INVALID_BURST_SIZE_VALUE = 5
    ERROR = 6


class ValueSetErrorCode(IntEnum):
    """Why a call on a value set failed: BMv2's ``ParseVSetOperationErrorCode``."""

    INVALID_PARSE_VSET_NAME = 1
    ERROR = 2


class LearnErrorCode(IntEnum):
    """Why a call on a learning list failed: BMv2's ``LearnOperationErrorCode``."""

    INVALID_LIST_ID = 1
    INVALID_LIST_NAME = 2
    ERROR = 3


class CrcErrorCode(IntEnum):
    """Why a call on a CRC or Toeplitz hash failed: BMv2's ``CrcErrorCode``."""

    INVALID_CALCULATION_NAME = 1
    WRONG_TYPE_CALCULATION = 2
    INVALID_CONFIG = 3


class SwapErrorCode(IntEnum):
    """Why a swap of programs failed: BMv2's ``SwapOperationErrorCode``."""

    CONFIG_SWAP_DISABLED = 1
    ONGOING_SWAP = 2
    NO_ONGOING_SWAP = 3


class DeviceErrorCode(IntEnum):
    """Why a call on a port failed: BMv2's ``DevMgrErrorCode``."""

    ERROR = 1


class IdErrorCode(IntEnum):
    """Why a look-up of an id by name failed: BMv2's ``IdLookupErrorCode``."""

    INVALID_RESOURCE_TYPE = 0
    INVALID_RESOURCE_NAME = 1


class MirrorErrorCode(IntEnum):
    """Why a call on a mirror session failed: BMv2's ``MirroringOperationErrorCode``."""

    SESSION_NOT_FOUND = 1


class MulticastErrorCode(IntEnum):
    """Why a call on a multicast group failed: BMv2's ``McOperationErrorCode``."""

    TABLE_FULL = 1
    INVALID_MGID = 2
    INVALID_MGRP_HANDLE = 3
    INVALID_L1_HANDLE = 4
    ERROR = 5


def read_value(p: Any, kind: int) -> Any:
    """Return the next value, of a type; structs become dicts by field number, sets lists."""
    if kind == TType.STRUCT:
        return read_struct(p)
    if kind in (TType.LIST, TType.SET):
        element, n = p.readListBegin() if kind == TType.LIST else p.readSetBegin()
        return [read_value(p, element) for _ in range(n)]
    if kind == TType.MAP:
        key, value, n = p.readMapBegin()
        return {read_value(p, key): read_value(p, value) for _ in range(n)}
    return {
        TType.BOOL: p.readBool,
        TType.BYTE: p.readByte,
        TType.I16: p.readI16,
        TType.I32: p.readI32,
        TType.I64: p.readI64,
        TType.DOUBLE: p.readDouble,
        TType.STRING: p.readBinary,
    }[kind]()


def read_struct(p: Any) -> Arguments:
    """Read a struct; return its fields by number."""
    out: Arguments = {}
    p.readStructBegin()
    while True:
        _, kind, number = p.readFieldBegin()
        if kind == TType.STOP:
            break
        out[number] = read_value(p, kind)
        p.readFieldEnd()
    p.readStructEnd()
    return out


def struct(*fields: tuple[int, Any, Any]) -> Result:
    """Return a struct of (number, type, value); fields that are None are left out."""
    return STRUCT, [f for f in fields if f[2] is not None]


def listed(kind: Any, values: Sequence[Any]) -> Result:
    """Return the Result of a list of values of one type."""
    return ("list", kind), values


def _type(kind: Any) -> int:
    return kind if isinstance(kind, int) else TType.LIST


def write_value(p: Any, kind: Any, value: Any) -> None:
    """Write a value of a type, in the form that ``Result`` has."""
    if isinstance(kind, tuple):
        p.writeListBegin(_type(kind[1]), len(value))
        if kind[1] == I64:  # registers: packed at once
            p.trans.write(b"".join([v.to_bytes(8, "big", signed=True) for v in value]))
        else:
            for v in value:
                write_value(p, kind[1], v[1] if kind[1] == STRUCT else v)
        p.writeListEnd()
    elif kind == STRUCT:
        p.writeStructBegin("")
        for number, field_kind, v in value:
            p.writeFieldBegin("", _type(field_kind), number)
            write_value(p, field_kind, v[1] if field_kind == STRUCT else v)
            p.writeFieldEnd()
        p.writeFieldStop()
        p.writeStructEnd()
    elif kind == STRING:
        p.writeBinary(value if isinstance(value, bytes) else value.encode())
    else:
        {
            BOOL: p.writeBool,
            I16: p.writeI16,
            I32: p.writeI32,
            I64: p.writeI64,
            DOUBLE: p.writeDouble,
        }[kind](value)


def text(arguments: Arguments, number: int) -> str:
    """Return the string argument with this number, or an empty string when it is missing."""
    return arguments.get(number, b"").decode(errors="replace")
