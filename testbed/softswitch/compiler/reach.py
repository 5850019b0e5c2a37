"""How far into a packet a program can look: what lies behind need not exist to forward it."""

from __future__ import annotations

from testbed.softswitch.compiler.bmv2_program import Bmv2Program, Json

__all__ = ["head_bytes"]


def head_bytes(program: Bmv2Program) -> int | None:
    """The most bytes of a packet that the program reads; None where there is no bound.

    There is none where the parser can come to a state again or skips what the packet says, or a
    checksum covers the payload.
    """
    if any(e["type"] == "payload" for c in program.calculations.values() for e in c["input"]):
        return None
    states = {state["name"]: state for state in program.parser["parse_states"]}
    return _reach(program, states, program.parser.get("init_state"), ())


def _reach(
    program: Bmv2Program, states: dict[str, Json], name: str | None, before: tuple[str, ...]
) -> int | None:
    """Bytes from the beginning of a state on."""
    if name is None:
        return 0
    if name in before:
        return None
    state, at, seen = states[name], 0, 0
    for operation in state["parser_ops"]:
        kind, arguments = operation["op"], operation["parameters"]
        if kind in ("extract", "extract_VL"):
            at += _extracted(program, arguments[0])
        elif kind == "shift":
            at += int(arguments[0])
        elif kind == "advance":
            return None
        elif kind == "set" and arguments[1]["type"] == "lookahead":
            seen = max(seen, at + _lookahead(arguments[1]))
    for key in state["transition_key"]:
        if key["type"] == "lookahead":
            seen = max(seen, at + _lookahead(key))
    for transition in state["transitions"]:
        rest = _reach(program, states, transition["next_state"], (*before, name))
        if rest is None:
            return None
        seen = max(seen, at + rest)
    return max(seen, at)


def _extracted(program: Bmv2Program, what: Json) -> int:
    """Most bytes that an extraction takes."""
    if what["type"] == "union_stack":
        stack, member = what["value"]
        return dict(program.union_stacks[stack].type.members)[member].max_bytes
    known = program.stacks if what["type"] == "stack" else program.headers
    return known[what["value"]].type.max_bytes


def _lookahead(what: Json) -> int:
    first, width = what["value"]
    return (first + width + 7) // 8
