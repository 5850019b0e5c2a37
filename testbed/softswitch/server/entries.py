"""What a table entry consists of: its match fields in P4Runtime and in the switch, and what is
kept of it beside what the switch has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.softswitch.server.config import MATCH, FieldConfig
from testbed.softswitch.server.groups import Member
from testbed.softswitch.server.messages import INVALID_ARGUMENT, P4Error, decode, encode

NAMES = {
    MATCH.EXACT: "exact",
    MATCH.LPM: "lpm",
    MATCH.TERNARY: "ternary",
    MATCH.RANGE: "range",
    MATCH.OPTIONAL: "optional",
}


def dont_care(kind: int, width: int) -> Any:
    """The match that stands for a field left out."""
    if kind == MATCH.RANGE:
        return 0, (1 << width) - 1
    return None if kind == MATCH.OPTIONAL else (0, 0)


def read_match(f: FieldConfig, m: Any, what: str) -> Any:
    """A match element of the switch from one of P4Runtime."""
    kind, width = m.WhichOneof("field_match_type"), f.width
    if kind != NAMES.get(f.kind):
        raise P4Error(INVALID_ARGUMENT, f"{what}: the field is {NAMES.get(f.kind)}, not {kind}")
    if f.kind == MATCH.EXACT:
        return decode(m.exact.value, width, what)
    if f.kind == MATCH.OPTIONAL:
        return decode(m.optional.value, width, what)
    if f.kind == MATCH.LPM:
        n, value = m.lpm.prefix_len, decode(m.lpm.value, width, what)
        if not 0 < n <= width:
            raise P4Error(
                INVALID_ARGUMENT,
                f"{what}: prefix length {n} is not within 1..{width}"
                + (": leave the field out" if not n else ""),
            )
        if value & ((1 << width - n) - 1):
            raise P4Error(INVALID_ARGUMENT, f"{what}: {value:#x} has bits after its prefix")
        return value, n
    if f.kind == MATCH.TERNARY:
        value, mask = decode(m.ternary.value, width, what), decode(m.ternary.mask, width, what)
        if not mask:
            raise P4Error(INVALID_ARGUMENT, f"{what}: the mask is 0: leave the field out")
        if value & ~mask:
            raise P4Error(INVALID_ARGUMENT, f"{what}: {value:#x} has bits outside its mask")
        return value, mask
    low, high = decode(m.range.low, width, what), decode(m.range.high, width, what)
    if low > high:
        raise P4Error(INVALID_ARGUMENT, f"{what}: the range {low}..{high} is empty")
    if (low, high) == (0, (1 << width) - 1):
        raise P4Error(INVALID_ARGUMENT, f"{what}: the range is everything: leave the field out")
    return low, high


def write_match(f: FieldConfig, v: Any, entry: Any) -> None:
    """Add a match element of the switch to a TableEntry, unless it matches everything."""
    if f.kind == MATCH.EXACT:
        entry.match.add(field_id=f.id).exact.value = encode(v)
    elif v == dont_care(f.kind, f.width) or (f.kind == MATCH.LPM and not v[1]):
        return
    elif f.kind == MATCH.OPTIONAL:
        entry.match.add(field_id=f.id).optional.value = encode(v)
    elif f.kind == MATCH.LPM:
        m = entry.match.add(field_id=f.id).lpm
        m.value, m.prefix_len = encode(v[0]), v[1]
    elif f.kind == MATCH.TERNARY:
        m = entry.match.add(field_id=f.id).ternary
        m.value, m.mask = encode(v[0]), encode(v[1])
    else:
        m = entry.match.add(field_id=f.id).range
        m.low, m.high = encode(v[0]), encode(v[1])


Key = tuple[tuple[Any, ...], int]


@dataclass
class Reference:
    """What an entry runs: an action, a member, a group or a one-shot action set."""

    kind: str  # action, member, group, set
    id: int
    values: tuple[int, ...] = ()
    members: tuple[Member, ...] = ()
    message: Any = None


@dataclass
class Stored:
    """An entry, of the controller as a rule; ``match`` is in the program's order."""

    handle: int
    match: tuple[Any, ...]
    priority: int
    reference: Reference
    metadata: bytes = b""
    controller_metadata: int = 0
    timeout_ns: int = 0  # 0: none
    since_us: int = 0  # when it was written
    told: bool = False  # of its being idle
