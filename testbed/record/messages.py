"""What others wrote, in messages of one line."""

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
    """A value from a file: of some length, and without characters that a terminal would obey.

    >>> shown("x" * 1000), shown("\\x1b[31m"), shown(7)
    ("'xxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxx'", "'\\\\x1b[31m'", '7')
    """
    return _short.repr(value)


def why(error: OSError) -> str:
    """What the system says of a file, without a library's words around it."""
    return os.strerror(error.errno) if error.errno else first_line(error)


def first_line(error: Exception) -> str:
    """What a library says, in one line of some length."""
    text = "".join(c if c.isprintable() else " " for c in str(error))
    text = " ".join(text.split())
    return text if len(text) < 200 else text[:197] + "..."


def first_problem(error: ValidationError) -> tuple[tuple[int | str, ...], str]:
    """Return the first place where data is not as a model has it, and what is wrong there, without
    pydantic's words around it: ``("runs", 0, "seeds"), "should be a valid list"``."""
    first = error.errors(include_url=False)[0]
    reason = first["msg"].removeprefix("Input ").removeprefix("Value error, ")
    own = first["type"] == "value_error"  # raised by a check of this project
    if first["type"].endswith("_parsing"):  # why pydantic could not read it says no more
        reason = reason.partition(",")[0]
    return first["loc"], reason if own else f"{reason[:1].lower()}{reason[1:]}"
