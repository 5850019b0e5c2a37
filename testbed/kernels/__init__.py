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

import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary_softswitch.compiler.build import load_library, read_c
from testbed.kernels.calls import Bound, bound, checked
from testbed.kernels.prototypes import Struct, declared

__all__ = ["FLAGS", "HEADER", "Bound", "Kernels", "c_text", "compile_all", "has_kernels"]

FLAGS = (
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    # A kernel that calls another one of its file means that, and not the C library's of its name.
    *(("-Wl,-Bsymbolic", "-Wl,--no-as-needed") if sys.platform == "linux" else ()),
    "-lm",
)
HEADER = Path(__file__).with_name("kernels.h")


class Kernels:
    """The kernels of a C file, as attributes; the file is compiled when the first one is called.

    Calling one raises TypeError if an argument is missing, unknown or of another type, and
    ValueError if shapes do not fit.

    Args:
        source: The C file. What it includes must be beside it.

    >>> import tempfile
    >>> import numpy as np
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
        return bound(self._library().structs[struct], given)

    def _library(self) -> _Loaded:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._source)
            return self._loaded


def compile_all(files: Iterable[Path], progress: Callable[[float], None]) -> None:
    """Compile the C files that have kernels, unless that was done before, several at a time;
    ``progress`` is called with the share that is done."""
    chosen = [file for file in files if has_kernels(file)]
    with ThreadPoolExecutor() as pool:
        for done, _ in enumerate(pool.map(_load, chosen), 1):
            progress(done / len(chosen))


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
    structs: Mapping[str, Struct]


def _load(source: Path) -> _Loaded:
    """Compile a file and return what it has."""
    code = c_text(source)
    prototypes, structs = declared(code)
    signatures = {p.name: (p.result, *(a.c_type for a in p.arguments)) for p in prototypes}
    library = load_library(code, signatures, FLAGS)
    return _Loaded({p.name: checked(p, getattr(library, p.name)) for p in prototypes}, structs)
