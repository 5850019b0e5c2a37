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
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from testbed.caches import owned, shared, user_cache


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
    from numba.core import config, event
    from numba.core.caching import IndexDataCacheFile
config._config_fname = os.devnull  # it looks again whenever it compiles

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
PACKAGES = ("testbed", "analysis")
"""Where compiled functions are: neither imports the other here, these are folders to read."""

KEPT, KEPT_SECONDS = 4, 3600.0
"""Folders of other states of the sources that stay, and for how long all used ones do."""


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit` as it is used all over: cached, and without the interpreter's lock."""
    if function is None:
        return partial(njit, **options)
    kept = _cached(inspect.getfile(function))
    compiled: Any = numba.njit(cache=kept, nogil=True, **options)(function)
    if kept:
        compiled._cache._cache_file.__class__ = _Checked
    return compiled


class _Checked(IndexDataCacheFile):
    """Numba's files of a function, each begun with a hash of the rest: what is damaged is compiled
    again. Numba would fail on it at every start, or run it."""

    def _save_index(self, overloads: Any) -> None:
        self._write(self._index_path, (self._version, self._source_stamp, overloads))

    def _load_index(self) -> Any:
        found = self._read(self._index_path)
        if found is None or found[:2] != (self._version, self._source_stamp):
            return {}
        return found[2]

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _load_data(self, name: str) -> Any:
        found = self._read(self._data_path(name))
        if found is None:
            raise FileNotFoundError  # so Numba compiles
        return found

    def _write(self, path: str, content: Any) -> None:
        data = self._dump(content)
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(data).digest() + data)

    def _read(self, path: str) -> Any:
        for each in (Path(path), *_of_owner(path)):
            with suppress(FileNotFoundError, PermissionError):
                whole = each.read_bytes()
                digest, data = whole[:32], whole[32:]
                return pickle.loads(data) if hashlib.sha256(data).digest() == digest else None
        return None


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
    """The cache of these sources, made; None if no place can be written to.

    Raises:
        PermissionError: The only places are ones where others could put code.
    """
    given = config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue]
    open_to_others = None
    users = user_cache("canary-kernels")
    usual = [_BESIDE] if Path(__file__).stat().st_uid == os.geteuid() else []
    for place in [Path(given)] if given else [*usual, *([users] if users else [])]:
        folder = place / _NAME
        try:
            for made in (place, folder):
                made.mkdir(mode=0o755, parents=True, exist_ok=True)
                found = made.stat()
                if shared(found) or not owned(found):
                    open_to_others = made
                    break
            else:
                tempfile.TemporaryFile(dir=folder).close()
                os.utime(folder)
                _forget(place)
                return folder
        except OSError:
            continue
    if open_to_others is not None:
        raise PermissionError(
            f"{open_to_others} is another user's or can be written by others, who could put code "
            "there: remove it (it is made again)"
        )
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


def timed(work: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    """What ``work`` returns, and its seconds, less those of compiling: that is done once."""
    compiling: list[float] = []
    begin = time.perf_counter()
    with event.install_timer("numba:compile", compiling.append):
        result = work(*arguments)
    return result, time.perf_counter() - begin - sum(compiling)


def nothing_kept() -> bool:
    """Whether all that is called now has to be compiled first: a minute, once a state of the code.

    As it was when this program started.
    """
    return _EMPTY


def _owners_folder() -> Path | None:
    """The cache that the owner of this program has beside it, for others to read; None if it is
    this user's, or others could put code there. Root writes nothing into a user's folders."""
    folder = _BESIDE / _NAME
    try:
        found = [place.stat() for place in (_BESIDE, folder)]
    except OSError:
        return None
    safe = all(owned(each) and not shared(each) for each in found)
    return folder if safe and folder != _FOLDER else None


def _of_owner(path: str) -> list[Path]:
    """Where the owner of this program has what this user's cache has at ``path``."""
    if _OWNERS is None or _FOLDER is None or not Path(path).is_relative_to(_FOLDER):
        return []
    return [_OWNERS / Path(path).relative_to(_FOLDER)]


_BESIDE = Path(__file__).parent / "__pycache__"
_NAME = "kernels-" + hashlib.sha256(repr(sorted(_STATE.items())).encode()).hexdigest()[:16]
_FOLDER = _folder()
_OWNERS = _owners_folder()
_EMPTY = all(
    folder is None or next(folder.rglob("*.nbc"), None) is None for folder in (_FOLDER, _OWNERS)
)
if _FOLDER is not None:
    config.CACHE_DIR = str(_FOLDER)  # pyright: ignore[reportAttributeAccessIssue]
