# SPDX-License-Identifier: Apache-2.0
"""Kernels: C functions that Python calls by name, with arguments by name that are checked.

The kernels of a module are in a C file beside it. What Python knows of them it reads from that
file: the prototype of each function marked ``KERNEL``, and the structs that these take. So names,
types and shapes are written once, in C:

    KERNEL void count(int64_t n, const int32_t links[n], int64_t n_links, int64_t packets[n_links]);

is called as ``KERNELS.count(links=links, packets=packets)``. An array must have the dtype and the
shape of the prototype and be contiguous; nothing is converted or copied. An integer that is the
length of an array, here ``n`` and ``n_links``, need not be passed. A struct is made of an object's
attributes of the same names, so a named tuple of arrays is passed as such. `Kernels.bound` makes it
once, where many short calls take the same.

The compiler is that of the soft switch. A kernel runs without the interpreter's lock, so threads
run kernels side by side. A sum is added in the order that the C code has, on every machine: the
compiler may neither reorder floating-point operations nor fuse two of them into one.
"""

from __future__ import annotations

import ctypes
import operator
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from testbed.softswitch.compiler.build import load_library, read_c

FLAGS = (
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    *(("-Wl,--no-as-needed",) if sys.platform == "linux" else ()),
    "-lm",
)
HEADER = Path(__file__).with_suffix(".h")

_NUMBERS: dict[str, tuple[Any, type[np.generic]]] = {
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


class Kernels:
    """The kernels of a C file, as attributes; the file is compiled when the first one is called.

    Calling one raises TypeError if an argument is missing, unknown or of another type, and
    ValueError if shapes do not fit.

    Args:
        source: The C file. What it includes must be beside it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = Path(folder) / "total.c"
    ...     _ = source.write_text(
    ...         "KERNEL double total(int64_t n, const double x[n]) {"
    ...         " double sum = 0; for (int64_t i = 0; i < n; i++) sum += x[i]; return sum; }"
    ...     )
    ...     Kernels(source).total(x=np.array([1.0, 2.5]))
    3.5
    """

    def __init__(self, source: Path) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None

    @classmethod
    def beside(cls, module: str, name: str | None = None) -> Kernels:
        """Return the kernels of the C file beside a Python file (its ``__file__``): the one of the
        same name, or ``name``."""
        path = Path(module).with_suffix(".c")
        return cls(path.with_name(name) if name else path)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        function = self._library().functions.get(name)
        if function is None:
            raise AttributeError(f"{self._source.name} has no kernel {name!r}")
        self.__dict__[name] = function
        return function

    def bound(self, struct: str, given: Any) -> Bound:
        """Return the C struct of this name made of an object, which kernels of every file that
        declares it alike take in place of the object. Its arrays stay alive as long as it does."""
        return _bound(self._library().structs[struct], given)

    def _library(self) -> _Loaded:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._source)
            return self._loaded


@dataclass(frozen=True)
class Bound:
    """A C struct made of an object, see `Kernels.bound`."""

    struct: _Struct
    address: int
    keep: list[Any]


def _bound(struct: _Struct, given: Any) -> Bound:
    keep: list[Any] = []
    made = _maker(struct)(given, keep)
    keep.append(made)
    return Bound(struct, ctypes.addressof(made), keep)


def compile_all(files: Iterable[Path]) -> None:
    """Compile the C files that have kernels, unless that was done before, several at a time."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(_load, (file for file in files if has_kernels(file))))


def has_kernels(file: Path) -> bool:
    """Return True if a C file has a function that is marked as a kernel."""
    return re.search(r"^KERNEL ", file.read_text(encoding="utf-8"), re.M) is not None


def c_text(source: Path) -> str:
    """Return all that is compiled for a file of kernels."""
    return HEADER.read_text(encoding="utf-8") + read_c(source)


@dataclass(frozen=True)
class _Loaded:
    """The kernels and the structs of a C file, by name."""

    functions: dict[str, Callable[..., Any]]
    structs: Mapping[str, _Struct]


def _load(source: Path) -> _Loaded:
    """Compile a file and return what it has."""
    code = c_text(source)
    prototypes, structs = _declared(code)
    signatures = {p.name: (p.result, *(a.c_type for a in p.arguments)) for p in prototypes}
    library = load_library(code, signatures, FLAGS)
    return _Loaded({p.name: _kernel(p, getattr(library, p.name)) for p in prototypes}, structs)


# ---- what the C text declares --------------------------------------------------------------------


@dataclass(frozen=True)
class _Argument:
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
    struct: _Struct | None

    @property
    def c_type(self) -> Any:
        """Return the type in ctypes."""
        if self.pointer:
            return ctypes.c_void_p
        return self.struct.c_type if self.struct else _NUMBERS[self.kind][0]


@dataclass(frozen=True)
class _Struct:
    name: str
    fields: tuple[_Argument, ...]
    c_type: type[ctypes.Structure] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        members = [(each.name, each.c_type) for each in self.fields]
        made = type(self.name, (ctypes.Structure,), {"_fields_": members})
        object.__setattr__(self, "c_type", made)


@dataclass(frozen=True)
class _Prototype:
    name: str
    result: Any
    arguments: tuple[_Argument, ...]


_STRUCT = re.compile(r"^typedef struct(?: \w+)? \{(.*?)^\} (\w+);", re.M | re.S)
_KERNEL = re.compile(r"^KERNEL (\w+) (\w+)\((.*?)\)\s*[{;]", re.M | re.S)
_DECLARED = re.compile(r"(const )?(\w+) (\*(?:restrict )?)?([a-zA-Z]\w*)((?:\[[^]]+\])*)")
_LENGTH = re.compile(r"(?:(\w+) \+ )?(\d+)|(\w+)")


_STRUCTS: dict[_Struct, _Struct] = {}
"""Every struct that a C text declared: what two texts declare alike is one."""


def _declared(code: str) -> tuple[list[_Prototype], dict[str, _Struct]]:
    """Return the prototypes of the kernels that a C text declares, and its structs by name."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", code, flags=re.S)
    structs: dict[str, _Struct] = {}
    for body, name in _STRUCT.findall(text):
        members = [" ".join(member.split()) for member in body.split(";") if member.strip()]
        if all(_known(member, structs) for member in members):
            new = _Struct(name, tuple(_argument(each, structs) for each in members))
            structs[name] = _STRUCTS.setdefault(new, new)
    structs["Random"] = _RANDOM
    prototypes = []
    for result, name, body in _KERNEL.findall(text):
        declared = [" ".join(each.split()) for each in body.split(",")]
        arguments = tuple(_argument(each, structs) for each in declared if each != "void")
        returned = None if result == "void" else _NUMBERS[result][0]
        prototypes.append(_Prototype(name, returned, arguments))
    return prototypes, structs


def _known(member: str, structs: Mapping[str, _Struct]) -> bool:
    """Return True if Python can make this field of a struct; the others are for C alone."""
    found = _DECLARED.fullmatch(member)
    return bool(found) and (found[2] in _NUMBERS or found[2] in structs) and not found[5]


def _argument(declared: str, structs: Mapping[str, _Struct]) -> _Argument:
    found = _DECLARED.fullmatch(declared)
    if not found or (found[2] not in _NUMBERS and found[2] not in structs):
        raise TypeError(f"a kernel cannot have the argument {declared!r}")
    const, kind, pointer, name, lengths = found.groups()
    shape = tuple(re.findall(r"\[([^]]+)\]", lengths))
    if any(not _LENGTH.fullmatch(length) for length in shape):
        raise TypeError(f"the lengths of {declared!r} must be names, numbers or name + number")
    struct = structs.get(kind)
    return _Argument(name, kind, bool(pointer or shape), bool(const), shape, struct)


# ---- calls ---------------------------------------------------------------------------------------


def _kernel(prototype: _Prototype, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a Python function with a kernel's arguments by name, which checks them and calls it.

    It is made of a text, as those of named tuples are, because some methods call kernels thousands
    of times: its body is a few lines for each argument, instead of a loop over the arguments. No
    argument of a kernel begins with an underscore.
    """
    lengths = {n: None for a in prototype.arguments for t in a.shape if (n := _length(t)[0])}
    convert = [_converter(each) for each in prototype.arguments]
    names: dict[str, Any] = {
        "_arguments": prototype.arguments,
        "_convert": convert,
        "_function": function,
        "_ndarray": np.ndarray,
        "_Bound": Bound,
        "_addressof": ctypes.addressof,
        "_buffer": (ctypes.c_char * 0).from_buffer,
        "_bad_shape": _bad_shape,
    }
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


def _lines(number: int, argument: _Argument, names: dict[str, Any]) -> list[str]:
    """Return the lines that make what C gets, ``_c0`` for argument 0, of what Python passes.

    What they need besides is added to ``names``. What is not of the usual type goes to the
    converter, which converts or refuses it.
    """
    name, slow = argument.name, f"_c{number} = _convert[{number}]({argument.name}, _keep)"
    if argument.struct is not None and argument.kind != "Random":
        names[f"_s{number}"] = argument.struct
        usual = f"{name}.__class__ is _Bound and {name}.struct is _s{number}"
        return [f"if {usual}: _c{number} = {name}.address", f"else: {slow}"]
    if not argument.pointer:
        return [] if _is_length(name, names) else _number_lines(number, argument, names)
    if argument.kind == "Random":
        return [slow]
    names[f"_d{number}"] = np.dtype(_NUMBERS[argument.kind][1])
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
        length, more = _length(text)
        wanted = str(more) if length is None else f"{length} + {more}"
        refuse = f"if {wanted} != _shape[{at}]: {bad.format(text=text, wanted=wanted)}"
        if length is not None:
            lines.append(f"    if {length} is None: {length} = _shape[{at}] - {more}")
            refuse = f"el{refuse}"
        lines.append(f"    {refuse}")
    return lines


def _is_length(name: str, names: Mapping[str, Any]) -> bool:
    """Return True if an argument is the length of an array."""
    return any(_length(text)[0] == name for each in names["_arguments"] for text in each.shape)


def _number_lines(number: int, argument: _Argument, names: dict[str, Any]) -> list[str]:
    """Return the lines for a number; see `_lines`."""
    name, kind = argument.name, _NUMBERS[argument.kind][1]
    if issubclass(kind, np.integer):
        low, high = names[f"_low{number}"], names[f"_high{number}"] = _bounds(kind)
        usual = f"{name}.__class__ is int and _low{number} <= {name} <= _high{number}"
        assert low < high
    else:
        usual = f"{name}.__class__ is {'bool' if kind is np.bool_ else 'float'}"
    slow = f"_c{number} = _convert[{number}]({name}, _keep)"
    return [f"if {usual}: _c{number} = {name}", f"else: {slow}"]


def _bad_shape(argument: _Argument, shape: tuple[int, ...], text: str, wanted: int) -> None:
    """Raise ValueError: an array has not the shape of the prototype."""
    if not text:
        raise ValueError(f"{argument.name} must have {len(argument.shape)} dimensions: {shape}")
    raise ValueError(
        f"{argument.name}[{']['.join(argument.shape)}] has the shape {shape}, where {text} is "
        f"{wanted}"
    )


@cache
def _length(text: str) -> tuple[str | None, int]:
    """Return the name in a length and what is added to it: ``n + 1`` is ("n", 1), 4 (None, 4)."""
    found = _LENGTH.fullmatch(text)
    assert found is not None
    return (found[3], 0) if found[3] and not found[3].isdigit() else (found[1], int(found[2]))


def _converter(argument: _Argument) -> Callable[[Any, list[Any]], Any]:
    """Return a function that makes what C gets of what Python passes; it adds to its second
    argument what must be kept until the call is over."""
    if argument.kind == "Random":
        return _random
    if argument.struct is not None:
        struct = argument.struct
        make = _maker(struct)

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
def _maker(struct: _Struct) -> Callable[[Any, list[Any]], ctypes.Structure]:
    """Return a function that makes a struct of an object's attributes of the same names."""
    fields = [
        (each.name, _maker(each.struct) if each.struct and not each.pointer else _converter(each))
        for each in struct.fields
    ]

    def make(given: Any, keep: list[Any]) -> ctypes.Structure:
        return struct.c_type(*[convert(getattr(given, name), keep) for name, convert in fields])

    return make


def _array_converter(argument: _Argument) -> Callable[[Any, list[Any]], Any]:
    name, const = argument.name, argument.const
    dtype = np.dtype(_NUMBERS[argument.kind][1])
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


def _number_converter(argument: _Argument) -> Callable[[Any, list[Any]], Any]:
    name, kind = argument.name, _NUMBERS[argument.kind][1]
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


_RANDOM = _Struct("Random", ())


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
