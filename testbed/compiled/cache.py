# SPDX-License-Identifier: Apache-2.0
"""The files in which compiled functions are kept, a file for each function and types of arguments.

Numba's own cache compiles again when any line of the function's file changes, but not when a
function that it calls, in another file, does: figures of old code were seen. Here the name of a
file has a digest of everything that is compiled into it: the bytecode of the function and of all
that it calls, the constants that these read, the types of the arguments with the fields of named
tuples, the processor, and the versions of Python and Numba. So a file is right or is not found.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

import numba
import numpy as np
from numba.core import config, types
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from testbed.caches import made_cache, owned, shared, user_cache

KEPT, KEPT_SECONDS = 4, 3600.0
"""How many states of a function, and how many folders of other versions, are kept in any case.

The others are kept for ``KEPT_SECONDS`` after their last use.
"""


class KernelCache:
    """The cache of one compiled function, with the methods that Numba's dispatcher calls."""

    def __init__(self, compiled: Dispatcher) -> None:
        self._compiled = compiled

    @property
    def cache_path(self) -> str:
        """Return the folder of the cache as text; Numba's dispatcher asks for it."""
        return str(_FOLDER)

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """Return what was compiled for these types of arguments, None if that is not there."""
        if _FOLDER is None:
            return None
        target_context.refresh()
        data = _read(self._file(sig, target_context.codegen()))
        return None if data is None else CompileResult._rebuild(target_context, *data)

    def save_overload(self, sig: Any, data: CompileResult) -> None:
        """Keep what was compiled, unless it has addresses of this process in it."""
        if _FOLDER is None or data.lifted or data.library.has_dynamic_globals:
            return
        file = self._file(sig, data.codegen)
        with suppress(OSError):  # a full disk: the next process compiles as this one did
            _write(_FOLDER / file, dumps(data._reduce()))
            _forget(_FOLDER.glob(f"{self._name}-*"), lambda path: path.name.rsplit("-", 1)[0])

    def flush(self) -> None:
        """Do nothing: what is in the cache is right."""

    @property
    def _name(self) -> str:
        function = self._compiled.py_func
        return f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")

    def _file(self, signature: Any, codegen: Any) -> str:
        arguments = signature.args if hasattr(signature, "args") else signature
        for_types = repr([codegen.magic_tuple(), *map(_type_text, arguments)])
        return f"{self._name}-{_digest(state(self._compiled))}-{_digest(for_types)}.nbc"


def state(compiled: Dispatcher) -> str:
    """Return a text that changes with the function, whatever it calls and the constants they read.

    Line numbers, comments and names of files are no part of it.
    """
    found: dict[Any, str] = {}
    todo: list[Any] = [compiled]
    while todo:
        function = todo.pop()
        if function in found:
            continue
        found[function] = ""  # it may call itself
        python = function.py_func if isinstance(function, Dispatcher) else function
        parts = [f"{python.__module__}.{python.__qualname__}", _code_text(python.__code__)]
        if isinstance(function, Dispatcher):
            parts.append(repr(sorted((k, str(v)) for k, v in function.targetoptions.items())))
        parts.append(repr(python.__defaults__))
        for name, value in _read_by(python):
            if isinstance(value, Dispatcher | FunctionType):
                todo.append(value)
                value = f"{value.__module__}.{value.__qualname__}"
            parts.append(f"{name}={_value_text(value)}")
        found[function] = "\n".join(parts)
    return "\n\n".join(found.values())


def _read_by(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of every global and closure variable that a function reads.

    For a module that it names, the attributes that it may read are yielded, too.
    """
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents
    names = _names(function.__code__)
    for name in names:
        if name not in function.__globals__:
            continue  # a builtin, or an attribute
        value = function.__globals__[name]
        yield name, value
        if isinstance(value, ModuleType) and value.__name__.split(".")[0] not in _LIBRARIES:
            for attribute in names:
                if hasattr(value, attribute):
                    yield f"{name}.{attribute}", getattr(value, attribute)


_LIBRARIES = ("numpy", "numba", "math")


def _names(code: CodeType) -> list[str]:
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in _names(each)]
    return sorted({*code.co_names, *inner})


def _code_text(code: CodeType) -> str:
    constants = [
        _code_text(each) if isinstance(each, CodeType) else _value_text(each)
        for each in code.co_consts
    ]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    counts = code.co_argcount, code.co_kwonlyargcount, code.co_flags
    return repr((code.co_code, constants, names, counts))


def _value_text(value: Any) -> str:
    """Return a text that identifies a constant and is the same in every process."""
    if isinstance(value, frozenset):
        return repr(sorted(map(_value_text, value)))
    if isinstance(value, tuple):
        return f"{type(value).__qualname__}({', '.join(map(_value_text, value))})"
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype.str}{np.shape(value)}{_digest(value.tobytes())}"
    if isinstance(value, ModuleType):
        return f"{value.__name__} {getattr(value, '__version__', '')}"
    if isinstance(value, type):
        fields = getattr(value, "_fields", "")
        return f"{value.__module__}.{value.__qualname__} {fields}"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return f"{type(value).__qualname__} {value!r}"
    return _digest(dumps(value))


def _type_text(kind: Any) -> str:
    """Return an argument's type as a text, with fields of named tuples and states of functions.

    Numba's own text of it has neither.
    """
    if isinstance(kind, types.Dispatcher):
        return state(kind.dispatcher)
    if isinstance(kind, types.BaseTuple):
        named, parts = getattr(kind, "instance_class", None), cast(Iterable[Any], kind)
        return f"{'' if named is None else _value_text(named)}({', '.join(map(_type_text, parts))})"
    return str(kind)


def _digest(content: str | bytes) -> str:
    data = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:20]


# ---- files ---------------------------------------------------------------------------------------


def is_empty() -> bool:
    """Return True if no function was in the cache when this program started."""
    return _EMPTY


def _write(path: Path, data: bytes) -> None:
    """Write ``data`` to a file atomically, preceded by its SHA-256 digest (32 bytes)."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        try:
            file.write(hashlib.sha256(data).digest() + data)
            file.close()
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)
            raise


def _read(name: str) -> Any:
    """Return what was written in a file of that name; None if there is none or it is damaged."""
    for folder in filter(None, (_FOLDER, _OWNERS)):
        path = folder / name
        with suppress(FileNotFoundError, PermissionError):
            whole = path.read_bytes()
            if folder == _FOLDER:
                os.utime(path)
            digest, data = whole[:32], whole[32:]
            return pickle.loads(data) if hashlib.sha256(data).digest() == digest else None
    return None


def _forget(paths: Iterable[Path], group: Any = lambda path: path.name) -> None:
    """Remove files or folders that were not used for ``KEPT_SECONDS``.

    The ``KEPT`` most recently used groups are kept in any case; ``group`` maps a path to its group.
    """
    used: dict[str, float] = {}
    members: dict[str, list[Path]] = {}
    for path in paths:
        with suppress(OSError):  # another process was faster
            used[group(path)] = max(used.get(group(path), 0.0), path.stat().st_mtime)
            members.setdefault(group(path), []).append(path)
    for name in sorted(used, key=lambda name: used[name], reverse=True)[KEPT:]:
        if time.time() - used[name] > KEPT_SECONDS:
            for path in members[name]:
                with suppress(OSError):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _folder() -> Path | None:
    """Create this user's cache folder and return its path; None if no place is writable.

    Raises:
        PermissionError: The only places are ones where others could put code.
    """
    configured = config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]
    open_to_others = None
    users = user_cache("canary-kernels")
    usual = [_BESIDE] if Path(__file__).stat().st_uid == os.geteuid() else []
    for place in [Path(configured)] if configured else [*usual, *([users] if users else [])]:
        folder = place / _NAME
        try:
            if place not in usual:  # who can exchange the parents of those can change the program
                folder = made_cache(folder)
            for made in (place, folder):
                made.mkdir(mode=0o755, exist_ok=True)
                found = made.stat()
                if shared(found) or not owned(found):
                    open_to_others = made
                    break
            else:
                tempfile.TemporaryFile(dir=folder).close()
                os.utime(folder)
                _forget(place.glob("kernels-*"))
                return folder
        except OSError as error:
            if isinstance(error, PermissionError) and error.errno is None:  # of `made_cache`
                raise PermissionError(f"{error}: set XDG_CACHE_HOME to a folder of yours") from None
            continue
    if open_to_others is not None:
        raise PermissionError(
            f"{open_to_others} belongs to another user or can be written by others, who could "
            "put code there: remove it; it is made again"
        )
    return None


def _owners_folder() -> Path | None:
    """Return the cache folder of the owner of this program, which other users may read.

    Return None if it is this user's own folder, or if other users could write to it.
    """
    folder = _BESIDE / _NAME
    try:
        found = [place.stat() for place in (_BESIDE, folder)]
    except OSError:
        return None
    safe = all(owned(each) and not shared(each) for each in found)
    return folder if safe and folder != _FOLDER else None


_BESIDE = Path(__file__).parent / "__pycache__"
_NAME = f"kernels-{sys.implementation.cache_tag}-numba-{numba.__version__}"
_FOLDER = _folder()
_OWNERS = _owners_folder()
_EMPTY = all(
    folder is None or next(folder.glob("*.nbc"), None) is None for folder in (_FOLDER, _OWNERS)
)
