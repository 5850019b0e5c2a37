# SPDX-License-Identifier: Apache-2.0
"""The memory layout of table rows, profile members (64-bit words) and registers.

Generated C and Python share it. Registers that are used together are stored together: those of one
control block with the same number of elements form a block, and element i of each is in record i.
So a packet that reads a meter's bucket waits for one cache line instead of five. A block is
allocated when a packet or the controller first uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from canary_softswitch.compiler.bmv2_program import Bmv2Program, Register, TableDef
from canary_softswitch.errors import UnsupportedProgram

LINE = 64


@dataclass(frozen=True)
class RegisterPlace:
    """Element i of a register is ``i * stride + offset`` bytes into its block."""

    block: int
    offset: int
    stride: int


def element_bytes(width: int) -> int:
    """Return the bytes of a register element; one above 128 bits is stored big-endian."""
    if width > 128:
        return -(-width // 128) * 16
    return next(size for size in (1, 2, 4, 8, 16) if width <= 8 * size)


def _blocks(program: Bmv2Program) -> list[list[Register]]:
    found: dict[tuple[str, int], list[Register]] = {}
    for register in program.registers.values():
        found.setdefault((register.name.rpartition(".")[0], register.size), []).append(register)
    return list(found.values())


def record_bytes(used: int) -> int:
    """Return the size of a record in bytes, padded so that small ones do not cross cache lines."""
    if used <= LINE:
        return 1 << (used - 1).bit_length() if used > 1 else 1
    return -(-used // LINE) * LINE


def places(program: Bmv2Program) -> dict[str, RegisterPlace]:
    """Return the place of every register, by name."""
    out = {}
    for number, block in enumerate(_blocks(program)):
        widest_first = sorted(block, key=lambda r: -element_bytes(r.width))
        stride = record_bytes(sum(element_bytes(r.width) for r in block))
        offset = 0
        for register in widest_first:
            out[register.name] = RegisterPlace(number, offset, stride)
            offset += element_bytes(register.width)
    return out


def register_tables(program: Bmv2Program) -> str:
    """Return the C arrays: (elements, stride) of each block, (block, offset) of each register."""
    where = places(program)
    blocks = [f"{{{block[0].size}, {where[block[0].name].stride}}}" for block in _blocks(program)]
    registers = [f"{{{where[name].block}, {where[name].offset}}}" for name in program.registers]
    return (
        f"#define SS_BLOCKS {len(blocks)}\n"
        f"static const size_t ss_blocks[][2] = {{{', '.join([*blocks, '{0, 0}'])}}};\n"
        "static SS_UNUSED const uint32_t ss_register_places[][2] = "
        f"{{{', '.join([*registers, '{0, 0}'])}}};\n"
    )


KINDS = {"keyless": 0, "exact": 1, "lpm": 2, "ternary": 3}


@dataclass(frozen=True)
class KeyPlace:
    """The place of a key field in its table's key words: the first word and the bit in it."""

    word: int
    shift: int


@dataclass(frozen=True)
class TableLayout:
    """The layout of a table's rows, in 64-bit words: key, masks and action parameters."""

    kind: str
    words: int
    param_words: int
    places: tuple[KeyPlace, ...]

    @property
    def mask_words(self) -> int:
        """Return the number of 64-bit words of a row's masks; 0 if all keys are exact."""
        return 0 if self.kind == "exact" else self.words

    @property
    def params(self) -> int:
        """Return the index of the 64-bit word of a row at which the parameters begin."""
        return 4 + self.words + self.mask_words

    @property
    def row_words(self) -> int:
        """Return the 64-bit words from one row to the next; small rows do not cross cache lines."""
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
    """Return the number of 64-bit words of the parameters of the action that takes most of them."""
    return max((sum(field_words(w) for _, w in program.actions[i].params) for i in ids), default=0)


def all_action_ids(t: TableDef) -> tuple[int, ...]:
    """Return the ids of the actions that a table may run, its default entry's included."""
    return t.action_ids + ((t.default.action_id,) if t.default else ())


def table_layout(program: Bmv2Program, t: TableDef) -> TableLayout:
    """Return the layout of a table's rows: key fields share a word, except wide and range ones."""
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
    """Return the number of 64-bit parameter words of a member, for each action profile."""
    out = [0] * len(program.profiles)
    for t in program.tables:
        if t.profile:
            i = program.profiles[t.profile].index
            out[i] = max(out[i], action_words(program, t.action_ids))
    return out


def pack_params(program: Bmv2Program, action_id: int, values: tuple[int, ...]) -> list[int]:
    """Return action parameters as 64-bit words, low word first; wide ones as big-endian bytes."""
    words: list[int] = []
    for (_, width), v in zip(program.actions[action_id].params, values, strict=True):
        v &= (1 << width) - 1
        if width > 128:
            data = v.to_bytes((width + 7) // 8, "big")
            words += [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
            continue
        words += [v >> 64 * i & (1 << 64) - 1 for i in range(field_words(width))]
    return words
