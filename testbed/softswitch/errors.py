"""Exceptions of the software switch; every message is one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SoftSwitchError(Exception):
    """Base class: a wrong file, name, value or call."""


LONGEST = 1000


def one_line(text: str) -> str:
    """Return a text that may have names of a program in it as a line that a terminal can show."""
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


def unknown_name(kind: str, name: str, known: Iterable[str]) -> SoftSwitchError:
    """Error for a name that does not exist, listing the nearest ones that do."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=5, cutoff=0.4)
    near += [n for n in names if n.split(".")[-1] == name.split(".")[-1] and n not in near]
    hint = f"; near names: {', '.join(near)}" if near else f"; known: {', '.join(names[:10])}"
    if not names:
        hint = f"; the program has no {kind}"
    return SoftSwitchError(f"no {kind} named {name!r}{hint}")
