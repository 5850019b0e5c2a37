"""Compiled (Numba) functions, and the one place that says how they are compiled and cached.

Numba keeps what it compiled on disk and compiles again when the function's own file changes, but
not when a function that it calls, in another file, does: figures of old code were seen. So the
cache is a folder of its own for each state of all files that hold compiled functions, named by a
digest of them. The functions of a plugged-in package, or of a script that imports this project, go
there as well, and so notice a change in what they call here.

The body of a compiled function is machine code to a coverage tool, which cannot see it run: what
has one of these decorators is left out of the coverage figure (pyproject.toml).
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
from numba.core import config

__all__ = ["kernel", "njit"]

ROOT = Path(__file__).parents[2]
PACKAGES = ("testbed", "analysis")
"""Where compiled functions are: neither imports the other here, these are folders to read."""

KEPT, KEPT_SECONDS = 4, 3600.0
"""Folders of other states of the sources that stay, and for how long all used ones do."""


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit` as it is used all over: cached, and without the interpreter's lock."""
    if function is None:
        return partial(njit, **options)
    return numba.njit(cache=_cached(inspect.getfile(function)), nogil=True, **options)(function)


kernel = njit(_nrt=False)
"""Compiles what allocates nothing, without counts of references: to count them at every access to
an array of a named tuple took 5 to 150 times as long as the arithmetic."""


def _sources() -> dict[str, str]:
    """The digest of each file of this project that has compiled functions, by its path."""
    found = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            text = file.read_bytes()
            if b"njit" in text or b"@kernel" in text:
                found[str(file.relative_to(ROOT))] = hashlib.sha256(text).hexdigest()
    return found


_STATE = _sources()


@cache
def _changed(file: str) -> bool:
    """Whether a file of this project is no more what it was when this program started."""
    path = Path(file)
    known = _STATE.get(str(path.relative_to(ROOT))) if path.is_relative_to(ROOT) else None
    return known is not None and hashlib.sha256(path.read_bytes()).hexdigest() != known


_late: list[str] = []


def _cached(file: str) -> bool:
    """Whether what is compiled of this file may be kept.

    Not if the file was edited between this program's start and its import, as the folder is named
    by what was there at the start; and nothing from then on, as it may call what was edited.
    """
    if _changed(file):
        _late.append(file)
    return _FOLDER is not None and not _late


def _folder() -> Path | None:
    """The cache of these sources, made; None if no place can be written to."""
    name = "kernels-" + hashlib.sha256(repr(sorted(_STATE.items())).encode()).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    here, everywhere = Path(__file__).parent / "__pycache__", Path(home) / "canary-kernels"
    given = config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]
    for place in (Path(given),) if given else (here, everywhere):
        folder = place / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            os.utime(folder)
        except OSError:
            continue
        _forget(place)
        return folder
    return None


def _forget(place: Path) -> None:
    """Remove the folders of sources that are gone: the one last used stays longest."""
    used = []
    for folder in place.glob("kernels-*"):
        try:
            used.append((folder.stat().st_mtime, folder))
        except OSError:  # another process was faster
            continue
    used.sort(reverse=True)
    for when, folder in used[KEPT:]:
        if time.time() - when > KEPT_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


_FOLDER = _folder()
if _FOLDER is not None:
    config.CACHE_DIR = str(_FOLDER)  # pyright: ignore[reportAttributeAccessIssue]
