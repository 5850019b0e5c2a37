"""Fields by the names that people give them."""

from __future__ import annotations

import re

from testbed.softswitch.compiler.bmv2_program import Bmv2Program
from testbed.softswitch.errors import SoftSwitchError, unknown_name


def plain_name(name: str) -> str:
    """Return the P4 name of a flattened metadata field: no ``meta._a_b7`` decoration."""
    last = name.split(".")[-1]
    match = re.fullmatch(r"_(.*?)\d+", last)
    return match.group(1) if match else last


def resolve_field(program: Bmv2Program, name: str) -> tuple[str, str]:
    """Return (header, field) of a field named as in the JSON, or by its P4 name if unambiguous."""
    exact, loose = [], []
    wanted = name.split(".")
    tails = {"_".join(wanted[i:]) for i in range(min(len(wanted), 2))}
    for h in program.headers.values():
        for f in h.type.fields:
            full = f"{h.name}.{f.name}"
            if name == full:
                return h.name, f.name
            if full.endswith("." + name) or f.name == name:
                exact.append((h.name, f.name))
            elif h.metadata and plain_name(f.name) in tails:
                loose.append((h.name, f.name))
    found = list(dict.fromkeys(exact or loose))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(".".join(x) for x in found[:6])
        raise SoftSwitchError(f"field {name!r} is ambiguous: {names}")
    raise unknown_name(
        "field",
        name,
        [f"{h.name}.{f.name}" for h in program.headers.values() for f in h.type.fields],
    )
