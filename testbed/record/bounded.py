# SPDX-License-Identifier: Apache-2.0
"""Reads files of strangers only as far as files of their kind go."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

MIB = 1 << 20
MOST_JSON, MOST_VALUES = 16 * MIB, 400_000
"""Bytes and values of a JSON file of a run; those of a run at K=32 have less than one MiB."""
MOST_YAML = 4 * MIB


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes.

    A pipe or device is refused before anything is read, as reading might never end.

    Raises:
        OSError: It cannot be read, is no regular file, or is larger; with ``strerror``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most // MIB} MiB", str(path))
    return data


def read_json_text(path: Path) -> bytes:
    """Return the content of a JSON file of a run, within the bounds on its bytes and values.

    Raises:
        OSError: As of `read_bounded`, or it has more values; with ``strerror``.
    """
    text = read_bounded(path, MOST_JSON)
    if text.count(b",") > MOST_VALUES:  # each may be an error that pydantic keeps, a KiB
        raise OSError(errno.EFBIG, f"it has more than {MOST_VALUES:,} values", str(path))
    return text


def read_json(path: Path) -> Any:
    """Return what is in a JSON file of at most `MOST_JSON` bytes.

    Raises:
        OSError: As of `read_bounded`.
        ValueError: It is no JSON, or nested too deeply.
    """
    try:
        return json.loads(read_json_text(path))
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
