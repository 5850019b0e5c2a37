# SPDX-License-Identifier: Apache-2.0
"""Counters of the packets that arrive at a switch and that end in it, by cause and ingress port.

In virtual time the environment reads each packet's verdict. A real switch keeps it to itself: here
the compiled program is given a counter for each cause, which the action that drops the packet
counts in, as if the sources had one. What the fault tables drop has a counter there already. What
arrived is counted by every action of the table of ingress faults, which each packet runs one of.
"""

from __future__ import annotations

import re
from typing import Any

from testbed.dataplane import CAUSES, INGRESS_FAULT, PROGRAM, VERDICT, DataPlaneError

ANSWERED = "answered"
"""The cause of packets for which the switch sent an ICMP message of its own instead."""

ENDINGS = {
    cause: f"ended.{cause}" for cause in (ANSWERED, *CAUSES) if cause not in ("none", "fault")
}
"""The name of the counter of each cause; its index is the port that the packet came in at."""

ARRIVED = "arrived"
"""The name of the counter of packets that a switch began to process, by ingress port."""

_COUNTERS = (*ENDINGS.values(), ARRIVED)
_ACTIONS = ("lossy", "blackhole", "corrupt", "healthy")
_ON_ARRIVAL = {getattr(INGRESS_FAULT, action) for action in _ACTIONS}
_PORTS = 512
_VERDICT = ["scalars", VERDICT.field.replace("meta.", "metadata_t.")]
_FIRST_ID = 0x12 << 24 | 1  # P4Runtime's prefix of counters
_OP = "count"
_IN = {"type": "field", "value": ["standard_metadata", "ingress_port"]}
_CAUSE = re.compile(r"verdict = CAUSE_(\w+) \+\+")
_ANSWER = {"type": "hexstr", "value": f"{1 << VERDICT.expired.shift:#06x}"}


def count_endings(program: dict[str, Any]) -> None:
    """Give a program, as compiled, the counters of `ENDINGS`, and `ARRIVED`.

    Args:
        program: Its BMv2 JSON, which is changed.

    Raises:
        DataPlaneError: The program does not end packets in the places known here.
    """
    arrays = program["counter_arrays"]
    for name in _COUNTERS:
        arrays.append({"name": name, "id": len(arrays), "size": _PORTS, "is_direct": False})
    found: set[str] = set()
    for action in program["actions"]:
        primitives = action["primitives"]
        for at, primitive in reversed([*enumerate(primitives)]):
            cause = _cause(primitive)
            if cause in ENDINGS:
                found.add(cause)
                primitives.insert(at, _count_in(ENDINGS[cause]))
        if action["name"] in _ON_ARRIVAL:
            primitives.append(_count_in(ARRIVED))
    if found != ENDINGS.keys():
        lacking = ", ".join(sorted(ENDINGS.keys() - found))
        raise DataPlaneError(f"{PROGRAM.name} ends no packets for {lacking} where it is expected")


def _count_in(counter: str) -> dict[str, Any]:
    """Return a primitive that counts a packet at its ingress port."""
    return {"op": _OP, "parameters": [{"type": "counter_array", "value": counter}, _IN]}


def _cause(primitive: dict[str, Any]) -> str:
    """Return the cause for which a primitive of an action ends a packet; "" if it does not."""
    if primitive["op"] != "assign" or primitive["parameters"][0]["value"] != _VERDICT:
        return ""
    if primitive["parameters"][1] == _ANSWER:
        return ANSWERED
    named = _CAUSE.search(primitive.get("source_info", {}).get("source_fragment", ""))
    return named[1].lower() if named else ""


def describe_endings(info: Any) -> None:
    """Add the counters of `ENDINGS`, and `ARRIVED`, to a P4Info message."""
    for number, name in enumerate(_COUNTERS):
        counter = info.counters.add(size=_PORTS)
        counter.preamble.id = _FIRST_ID + number
        counter.preamble.name = counter.preamble.alias = name
        counter.spec.unit = counter.spec.BOTH
