# SPDX-License-Identifier: Apache-2.0
"""Opens files for writing whose names a user typed, and which must not destroy anything else."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def create_file(path: Path, head: bytes) -> BinaryIO:
    """Open a file for writing, empty, and return it.

    Only a file that begins with ``head``, and so is of the kind that will be written, is emptied.

    Raises:
        OSError: It cannot be opened; EEXIST: it is no regular file, or of another kind.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        if regular and os.pread(descriptor, len(head), 0) in (b"", head):
            os.ftruncate(descriptor, 0)
            return os.fdopen(descriptor, "wb")
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link; a pipe or socket
            raise
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
