# SPDX-License-Identifier: Apache-2.0
"""What a file of kernels declares: structs, and the prototypes of its kernels."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

NUMBERS: dict[str, tuple[Any, type[np.generic]]] = {
    "bool": (ctypes.c_bool, np.bool_),
    "int8_t": (ctypes.c_int8, np.int8),
    "int16_t": (ctypes.c_int16, np.int16),
    "int32_t": (ctypes.c_int32, np.int32),
    "int64_t": (ctypes.c_int64, np.int64),
    "uint8_t": (ctypes.c_uint8, np.uint8),
    "uint16_t": (ctypes.c_uint16, np.uint16),
    "uint32_t": (ctypes.c_uint32, np.uint32),
    "uint64_t": (ctypes.c_uint64, np.uint64),
    "float": (ctypes.c_float, np.float32),
    "double": (ctypes.c_double, np.float64),
}


@dataclass(frozen=True)
class Argument:
    """An argument of a kernel, or a field of a struct.

    Attributes:
        kind: Its C type without const and pointer.
        pointer: Whether it is an array or a pointer to a struct.
        const: Whether a kernel only reads it.
        shape: For an array, the length of each dimension as in C; empty if none is given.
        struct: The struct that it is or points to.
    """

    name: str
    kind: str
    pointer: bool
    const: bool
    shape: tuple[str, ...]
    struct: Struct | None

    @property
    def c_type(self) -> Any:
        """Return the type in ctypes."""
        if self.pointer:
            return ctypes.c_void_p
        return self.struct.c_type if self.struct else NUMBERS[self.kind][0]


@dataclass(frozen=True)
class Struct:
    """A C struct: its name, its fields in order, and its type in ctypes."""

    name: str
    fields: tuple[Argument, ...]
    c_type: type[ctypes.Structure] = field(init=False, compare=False)

    def __hash__(self) -> int:  # of all fields, it would take as long as a call
        return hash(self.name)

    def __post_init__(self) -> None:
        members = [(each.name, each.c_type) for each in self.fields]
        made = type(self.name, (ctypes.Structure,), {"_fields_": members})
        object.__setattr__(self, "c_type", made)


@dataclass(frozen=True)
class Prototype:
    """A kernel: its name, the type in ctypes of its result (None: void), and its arguments."""

    name: str
    result: Any
    arguments: tuple[Argument, ...]


_STRUCT = re.compile(r"^typedef struct(?: \w+)? \{(.*?)^\} (\w+);", re.M | re.S)
_KERNEL = re.compile(r"^KERNEL (\w+) (\w+)\((.*?)\)\s*[{;]", re.M | re.S)
_DECLARED = re.compile(r"(const )?(\w+) (\*(?:restrict )?)?([a-zA-Z]\w*)((?:\[[^]]+\])*)")
_LENGTH = re.compile(r"(?:(\w+) \+ )?(\d+)|(\w+)")


_STRUCTS: dict[Struct, Struct] = {}
"""Every struct that a C text declared: what two texts declare alike is one."""


def declared(code: str) -> tuple[list[Prototype], dict[str, Struct]]:
    """Return the prototypes of the kernels that a C text declares, and its structs by name."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", code, flags=re.S)
    structs: dict[str, Struct] = {}
    for body, name in _STRUCT.findall(text):
        members = [" ".join(member.split()) for member in body.split(";") if member.strip()]
        if all(_known(member, structs) for member in members):
            new = Struct(name, tuple(_argument(each, structs) for each in members))
            structs[name] = _STRUCTS.setdefault(new, new)
    structs["Random"] = Struct("Random", ())
    prototypes = []
    for result, name, body in _KERNEL.findall(text):
        declared = [" ".join(each.split()) for each in body.split(",")]
        arguments = tuple(_argument(each, structs) for each in declared if each != "void")
        returned = None if result == "void" else NUMBERS[result][0]
        prototypes.append(Prototype(name, returned, arguments))
    return prototypes, structs


def _known(member: str, structs: Mapping[str, Struct]) -> bool:
    """Return True if Python can make this field of a struct; the others are for C alone."""
    found = _DECLARED.fullmatch(member)
    return bool(found) and (found[2] in NUMBERS or found[2] in structs) and not found[5]


def _argument(declared: str, structs: Mapping[str, Struct]) -> Argument:
    found = _DECLARED.fullmatch(declared)
    if not found or (found[2] not in NUMBERS and found[2] not in structs):
        raise TypeError(f"a kernel cannot have the argument {declared!r}")
    const, kind, pointer, name, lengths = found.groups()
    shape = tuple(re.findall(r"\[([^]]+)\]", lengths))
    if any(not _LENGTH.fullmatch(length) for length in shape):
        raise TypeError(f"the lengths of {declared!r} must be names, numbers or name + number")
    struct = structs.get(kind)
    return Argument(name, kind, bool(pointer or shape), bool(const), shape, struct)


@cache
def length_of(text: str) -> tuple[str | None, int]:
    """Return the name in a length and what is added to it: ``n + 1`` is ("n", 1), 4 (None, 4)."""
    found = _LENGTH.fullmatch(text)
    assert found is not None
    return (found[3], 0) if found[3] and not found[3].isdigit() else (found[1], int(found[2]))
