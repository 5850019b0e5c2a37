# SPDX-License-Identifier: Apache-2.0
"""Methods in Python files that the user names: ``METHODS=worst.py``.

Such a file has one class with the interface `analysis.methods.base.Localizer`. If it has several,
it names one of them: ``METHOD = WorstSegments``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from analysis.methods.base import Localizer
from analysis.methods.diagnosis import Diagnosis
from analysis.telemetry.telemetry import MissingTelemetry, Telemetry
from testbed.errors import UserError
from testbed.user_files import UserFile

FACE = ("localize", "telemetry_bytes", "probe_packets")
"""The functions that a method must have, see `Localizer`."""

SUFFIX = ".py"


class MethodFileError(UserError):
    """A method file is wrong. The message is one line with the file and, if known, the line."""


def method_files(names: list[str]) -> dict[str, Path]:
    """Return the paths of the method files among ``names``, by the names that tables show.

    >>> method_files(["flock", "mine/worst.py"])
    {'worst.py': PosixPath('mine/worst.py')}

    Raises:
        ValueError: Two of the files have the same name.
    """
    found: dict[str, Path] = {}
    for path in (Path(name) for name in names if name.endswith(SUFFIX)):
        if found.setdefault(path.name, path) != path:
            raise UserError(
                f"{found[path.name]} and {path}: rename one, because tables would mix them up"
            )
    return found


def constructor_in(path: Path) -> Callable[..., Localizer]:
    """Return the constructor of the method in a file. The file is run once in a process, and again
    after it has changed.

    Raises:
        ValueError: The file cannot be run or has no method (one line with the file and the line).
    """
    try:
        content = path.read_bytes() if path.is_file() else b""  # a pipe would not end
    except OSError:
        content = b""
    return _constructor_in(path, content)


@cache
def _constructor_in(path: Path, content: bytes) -> Callable[..., Localizer]:
    del content  # a clock of files may not have moved on since the last change
    module = _file(path).load()
    if hasattr(module, "METHOD"):
        if not _is_method(module.METHOD):
            raise MethodFileError(f"METHOD of {path} must be a class with {', '.join(FACE)}")
        return module.METHOD
    own = [value for value in vars(module).values() if _is_method(value)]
    there: list[Any] = [value for value in own if value.__module__ == module.__name__]
    if len(there) == 1:
        return there[0]
    if there:
        names = [each.__name__ for each in there]
        raise MethodFileError(
            f"{path} has the methods {', '.join(names)}: choose one with METHOD = {names[0]}"
        )
    raise MethodFileError(
        f"{path} has no method: write a class with {', '.join(FACE)}, as "
        "docs/reference/methods.md shows"
    )


def make_from_file(
    path: Path, constructor: Callable[..., Localizer], arguments: Mapping[str, Any]
) -> Localizer:
    """Return a method of a file, constructed with the parameters ``arguments``. Exceptions of its
    code, in the constructor and later, become a MethodFileError with the file and the line."""
    file = _file(path)
    with file.blamed(constructor):
        method = constructor(**arguments)
    return _FileMethod(file, method)


def _file(path: Path) -> UserFile:
    return UserFile(path, "method", MethodFileError)


def _is_method(value: Any) -> bool:
    """Return whether ``value`` is a class of methods, and not an abstract one or a protocol."""
    has_face = all(callable(getattr(value, face, None)) for face in FACE)
    return inspect.isclass(value) and has_face and not inspect.isabstract(value)


class _FileMethod:
    """A method of a file whose exceptions become a MethodFileError with the file and the line. All
    other attributes are those of the method."""

    def __init__(self, file: UserFile, method: Localizer) -> None:
        self._file, self._method = file, method

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    @property
    def name(self) -> str:
        """Return the name that the file's class gives its method."""
        return self._method.name

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        """Return the method's diagnosis, after a check of its types and shapes."""
        with self._file.blamed(self._method.localize, passed=(MissingTelemetry,)):
            diagnosis = self._method.localize(telemetry)
            _check(diagnosis, telemetry.topology.n_links)
        return diagnosis

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        """Return the bytes of all measurement records that the method reads."""
        with self._file.blamed(self._method.telemetry_bytes, passed=(MissingTelemetry,)):
            return int(self._method.telemetry_bytes(telemetry))

    def probe_packets(self, telemetry: Telemetry) -> int:
        """Return how many packets were sent only for the method's measurements."""
        with self._file.blamed(self._method.probe_packets, passed=(MissingTelemetry,)):
            return int(self._method.probe_packets(telemetry))


def _check(diagnosis: Any, n_links: int) -> None:
    """Check that a method returned a valid diagnosis of a fabric with ``n_links`` directed links.

    Raises:
        MethodFileError: A type, a shape or a link id is wrong (one line).
    """
    if not isinstance(diagnosis, Diagnosis):
        raise MethodFileError(f"localize() returns {repr(diagnosis)[:60]}: return a Diagnosis")
    if diagnosis.native not in ("directed", "undirected"):
        raise MethodFileError(f"native={diagnosis.native!r}: use 'directed' or 'undirected'")
    flagged = np.asarray(diagnosis.flagged)
    if flagged.ndim != 1 or (len(flagged) and flagged.dtype.kind not in "iu"):
        raise MethodFileError("flagged must be a list of link numbers")
    if (np.diff(flagged) <= 0).any() or (
        len(flagged) and not 0 <= flagged[0] <= flagged[-1] < n_links
    ):
        raise MethodFileError(f"flagged must be link numbers from 0 to {n_links - 1}, ascending")
    for name in ("success", "score"):
        shape = np.shape(getattr(diagnosis, name))
        if shape != (n_links,):
            raise MethodFileError(f"{name} has the shape {shape}: {n_links} links need one each")
