# SPDX-License-Identifier: Apache-2.0
"""Files and folders that appear when they are complete, and that one process writes at a time.

A run is written in ``PATH.partial``, which contains a mark. The mark is also a lock: it is held as
long as the run is written, and the kernel releases it when the process ends, however it ends. A
folder without a mark belongs to somebody else and is never changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from testbed.record.outputs import FolderError, FolderTaken, Kind, need_folder, need_place

MARK = ".canary-run"
"""The name of the mark: a ``.partial`` directory with this file belongs to this project."""

_NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY)


class Lock:
    """A lock on a file or folder, which this process holds until `release` or until it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Release the lock, if it is still held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def released(self) -> bool:
        """Return True if the lock was released."""
        return self._descriptor is None

    __del__ = release


def hold(path: Path) -> Lock | None:
    """Lock a file or folder and return the lock; None if another process holds it.

    On a file system without locks, the lock has no effect.

    Raises:
        FileNotFoundError: The file or folder does not exist, or was moved meanwhile.
        OSError: It cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)  # network file systems lock only what is writable
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EACCES, errno.EROFS):
            raise
        descriptor = os.open(path, os.O_RDONLY)
    lock = Lock(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.release()
        return None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    if not os.path.samestat(os.fstat(descriptor), path.stat()):
        raise FileNotFoundError(errno.ENOENT, "it was moved", str(path))
    return lock


def need_no_links(folder: Path) -> None:
    """Check that nothing below a folder is a symbolic link, before something is written there.

    The folder may come from somebody else, and through a link files elsewhere would be
    overwritten. The folder itself may be a link, as the user has named it.

    Raises:
        FolderError: There is a link (one line).
    """
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            entry = Path(place, name)
            if entry.is_symlink():
                raise FolderError(
                    f"{entry} is a symbolic link, and the program does not write through links: "
                    "replace it by its target"
                )


@contextmanager
def held(path: Path, folder: Path) -> Iterator[None]:
    """Hold a lock on ``path`` while the block works in ``folder``.

    Raises:
        FolderError: Another command is at work there, or ``path`` cannot be opened.
    """
    try:
        lock = hold(path)
    except OSError as error:
        raise FolderError(f"cannot open {path}: {error.strerror}") from None
    if lock is None:
        raise FolderError(f"another command writes to {folder}: wait for it")
    try:
        yield
    finally:
        lock.release()


def at_work(path: Path) -> bool:
    """Return True if another process writes a run whose final place is ``path``."""
    try:
        lock = hold(_partial(path) / MARK)
    except OSError:
        return False
    if lock is not None:
        lock.release()
    return lock is None


def append(path: Path, data: bytes) -> None:
    """Add bytes at the end of a file, which is made if it is absent: all of them, or none.

    Raises:
        OSError: The file cannot be written, for instance as the disk is full; ELOOP: it is a link.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(end)
            raise


@contextmanager
def atomic_write(path: Path, place: Callable[[Path], object] | None = None) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces ``path`` when the block succeeds.

    Its name is unique, because two commands may write to the same place: the later one wins. It has
    the suffix of ``path``. This is for files of folders that are the program's own; a file that a
    user names is written by `output_file`.

    Args:
        path: The file.
        place: Called with the temporary file to move it to its place, instead of a renaming.

    Raises:
        OSError: The file cannot be written; the error names ``path``.
    """
    partial = path.with_name(f".partial-{secrets.token_hex(4)}-{path.name}")
    try:
        yield partial
        place(partial) if place else partial.replace(path)
    except OSError as error:  # its reader knows only the place
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, reason, str(path)) from None
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def output_file(path: Path, kind: Kind, option: str = "--out ") -> Iterator[Path]:
    """Yield the path of a temporary file that becomes ``path`` when the block succeeds.

    The place is checked as by `testbed.record.outputs.need_place`, and again at the end. A file
    that another process created there meanwhile is never replaced.

    Raises:
        FolderError: The place is none for such a file.
        OSError: The file cannot be written; the error names ``path``.
    """

    def place(partial: Path) -> None:
        """Move the complete file to its place."""
        if need_place(path, kind, option) or path.exists():
            partial.replace(path)
            return
        try:
            os.link(partial, path)  # unlike a renaming, it fails if something is there now
        except FileExistsError:
            raise FolderTaken(f"{option}{path} appeared meanwhile: choose another name") from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            partial.replace(path)

    need_place(path, kind, option)
    with atomic_write(path, place) as partial:
        yield partial


_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""Errors of a file system that has no hard links."""


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


class PendingRun:
    """The folder of a run that this process writes and that no other process may use.

    Nothing appears at ``path`` before `finish`.

    Args:
        path: Where the run will be: nothing, or an empty directory.
        numbered: Use ``path-2``, ``path-3`` ... if ``path`` is taken.

    Attributes:
        path: Where the run will be.
        partial: Where it is until then: it has the mark, and may have what a run left that ended
            early (`clear`).
        finished: Whether it is at ``path``.

    Raises:
        FolderError: The path is taken, or cannot be written.
    """

    def __init__(self, path: Path, numbered: bool = False) -> None:
        if not path.name or path.name.endswith(".partial"):
            raise FolderError(f"{str(path)!r} cannot be the name of a run: choose another RUN")
        self.path, self.finished = path, False
        for number in count(2):
            try:
                self.partial = _partial(self.path)
                self._lock = self._claimed()
                return
            except FolderTaken:
                if not numbered:
                    raise
                self.path = path.with_name(f"{path.name}-{number}")
            except OSError as error:
                raise FolderError(
                    f"cannot write {path}: {error.strerror}; choose another RUN"
                ) from None

    def _claimed(self) -> Lock:
        self._need_free()
        self._parents = [place for place in self.path.parents if not place.exists()]
        deadline = time.monotonic() + 1
        while True:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._make()
                lock = hold(self.partial / MARK)
            except (FileNotFoundError, NotADirectoryError):
                # Another run makes or removes it at this moment, or it is no run's.
                if self._is_foreign() or time.monotonic() > deadline:
                    raise FolderTaken(
                        f"{self.partial} is not a partial run: move it, or choose another RUN"
                    ) from None
                time.sleep(0.005)
                continue
            if lock is None:
                raise FolderTaken(
                    f"another command writes to {self.partial}: wait for it, or choose another RUN"
                )
            self._lock = lock
            try:
                self._need_free()  # the one that had it may have finished meanwhile
            except FolderTaken:
                self.abandon()
                raise
            return lock

    def _need_free(self) -> None:
        need_folder(self.path, option="RUN")

    def _make(self) -> None:
        """Make the directory and mark it; an existing directory gets no mark."""
        try:
            self.partial.mkdir()
        except FileExistsError:
            if self.partial.is_symlink():
                raise NotADirectoryError from None
        else:
            (self.partial / MARK).touch()

    def _is_foreign(self) -> bool:
        """Return True if `partial` is a link, a file or a folder with content, so that it cannot
        belong to a run that starts or ends now."""
        try:
            return self.partial.is_symlink() or any(self.partial.iterdir())
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            return True

    def clear(self) -> None:
        """Remove the files of an earlier run that ended early; the mark stays."""
        for entry in self.partial.iterdir():
            if entry.name == MARK:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def finish(self) -> None:
        """Move the run to ``path``, or to ``path-2`` and so on if something is there now.

        Raises:
            OSError: The folder cannot be moved; it stays at ``partial``.
        """
        wanted = self.path
        for number in count(2):
            try:
                self.partial.rename(self.path)
                self.finished = True
                break
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
                self.path = wanted.with_name(f"{wanted.name}-{number}")
        (self.path / MARK).unlink(missing_ok=True)
        self.leave()

    def leave(self) -> None:
        """Release the lock, so that other processes may use the folder."""
        self._lock.release()

    def abandon(self) -> None:
        """Remove the folder, the mark last; do nothing if the lock was released."""
        if self._lock.released:
            return
        try:
            self.clear()
            (self.partial / MARK).unlink()
            self.partial.rmdir()
            for place in self._parents:
                place.rmdir()
        except OSError:
            pass  # what cannot be removed has its mark, and the next run tries again
        self.leave()
