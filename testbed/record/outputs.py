# SPDX-License-Identifier: Apache-2.0
"""The one gate for files and folders that a user names to be written.

A file is created, or replaces an earlier one of the same kind, which is recognised by its content.
A folder is taken if it is absent, empty, or of the command's own making. Links, devices, pipes and
everything else are left as they are, and the user gets one line. `testbed.record.atomic` writes
what this module allows.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import UserError


class FolderError(UserError):
    """A file or folder is in use or cannot be written. The message is one line that says what to
    do."""


class FolderTaken(FolderError):
    """The folder belongs to another run or is used by another process; another name is needed."""


@dataclass(frozen=True)
class Kind:
    """A kind of file that a command writes.

    Attributes:
        name: What messages call it, such as ``ranking``.
        example: A name that such a file may have, such as ``ranking.parquet``.
        matches: Returns True if the regular file at a path is of this kind, whatever its name.
    """

    name: str
    example: str
    matches: Callable[[Path], bool]


def need_place(path: Path, kind: Kind, option: str = "--out ") -> bool:
    """Check that a file may be written, before the work whose result it is for.

    Args:
        path: The file.
        kind: The kind of file that will be written there.
        option: The option that named it, as messages begin: ``--out `` or ``RESULTS=``.

    Returns:
        True if it replaces an earlier file of its kind; an empty file is as good as none.

    Raises:
        FolderError: It is a folder, a link or no regular file, it holds something else, or its
            folder does not exist or is not writable (one line).
    """
    named, example = f"{option}{path}", path / kind.example
    try:
        found = path.lstat()
    except FileNotFoundError:
        found = None
    except OSError as error:  # a part of the path is a file, or its name is too long
        raise FolderError(f"{named}: {_reason(error)}: choose another") from None
    if found is not None:
        if stat.S_ISDIR(found.st_mode):
            raise FolderError(f"{named} is a folder: name a file in it, such as {example}")
        if stat.S_ISLNK(found.st_mode):
            raise FolderError(f"{named} is a symbolic link: give the file that it leads to")
        if not stat.S_ISREG(found.st_mode):
            raise FolderError(f"{named} is a device, pipe or socket: name a file")
    if not path.parent.is_dir():
        raise FolderError(f"{named}: there is no folder {path.parent}: make it, or choose another")
    if not os.access(path.parent, os.W_OK):
        raise FolderError(f"{named}: you may not write into {path.parent}: choose another")
    if found is None or found.st_size == 0:
        return False
    if not (found.st_mode & 0o222 and os.access(path, os.W_OK)):
        raise FolderError(f"{named} is read-only: choose another file, or remove it")
    if not kind.matches(path):
        raise FolderError(f"{named} exists and is no {kind.name}: choose another name")
    return True


def in_words(path: Path, replaces: bool) -> str:
    """Return the path of a written file, and whether it replaced an earlier one, for a message."""
    return f"{path} (replaced an earlier one)" if replaces else str(path)


def need_folder(
    path: Path, own: Callable[[Path], bool] = lambda folder: False, what: str = "", option: str = ""
) -> None:
    """Check that a folder may be used for what a command writes.

    It must be absent, empty or the command's own. Its parents may be links, to another disk.

    Args:
        path: The folder.
        own: Returns True for a folder with content of the command's own making.
        what: What such a folder holds, for messages: ``comparison``.
        option: The option that names it, for messages: ``RUN``.

    Raises:
        FolderTaken: It is a link, no folder, or holds something else (one line).
        OSError: It cannot be read.
    """
    other = f"choose another {option}".rstrip()
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        raise FolderTaken(f"{path} is a symbolic link: give the folder that it leads to")
    if not stat.S_ISDIR(found.st_mode):
        raise FolderTaken(f"{path} exists already and is no folder: {other}")
    with os.scandir(path) as entries:
        empty = next(entries, None) is None
    if empty or own(path):
        return
    if what:
        raise FolderTaken(f"{path} exists and is no {what}: {other}")
    raise FolderTaken(f"{path} exists already: {other} or remove it")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
