# SPDX-License-Identifier: Apache-2.0
"""Compiled (Numba) functions: `njit` and `kernel` say how they are compiled and cached.

The cache (`testbed.compiled.cache`) follows what a function calls: an edit makes what was edited
and what calls it compile again, and nothing else.

The body of a compiled function is machine code to a coverage tool, which cannot see it run: what
has one of these decorators is left out of the coverage figure (pyproject.toml).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np


@contextmanager
def _elsewhere(file: str) -> Iterator[None]:
    """Run the block in the folder of this module if the current one has a file of that name."""
    if not os.path.lexists(file):
        yield
        return
    here = os.open(".", os.O_PATH)
    os.chdir(Path(__file__).parent)
    try:
        yield
    finally:
        os.fchdir(here)
        os.close(here)


# Numba takes settings from this file, also where compiled code is kept, which it unpickles.
with _elsewhere(".numba_config.yaml"):
    import numba
    from numba.core import config, event, types
    from numba.core.dispatcher import Dispatcher
config._config_fname = os.devnull  # it looks again whenever it compiles

from testbed.compiled.cache import KernelCache, is_empty  # noqa: E402, which imports numba

T = TypeVar("T")


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Return a function compiled with `numba.njit`, without the interpreter's lock and cached.

    The cache is `testbed.compiled.cache`; ``options`` are passed to `numba.njit`. Without a
    function, the result is a decorator.
    """
    if function is None:
        return partial(njit, **options)
    # Nobody calls one through a C callback: the wrapper for it is a twelfth of what is compiled.
    ours: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
    compiled: Any = numba.njit(**ours, **options)(function)
    compiled._cache = KernelCache(compiled)
    compiled.get_call_template = partial(_call_template, compiled)
    return compiled


def _call_template(called: Dispatcher, args: Iterable[Any], named: Mapping[str, Any]) -> Any:
    """Resolve what compiled code calls with constants as a call with any values of their types.

    Numba would compile the called function, and all that it calls, once more for each constant: a
    fifth of what an installation compiled.
    """
    kinds = {name: types.unliteral(kind) for name, kind in named.items()}
    return Dispatcher.get_call_template(called, tuple(map(types.unliteral, args)), kinds)


kernel = njit(_nrt=False)
"""Compiles what allocates nothing, without counts of references: to count them at every access to
an array of a named tuple took 5 to 150 times as long as the arithmetic."""


@njit(inline="always")
def scramble(x):
    """Return an unsigned 64-bit number mixed (splitmix64): sums of them tell multisets apart."""
    x = (x + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def timed(work: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    """Return the result of ``work(*arguments)`` and its processor seconds, of all threads, without
    compilation: other programs on a busy machine do not change them."""
    compiling = _Compiling()
    begin = time.process_time()
    with event.install_listener("numba:compile", compiling):
        result = work(*arguments)
    return result, time.process_time() - begin - compiling.seconds


class _Compiling(event.Listener):
    """Counts the processor seconds of Numba's compilations; one may begin within another."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._begin = 0, 0.0

    def on_start(self, event: object) -> None:
        """Begin a compilation."""
        if self._depth == 0:
            self._begin = time.process_time()
        self._depth += 1

    def on_end(self, event: object) -> None:
        """End a compilation."""
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.process_time() - self._begin


def all_to_compile() -> bool:
    """Return True if nothing was in the cache when this program started: to compile all takes a
    minute, once an installation."""
    return is_empty()
