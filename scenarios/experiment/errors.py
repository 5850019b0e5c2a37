# SPDX-License-Identifier: Apache-2.0
"""Messages of one line for errors and interruptions."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from contextlib import suppress
from typing import Any, cast

from scenarios.process.signals import exit_code, in_one_line
from testbed.fabric.names import plain, shortened

DEFECT = "canary: this is a defect of canary: please report the command and the lines above"

_TO_DO = {
    errno.ENOSPC: "free some, or choose a folder elsewhere (RUN=, OUT=, TMPDIR)",
    errno.EDQUOT: "free some, or choose a folder elsewhere (RUN=, OUT=, TMPDIR)",
    errno.EROFS: "choose a folder elsewhere (RUN=, OUT=)",
    errno.EACCES: "see who owns it, or choose another (RUN=, OUT=)",
    errno.EPERM: "see who owns it, or choose another (RUN=, OUT=)",
    errno.EMFILE: "allow more (ulimit -n 4096)",
    errno.ENFILE: "end other programs",
    errno.ENOMEM: "end other programs, or use a smaller K or TOPOLOGY",
    errno.EIO: "the disk may be damaged: copy the file elsewhere",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def message_of(error: Exception) -> str:
    """Return an error's message and its notes in one line."""
    if isinstance(error, OSError) and error.errno:
        text = _of_the_system(error, error.errno)
    elif type(error).__name__ == "ValidationError":  # pydantic's; pydantic may not be loaded
        from testbed.record.messages import first_problem

        place, reason = first_problem(cast(Any, error))
        text = ": ".join([".".join(map(str, place)), reason]).removeprefix(": ")
    else:
        text = str(error)
    return message_line("; ".join([text, *getattr(error, "__notes__", [])]))


def message_line(text: str) -> str:
    """Return a message as one line of limited length, with unprintable characters escaped."""
    return shortened(plain(re.sub(r"\s*[\r\n]\s*", " ", text.strip())))


def _of_the_system(error: OSError, number: int) -> str:
    """Return a message for an error of the operating system: the files, the reason and the
    remedy."""
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    to_do = _TO_DO.get(number, "")
    return ": ".join([*(names and [" -> ".join(names)]), os.strerror(number), *(to_do and [to_do])])


def stopped(stop: BaseException) -> int:
    """Print in one line that the command was interrupted, and return its exit code: 128 plus the
    number of the signal."""
    number = stop.args[0] if stop.args else signal.SIGINT
    kept = plain(" ".join(getattr(stop, "__notes__", ["nothing was kept"])))
    with suppress(OSError):  # the terminal is closed
        print(in_one_line(number, kept), file=sys.stderr, flush=True)
    return exit_code(number)
