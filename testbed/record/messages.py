# SPDX-License-Identifier: Apache-2.0
"""Text from files, libraries and the system, shortened and made safe for one-line messages."""

from __future__ import annotations

import os
import reprlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60
_short.maxlevel = 2


def shown(value: object) -> str:
    """Return a value from a file as text: shortened, and without a terminal's control characters.

    >>> shown("x" * 1000), shown("\\x1b[31m"), shown(7)
    ("'xxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxx'", "'\\\\x1b[31m'", '7')
    """
    return _short.repr(value)


def why(error: OSError) -> str:
    """Return the system's message of an error, without text that a library added."""
    return os.strerror(error.errno) if error.errno else first_line(error)


def first_line(error: Exception) -> str:
    """Return an exception's message as one line of at most 200 characters."""
    text = "".join(c if c.isprintable() else " " for c in str(error))
    text = " ".join(text.split())
    return text if len(text) < 200 else text[:197] + "..."


def first_problem(error: ValidationError) -> tuple[tuple[int | str, ...], str]:
    """Return the place and the reason of the first validation error, in short words.

    For example ``("runs", 0, "seeds"), "should be a valid list"``.
    """
    first = error.errors(include_url=False)[0]
    reason = first["msg"].removeprefix("Input ").removeprefix("Value error, ")
    own = first["type"] == "value_error"  # raised by a check of this project
    if first["type"].endswith("_parsing"):  # why pydantic could not read it says no more
        reason = reason.partition(",")[0]
    return first["loc"], reason if own else f"{reason[:1].lower()}{reason[1:]}"
