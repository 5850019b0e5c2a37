"""Where registers lie: those that are used together lie together.

The registers of one control block that have equally many elements form a block: element i of each
is in record i. A packet that reads a meter's bucket then waits for one cache line and not for five.
A block is allocated when a packet or the controller first uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.softswitch.compiler.bmv2_program import Bmv2Program, Register

LINE = 64


@dataclass(frozen=True)
class RegisterPlace:
    """Element i of a register is ``i * stride + offset`` bytes into its block."""

    block: int
    offset: int
    stride: int


def element_bytes(width: int) -> int:
    """Bytes that an element of ``width`` bits (at most 128) takes."""
    return next(size for size in (1, 2, 4, 8, 16) if width <= 8 * size)


def _blocks(program: Bmv2Program) -> list[list[Register]]:
    found: dict[tuple[str, int], list[Register]] = {}
    for register in program.registers.values():
        found.setdefault((register.name.rpartition(".")[0], register.size), []).append(register)
    return list(found.values())


def record_bytes(used: int) -> int:
    """Bytes of a record: no record lies on two cache lines that fits into one."""
    if used <= LINE:
        return 1 << (used - 1).bit_length() if used > 1 else 1
    return -(-used // LINE) * LINE


def places(program: Bmv2Program) -> dict[str, RegisterPlace]:
    """The place of every register, by name."""
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
    """C arrays: (elements, stride) of each block, (block, offset) of each register."""
    where = places(program)
    blocks = [f"{{{block[0].size}, {where[block[0].name].stride}}}" for block in _blocks(program)]
    registers = [f"{{{where[name].block}, {where[name].offset}}}" for name in program.registers]
    return (
        f"#define SS_BLOCKS {len(blocks)}\n"
        f"static const size_t ss_blocks[][2] = {{{', '.join([*blocks, '{0, 0}'])}}};\n"
        "static SS_UNUSED const uint32_t ss_register_places[][2] = "
        f"{{{', '.join([*registers, '{0, 0}'])}}};\n"
    )
