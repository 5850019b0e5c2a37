# SPDX-License-Identifier: Apache-2.0
"""Translates the file of a program to C, or takes the C from the cache."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from canary_softswitch.compiler.bmv2_program import DROP_PORT, Bmv2Program, resolve_field
from canary_softswitch.compiler.build import C_SOURCES, keep, kept
from canary_softswitch.compiler.rows import Generated
from canary_softswitch.errors import InvalidProgram, SoftSwitchError

if TYPE_CHECKING:
    from canary_softswitch.compiler.bmv2_json import Parsed

MAX_FILE = 8 << 20
"""The most bytes of a program's file."""


@dataclass(frozen=True)
class Source:
    """A program that was translated to C but is not compiled yet.

    ``head_bytes`` is the most bytes of a packet that it reads; None if there is no bound.
    """

    definition: Bmv2Program
    generated: Generated
    head_bytes: int | None

    @property
    def code(self) -> str:
        """Return the C translation unit of the program."""
        return self.generated.code


def read_file(path: str | Path) -> bytes:
    """Return the content of a BMv2 JSON file; raise ``InvalidProgram`` if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as e:
        raise InvalidProgram(f"cannot read {path}: {e.strerror}") from None
    return data


def translate(
    data: bytes, path: str, observe: str | None = None, drop_port: int = DROP_PORT
) -> Source:
    """Return the C of a BMv2 JSON.

    The result is cached under a hash of everything it depends on, so a process that starts with a
    program that was translated before neither checks it nor loads the modules that generate code.

    Args:
        data: The file's content.
        path: What messages call it.
        observe: As for ``Program.load``.
        drop_port: As for ``Program.load``.

    Raises:
        InvalidProgram: This is no BMv2 JSON, or goes beyond a bound; names the place.
        UnsupportedProgram: The program uses what this switch does not run.
        SoftSwitchError: There is no such field to observe.
    """
    if len(data) > MAX_FILE:
        raise InvalidProgram(f"{path} has more than {MAX_FILE >> 20} MiB")
    decisive = (_translator(), repr((observe, drop_port)).encode(), data)
    name = f"{hashlib.sha256(b'/'.join(decisive)).hexdigest()[:40]}.program"
    found = kept(name)
    if found is not None:
        # what may be loaded as code may be unpickled: it lies beside it, and is as well guarded
        source: Source = pickle.loads(found)
        source.definition.path = path
        return source
    source = _translate(data, path, observe, drop_port)
    keep(name, pickle.dumps(source))
    return source


@cache
def _translator() -> bytes:
    """Return a hash of the translator's code; a change of it invalidates cached results."""
    digest = hashlib.sha256(sys.version.encode())
    ours = Path(__file__).parent
    for file in sorted([*ours.glob("*.py"), *C_SOURCES.glob("*.h"), ours.parent / "errors.py"]):
        digest.update(file.name.encode() + b"/" + file.read_bytes())
    return digest.digest()


@cache
def translator() -> tuple[
    Callable[..., Parsed], Callable[..., Generated], Callable[..., int | None]
]:
    """Return the functions that parse a BMv2 JSON, generate its C and bound the bytes it reads.

    Loading their modules takes 0.1 s of processor time; a program from the cache needs none.
    """
    from canary_softswitch.compiler.bmv2_json import parse
    from canary_softswitch.compiler.codegen import generate
    from canary_softswitch.compiler.reach import head_bytes

    return parse, generate, head_bytes


def _translate(data: bytes, path: str, observe: str | None, drop_port: int) -> Source:
    parse, generate, head_bytes = translator()
    parsed = parse(data, path)
    program = parsed.program
    program.drop_port = drop_port
    place = resolve_field(program, observe) if observe is not None else None
    if place:
        field = program.field_type(*place)
        if field.width > 64 or field.varbit:
            raise SoftSwitchError(f"observed field {observe!r} has {field.width} bits, at most 64")
    return Source(program, generate(parsed, place), head_bytes(parsed))
