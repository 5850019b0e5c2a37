# SPDX-License-Identifier: Apache-2.0
"""Calls of kernels: what C gets of what Python passes."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from testbed.kernels.prototypes import NUMBERS, Argument, Prototype, Struct, length_of


@dataclass(frozen=True)
class Bound:
    """A C struct made of an object, see `Kernels.bound`."""

    struct: Struct
    address: int
    keep: list[Any]


def bound(struct: Struct, given: Any) -> Bound:
    """Return a struct made of an object's attributes of the same names."""
    keep: list[Any] = []
    made = _maker(struct)(given, keep)
    keep.append(made)
    return Bound(struct, ctypes.addressof(made), keep)


def checked(prototype: Prototype, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a Python function with a kernel's arguments by name, which checks them and calls it.

    It is made of a text, as those of named tuples are, because some methods call kernels thousands
    of times: its body is a few lines for each argument, instead of a loop over the arguments. No
    argument of a kernel begins with an underscore.
    """
    lengths = {n: None for a in prototype.arguments for t in a.shape if (n := length_of(t)[0])}
    names = {**_names(prototype.arguments), "_function": function}
    body: list[str] = []
    for number, each in enumerate(prototype.arguments):
        body += _lines(number, each, names)
    body += [
        f"if {name} is None: raise TypeError(\"the argument '{name}' is missing\")"
        for name in lengths
    ]
    for number, each in enumerate(prototype.arguments):
        if each.name in lengths:  # known only now
            body += _number_lines(number, each, names)
    takes = [f"{a.name}=None" if a.name in lengths else a.name for a in prototype.arguments]
    text = [
        f"def {prototype.name}({'*, ' if takes else ''}{', '.join(takes)}):",
        "    _keep = []",
        "    try:",
        *(f"        {line}" for line in body or ["pass"]),
        "    except (TypeError, ValueError) as error:",
        f"        raise type(error)(f'{prototype.name}: {{error}}') from None",
        f"    return _function({', '.join(f'_c{n}' for n in range(len(takes)))})",
    ]
    exec("\n".join(text), names)
    return names[prototype.name]


def _names(arguments: tuple[Argument, ...]) -> dict[str, Any]:
    """Return what the lines of `_lines` refer to, for a kernel's arguments or a struct's fields."""
    return {
        "_arguments": arguments,
        "_convert": [_converter(each) for each in arguments],
        "_ndarray": np.ndarray,
        "_Bound": Bound,
        "_addressof": ctypes.addressof,
        "_buffer": (ctypes.c_char * 0).from_buffer,
        "_bad_shape": _bad_shape,
    }


def _lines(number: int, argument: Argument, names: dict[str, Any]) -> list[str]:
    """Return the lines that make what C gets, ``_c0`` for argument 0, of what Python passes.

    What they need besides is added to ``names``. What is not of the usual type goes to the
    converter, which converts or refuses it.
    """
    name, slow = argument.name, f"_c{number} = _convert[{number}]({argument.name}, _keep)"
    if argument.struct is not None and argument.kind != "Random":
        if not argument.pointer:
            return [slow]
        names[f"_s{number}"] = argument.struct
        usual = f"{name}.__class__ is _Bound and {name}.struct is _s{number}"
        return [f"if {usual}: _c{number} = {name}.address", f"else: {slow}"]
    if not argument.pointer:
        return [] if _is_length(name, names) else _number_lines(number, argument, names)
    if argument.kind == "Random":
        return [slow]
    names[f"_d{number}"] = np.dtype(NUMBERS[argument.kind][1])
    lines = [
        f"if {name}.__class__ is _ndarray and {name}.dtype is _d{number} and {name}.flags.carray:",
        f"    _c{number} = _addressof(_buffer({name}))",
        f"else: {slow}",
    ]
    if not argument.shape:
        return lines
    bad = f"_bad_shape(_arguments[{number}], _shape, {{text!r}}, {{wanted}})"
    lines += [
        f"if {name} is not None:",
        f"    _shape = {name}.shape",
        f"    if len(_shape) != {len(argument.shape)}: {bad.format(text='', wanted=0)}",
    ]
    for at, text in enumerate(argument.shape):
        length, more = length_of(text)
        wanted = str(more) if length is None else f"{length} + {more}"
        refuse = f"if {wanted} != _shape[{at}]: {bad.format(text=text, wanted=wanted)}"
        if length is not None:
            lines.append(f"    if {length} is None: {length} = _shape[{at}] - {more}")
            refuse = f"el{refuse}"
        lines.append(f"    {refuse}")
    return lines


def _is_length(name: str, names: Mapping[str, Any]) -> bool:
    """Return True if an argument is the length of an array."""
    return any(length_of(text)[0] == name for each in names["_arguments"] for text in each.shape)


def _number_lines(number: int, argument: Argument, names: dict[str, Any]) -> list[str]:
    """Return the lines for a number; see `_lines`."""
    name, kind = argument.name, NUMBERS[argument.kind][1]
    if issubclass(kind, np.integer):
        low, high = names[f"_low{number}"], names[f"_high{number}"] = _bounds(kind)
        usual = f"{name}.__class__ is int and _low{number} <= {name} <= _high{number}"
        assert low < high
    else:
        usual = f"{name}.__class__ is {'bool' if kind is np.bool_ else 'float'}"
    slow = f"_c{number} = _convert[{number}]({name}, _keep)"
    return [f"if {usual}: _c{number} = {name}", f"else: {slow}"]


def _bad_shape(argument: Argument, shape: tuple[int, ...], text: str, wanted: int) -> None:
    """Raise ValueError: an array has not the shape of the prototype."""
    if not text:
        raise ValueError(f"{argument.name} must have {len(argument.shape)} dimensions: {shape}")
    raise ValueError(
        f"{argument.name}[{']['.join(argument.shape)}] has the shape {shape}, where {text} is "
        f"{wanted}"
    )


def _converter(argument: Argument) -> Callable[[Any, list[Any]], Any]:
    """Return a function that makes what C gets of what Python passes; it adds to its second
    argument what must be kept until the call is over."""
    if argument.kind == "Random":
        return _random
    if argument.struct is not None:
        struct = argument.struct
        make = _maker(struct)
        if not argument.pointer:
            return make

        def pointer_to_struct(given: Any, keep: list[Any]) -> int:
            if isinstance(given, Bound):
                if given.struct is not struct:
                    raise TypeError(f"a {struct.name} is needed, not a {given.struct.name}")
                keep.append(given)
                return given.address
            made = make(given, keep)
            keep.append(made)
            return ctypes.addressof(made)

        return pointer_to_struct
    if argument.pointer:
        return _array_converter(argument)
    return _number_converter(argument)


@cache
def _maker(struct: Struct) -> Callable[[Any, list[Any]], ctypes.Structure]:
    """Return a function that makes a struct of an object's attributes of the same names, and adds
    them to its second argument. It is made of a text for the same reason as in `checked`."""
    names = {**_names(struct.fields), "_type": struct.c_type}
    body: list[str] = []
    for number, each in enumerate(struct.fields):
        body += [f"{each.name} = _given.{each.name}", *_lines(number, each, names)]
    text = [
        "def make(_given, _keep):",
        *(f"    {line}" for line in body),
        f"    _keep += ({', '.join(each.name for each in struct.fields)},)",
        f"    return _type({', '.join(f'_c{n}' for n in range(len(struct.fields)))})",
    ]
    exec("\n".join(text), names)
    return names["make"]


def _array_converter(argument: Argument) -> Callable[[Any, list[Any]], Any]:
    name, const = argument.name, argument.const
    dtype = np.dtype(NUMBERS[argument.kind][1])
    start_of: Any = (ctypes.c_char * 0).from_buffer

    def address(array: Any, keep: list[Any]) -> int | None:
        if array is None:
            return None
        if not isinstance(array, np.ndarray) or array.dtype != dtype:
            found = getattr(array, "dtype", type(array).__name__)
            raise TypeError(f"{name} must be an array of {dtype}, not of {found}")
        flags = array.flags
        if not flags.c_contiguous:
            raise TypeError(f"{name} must be contiguous")
        if not (const or flags.writeable):
            raise TypeError(f"{name} must be writable")
        keep.append(array)
        # NumPy tells an address some 15 times as slowly.
        return ctypes.addressof(start_of(array)) if flags.writeable else array.ctypes.data

    return address


def _bounds(kind: type[np.generic]) -> tuple[int, int]:
    """Return the smallest and the largest integer of a type."""
    bits = 8 * np.dtype(kind).itemsize
    signed = issubclass(kind, np.signedinteger)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _number_converter(argument: Argument) -> Callable[[Any, list[Any]], Any]:
    name, kind = argument.name, NUMBERS[argument.kind][1]
    if issubclass(kind, np.floating):
        return lambda given, _keep: float(given)
    if kind is np.bool_:
        return lambda given, _keep: bool(given)
    low, high = _bounds(kind)

    def integer(given: Any, _keep: list[Any]) -> int:
        number = operator.index(given)
        if not low <= number <= high:
            raise ValueError(f"{name} is {number}, outside {low} to {high}")
        return number

    return integer


# ---- random numbers ------------------------------------------------------------------------------


class _RandomStruct(ctypes.Structure):
    _fields_ = [
        ("bits", ctypes.c_void_p),
        ("poisson_of", ctypes.c_void_p),
        ("binomial_of", ctypes.c_void_p),
    ]


@cache
def _numpy_functions() -> tuple[int | None, int | None]:
    """Return the addresses of NumPy's C functions that draw (its documentation names both the
    functions and this way to them: "Extending", CFFI)."""
    from numpy.random import _generator

    library = ctypes.CDLL(_generator.__file__)  # pyright: ignore[reportAttributeAccessIssue]
    found = (library.random_poisson, library.random_binomial)
    poisson, binomial = (ctypes.cast(each, ctypes.c_void_p).value for each in found)
    return poisson, binomial


def _random(given: Any, keep: list[Any]) -> int:
    """Return the address of the C struct ``Random`` of a `numpy.random.Generator`."""
    if not isinstance(given, np.random.Generator):
        raise TypeError(f"a numpy.random.Generator is needed, not {type(given).__name__}")
    made = _RandomStruct(given.bit_generator.ctypes.bit_generator.value, *_numpy_functions())
    keep.extend((given, made))
    return ctypes.addressof(made)
