# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the software switch; every message is one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class UserError(ValueError):
    """Something that the user gave cannot be used: a setting, a file, a value of an option; or the
    machine lacks or refuses something: a compiler, a network, an answer of a switch.

    The message is one line that says what is wrong and what to do. A command prints it and exits
    with code 2. Any other exception is a defect and shows its traceback.
    """


class SoftSwitchError(UserError):
    """The base class of the software switch's errors: a wrong file, name, value or call."""


class TableErrorCode(IntEnum):
    """BMv2's ``TableOperationErrorCode``: why a call about a table or action profile is refused."""

    TABLE_FULL = 1
    INVALID_HANDLE = 2
    EXPIRED_HANDLE = 3
    COUNTERS_DISABLED = 4
    METERS_DISABLED = 5
    AGEING_DISABLED = 6
    INVALID_TABLE_NAME = 7
    INVALID_ACTION_NAME = 8
    WRONG_TABLE_TYPE = 9
    INVALID_MBR_HANDLE = 10
    MBR_STILL_USED = 11
    MBR_ALREADY_IN_GRP = 12
    MBR_NOT_IN_GRP = 13
    INVALID_GRP_HANDLE = 14
    GRP_STILL_USED = 15
    EMPTY_GRP = 16
    DUPLICATE_ENTRY = 17
    BAD_MATCH_KEY = 18
    INVALID_METER_OPERATION = 19
    DEFAULT_ACTION_IS_CONST = 20
    DEFAULT_ENTRY_IS_CONST = 21
    NO_DEFAULT_ENTRY = 22
    INVALID_ACTION_PROFILE_NAME = 23
    NO_ACTION_PROFILE_SELECTION = 24
    IMMUTABLE_TABLE_ENTRIES = 25
    BAD_ACTION_DATA = 26
    NO_TABLE_KEY = 27
    ERROR = 100


class TableError(SoftSwitchError):
    """A table or an action profile refuses a call; ``code`` says why, whatever the message."""

    def __init__(self, code: TableErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


LONGEST = 1000


def one_line(text: str) -> str:
    """Return a text as one printable line of at most ``LONGEST`` characters (and dots)."""
    line = "".join(c if c.isprintable() else "?" for c in text)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


class InvalidProgram(SoftSwitchError):
    """A program's file cannot be read, is no BMv2 JSON, or goes beyond a bound; names the place."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class UnsupportedProgram(SoftSwitchError):
    """The program uses a construct this switch does not run; names it and its P4 source line."""

    def __init__(self, construct: str, source: str = "") -> None:
        self.construct = construct
        self.source = source
        where = f"{source}: " if source else ""
        super().__init__(one_line(f"{where}unsupported by the software switch: {construct}"))


class NoCompiler(SoftSwitchError):
    """No usable C compiler was found on this machine."""


class CompileError(SoftSwitchError):
    """The C compiler refused the generated program (a defect of the generator)."""


class SwitchFault(SoftSwitchError):
    """A packet hit a run-time fault: a failed P4 assert, too many outputs or an endless loop."""


def unknown_name(
    kind: str, name: str, known: Iterable[str], code: TableErrorCode | None = None
) -> SoftSwitchError:
    """Return the error for a name that does not exist, which lists the nearest ones that do."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=5, cutoff=0.4)
    near += [n for n in names if n.split(".")[-1] == name.split(".")[-1] and n not in near]
    hint = f"; near names: {', '.join(near)}" if near else f"; known: {', '.join(names[:10])}"
    if not names:
        hint = f"; the program has no {kind}"
    message = f"no {kind} named {name!r}{hint}"
    return SoftSwitchError(message) if code is None else TableError(code, message)
