"""What generated C and Python share: the 64-bit words of rows of tables and members of profiles."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.softswitch.compiler.bmv2_program import Bmv2Program, TableDef
from testbed.softswitch.compiler.codegen_registers import RegisterPlace, record_bytes
from testbed.softswitch.errors import UnsupportedProgram

KINDS = {"keyless": 0, "exact": 1, "lpm": 2, "ternary": 3}


@dataclass(frozen=True)
class KeyPlace:
    """Where a key field sits in the key words of its table: first word and bit in it."""

    word: int
    shift: int


@dataclass(frozen=True)
class TableLayout:
    """Sizes of a table's rows."""

    kind: str
    words: int
    param_words: int
    places: tuple[KeyPlace, ...]

    @property
    def mask_words(self) -> int:
        """64-bit words of a row's masks."""
        return 0 if self.kind == "exact" else self.words

    @property
    def params(self) -> int:
        """Where a row's parameters begin."""
        return 4 + self.words + self.mask_words

    @property
    def row_words(self) -> int:
        """64-bit words from row to row: rows that fit lie within one cache line."""
        return record_bytes(8 * (self.params + self.param_words)) // 8


@dataclass(frozen=True)
class Generated:
    """C of a program, the layouts of its rows and registers, and the P4 lines of its asserts."""

    code: str
    tables: dict[str, TableLayout]
    registers: dict[str, RegisterPlace]
    asserts: list[str]


def field_words(width: int) -> int:
    """Return the 64-bit words that a key field, digest field or action parameter takes."""
    return (width + 63) // 64


def action_words(program: Bmv2Program, ids: tuple[int, ...]) -> int:
    """Return the most parameter words that any of these actions takes."""
    return max((sum(field_words(w) for _, w in program.actions[i].params) for i in ids), default=0)


def all_action_ids(t: TableDef) -> tuple[int, ...]:
    """Return the actions that a table may run, that of its default entry included."""
    return t.action_ids + ((t.default.action_id,) if t.default else ())


def table_layout(program: Bmv2Program, t: TableDef) -> TableLayout:
    """Choose key places: fields share a word while they fit, wide and range ones do not."""
    places, word, used = [], 0, 64
    for k in t.key:
        alone = k.width > 64 or k.match == "range"
        if alone or used + k.width > 64:
            word += bool(places)
            places.append(KeyPlace(word, 0))
            word += field_words(k.width) - 1 if k.width > 64 else 0
            used = 64 if alone else k.width
        else:
            places.append(KeyPlace(word, used))
            used += k.width
    kinds = {k.match for k in t.key}
    if not t.key:
        kind = "keyless"
    elif kinds & {"ternary", "range", "optional"}:
        kind = "ternary"
    else:
        kind = "lpm" if "lpm" in kinds else "exact"
    if sum(k.match == "lpm" for k in t.key) > 1:
        raise UnsupportedProgram(f"two lpm keys in table {t.name!r}", t.source)
    words = word + 1 if places else 0
    if words > 64:
        raise UnsupportedProgram(f"key of {64 * words} bits of table {t.name!r}", t.source)
    params = 0 if t.kind != "simple" else action_words(program, all_action_ids(t))
    return TableLayout(kind, words, params, tuple(places))


def profile_words(program: Bmv2Program) -> list[int]:
    """Return the parameter words of the members of each action profile."""
    out = [0] * len(program.profiles)
    for t in program.tables:
        if t.profile:
            i = program.profiles[t.profile].index
            out[i] = max(out[i], action_words(program, t.action_ids))
    return out


def pack_params(program: Bmv2Program, action_id: int, values: tuple[int, ...]) -> list[int]:
    """Return action parameters as 64-bit words, low word first."""
    words: list[int] = []
    for (_, width), v in zip(program.actions[action_id].params, values, strict=True):
        v &= (1 << width) - 1
        words += [v >> 64 * i & (1 << 64) - 1 for i in range(field_words(width))]
    return words
