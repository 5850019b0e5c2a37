# SPDX-License-Identifier: Apache-2.0
"""Computes how many bytes of a packet a program can read; only these are needed to forward it."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import Any

from canary_softswitch.compiler import schema
from canary_softswitch.compiler import schema_values as values
from canary_softswitch.compiler.bmv2_json import Parsed
from canary_softswitch.compiler.bmv2_program import Bmv2Program


def head_bytes(parsed: Parsed) -> int | None:
    """Return the most bytes of a packet that the program reads; None if there is no bound.

    There is no bound if the parser can reach a state twice or skips a number of bits that the
    packet gives, or if a checksum covers the payload.
    """
    if any(isinstance(e, values.PayloadValue) for c in parsed.root.calculations for e in c.input):
        return None
    parser = parsed.root.parsers[0]
    states = {state.name: state for state in parser.parse_states}
    after = {name: _next(state) for name, state in states.items()}
    for name in set(states) - _reached(parser.init_state, after):
        del after[name]
    try:
        order = [*TopologicalSorter(after).static_order()]
    except CycleError:
        return None
    reach: dict[str, int] = {}
    for name in order:
        found = _reach(parsed.program, states[name], [reach[to] for to in after[name]])
        if found is None:
            return None
        reach[name] = found
    return reach[parser.init_state] if parser.init_state is not None else 0


def _next(state: schema.ParseState) -> set[str]:
    ways = (t for t in state.transitions if not isinstance(t, schema.OtherTransition))
    return {t.next_state for t in ways if t.next_state is not None}


def _reached(first: str | None, after: dict[str, set[str]]) -> set[str]:
    """Return the states that the parser can come to."""
    reached: set[str] = set()
    waiting = [] if first is None else [first]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += after[name]
    return reached


def _reach(program: Bmv2Program, state: schema.ParseState, then: list[int]) -> int | None:
    """Return the bytes read from a state on; ``then`` has these numbers of its next states."""
    at = farthest = 0
    for call in state.parser_ops:
        match call:
            case values.Call(op="extract" | "extract_VL", parameters=(into, *_)):
                at += _extracted(program, into)
            case values.Call(op="shift", parameters=(size,)):
                at += size
            case values.Call(op="advance"):
                return None
            case values.Call(op="set", parameters=(_, values.LookaheadValue() as bits)):
                farthest = max(farthest, at + _lookahead(bits))
            case _:
                pass
    for key in state.transition_key:
        if isinstance(key, values.LookaheadValue):
            farthest = max(farthest, at + _lookahead(key))
    return max(farthest, at + max(then, default=0))


def _extracted(program: Bmv2Program, into: Any) -> int:
    """Return the most bytes that an extraction takes."""
    match into:
        case values.IntoUnionStack(value=(stack, member)):
            return dict(program.union_stacks[stack].type.members)[member].max_bytes
        case values.IntoStack(value=name):
            return program.stacks[name].type.max_bytes
        case _:
            return program.headers[into.value].type.max_bytes


def _lookahead(bits: values.LookaheadValue) -> int:
    first, width = bits.value
    return (first + width + 7) // 8
