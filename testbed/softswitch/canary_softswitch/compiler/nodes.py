# SPDX-License-Identifier: Apache-2.0
"""Nodes of BMv2 expressions: the sort and range of each value, and its C type and literal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from canary_softswitch.compiler.layout import FieldRef


@dataclass
class Node:
    """One value: ``sort`` is data, bool, varbit, header, union or stack; data lies in lo..hi.

    ``type_name``: of a header or union the name of its type, of a stack its own; never in C.
    ``rivals``: lvalues of the headers that are not valid when a header is, of the same union.
    """

    sort: str
    op: str
    kids: tuple[Node, ...] = ()
    lo: int = 0
    hi: int = 0
    code: str = ""
    field: FieldRef | None = None
    type_name: str = ""
    rivals: tuple[str, ...] = ()

    @property
    def const(self) -> int | None:
        """Return the number if it is known at compile time, else None."""
        return self.lo if self.sort == "data" and self.lo == self.hi else None


def ctype(lo: int, hi: int) -> str | None:
    """Return the smallest C type of an exact value in lo..hi, None when 128 bits are not enough."""
    for bits, unsigned, signed in ((64, "uint64_t", "int64_t"), (128, "u128", "i128")):
        if lo >= 0 and hi < 1 << bits:
            return unsigned
        if lo >= -(1 << bits - 1) and hi < 1 << bits - 1:
            return signed
    return None


def literal(value: int, bits: int) -> str:
    """Return the C literal of ``value`` modulo 2**bits (64 or 128)."""
    value &= (1 << bits) - 1
    if bits == 64:
        return f"UINT64_C({value:#x})"
    if value < 1 << 64:
        return f"(u128)UINT64_C({value:#x})"
    return f"((u128)UINT64_C({value >> 64:#x}) << 64 | UINT64_C({value & (1 << 64) - 1:#x}))"


def power_bits(v: int) -> int:
    """Return the number of bits of v >= 0: the smallest n with v < 2**n."""
    return v.bit_length()


def joined(parts: Sequence[tuple[str, int]]) -> str:
    """Return the C expression of the u128 that is made of values by "or".

    ``parts``: a C expression of type uint64_t of each value, and the bit of the u128 at which it
    begins; bits beyond the 128th are lost. Each half is computed by itself, because compilers shift
    numbers of 128 bits with two or three instructions.
    """
    high, low = [], []
    for code, at in parts:
        if at < 64:
            low.append(f"{code} << {at}" if at else code)
            high += [f"{code} >> {64 - at}"] if at else []
        else:
            high.append(f"{code} << {at - 64}" if at > 64 else code)
    halves = (" | ".join(f"({one})" for one in half) or "UINT64_C(0)" for half in (high, low))
    return "((u128)({}) << 64 | ({}))".format(*halves)
