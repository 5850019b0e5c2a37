"""The P4 program with another limit of ICMP messages a second than the one it was compiled with.

A switch answers so many expired packets in each window of time (`p4/include/expiry.p4`). Window
and number are constants of the source, so they are literals in the BMv2 JSON. `IcmpLimit.put_into`
writes other literals into these places, as if p4c had been given other constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.dataplane import EXPIRY, PROGRAM, DataPlaneError

_SOURCE = "include/expiry.p4"
_CLOCK = {"type": "field", "value": ["standard_metadata", "ingress_global_timestamp"]}
_LEAST = 8  # messages of a window; with fewer the rates that can be had are far apart


@dataclass(frozen=True)
class IcmpLimit:
    """At most ``messages`` ICMP messages of a switch in each window of 2**``shift`` us."""

    shift: int
    messages: int

    @classmethod
    def of(cls, per_s: float) -> IcmpLimit:
        """Return the limit that is nearest to ``per_s`` messages a second and not above it."""
        shift = 0
        while int(per_s * (1 << shift) / 1e6) < _LEAST:
            shift += 1
        return cls(shift, int(per_s * (1 << shift) / 1e6))

    @property
    def window_s(self) -> float:
        """The length of a window in seconds."""
        return (1 << self.shift) / 1e6

    def put_into(self, program: dict[str, Any]) -> None:
        """Give a program, as compiled, this limit.

        Args:
            program: Its BMv2 JSON, which is changed.

        Raises:
            DataPlaneError: The program does not have its limit in the places known here.
        """
        blocks = [
            *(primitive for action in program["actions"] for primitive in action["primitives"]),
            *(each for pipeline in program["pipelines"] for each in pipeline["conditionals"]),
        ]
        expiry = [b for b in blocks if b.get("source_info", {}).get("filename") == _SOURCE]
        shifts = [
            node["right"]
            for node in _operations(expiry, ">>")
            if node["left"] == _CLOCK and int(node["right"]["value"], 16) == COMPILED.shift
        ]
        numbers = [
            node["right"]
            for node in _operations(expiry, "<")
            if node["right"] == {"type": "hexstr", "value": f"0x{COMPILED.messages:02x}"}
        ]
        if (len(shifts), len(numbers)) != (2, 1):
            raise DataPlaneError(f"{PROGRAM.name} has its ICMP limit in other places than expected")
        for literal in shifts:
            literal["value"] = f"{self.shift:#x}"
        numbers[0]["value"] = f"0x{self.messages:02x}"


def _operations(tree: Any, op: str) -> Iterator[dict[str, Any]]:
    """Yield all nodes of a JSON tree that are the binary operation ``op``."""
    if isinstance(tree, dict):
        if tree.get("op") == op and "right" in tree:
            yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from _operations(part, op)


COMPILED = IcmpLimit(EXPIRY.window_shift, EXPIRY.messages)
"""The limit that the program was compiled with."""
