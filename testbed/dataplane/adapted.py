# SPDX-License-Identifier: Apache-2.0
"""The P4 program as a run needs it: with its limit of ICMP messages, tables of its sizes, groups of
uplinks if one is not enough (`testbed.dataplane.groups`) and, for real switches, counters of the
packets that end in them (`testbed.dataplane.endings`).

A switch answers so many expired packets in each window of time (`p4/include/expiry.p4`). Window
and number are constants of the source, so they are literals in the BMv2 JSON. `IcmpLimit.put_into`
writes other literals into these places, as if p4c had been given other constants.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from testbed.dataplane import EXPIRY, PROGRAM, ROUTING, DataPlaneError
from testbed.dataplane.endings import count_endings, describe_endings
from testbed.dataplane.groups import choose_among_groups, describe_groups
from testbed.dataplane.program import P4INFO_SUFFIX


class Adapted(NamedTuple):
    """The files of a program: BMv2's JSON and the P4Info, which agree on the tables' sizes."""

    json: Path
    p4info: Path


def adapted_program(
    folder: Path,
    limit: IcmpLimit,
    entries: Mapping[str, int],
    endings: bool = False,
    source: Path = PROGRAM,
) -> Adapted:
    """Return the files of a program as a run needs it, new ones unless its own do.

    Args:
        folder: Where the files are written.
        limit: The limit of ICMP messages that a switch sends.
        entries: By table, the number of entries it must have room for; smaller ones grow.
        endings: Whether to count the packets that end in a switch.
        source: BMv2's JSON of the program, with its P4Info beside it: `PROGRAM`, or that with the
            control blocks of a measurement.

    Raises:
        DataPlaneError: The program does not have its limit, or end packets, in the places known
            here.
    """
    program, p4info = json.loads(source.read_text()), source.with_suffix(P4INFO_SUFFIX)
    tables = {table["name"]: table for each in program["pipelines"] for table in each["tables"]}
    small = {name: n for name, n in entries.items() if n > tables[name]["max_size"]}
    if limit == COMPILED and not small and not endings:
        return Adapted(source, p4info)
    if limit != COMPILED:
        limit.put_into(program)
    for name, n in small.items():
        tables[name]["max_size"] = n
    if ROUTING.uplinks in small:
        choose_among_groups(program)
    if endings:
        count_endings(program)
    adapted = Adapted(folder / source.name, folder / p4info.name)
    adapted.json.write_text(json.dumps(program))
    adapted.p4info.write_text(_p4info(p4info, small, endings))
    return adapted


def _p4info(source: Path, sizes: Mapping[str, int], endings: bool) -> str:
    """Return the text of a program's P4Info with the sizes of some tables, and with the counters of
    ``endings``."""
    from google.protobuf import text_format  # a tenth of a second, which most runs do not need
    from p4.config.v1 import p4info_pb2

    info: Any = p4info_pb2.P4Info()
    text_format.Parse(source.read_text(), info)
    for table in info.tables:
        table.size = sizes.get(table.preamble.name, table.size)
    if ROUTING.uplinks in sizes:
        describe_groups(info)
    if endings:
        describe_endings(info)
    return text_format.MessageToString(info)


_SOURCE = "include/expiry.p4"
_CLOCK = {"type": "field", "value": ["standard_metadata", "ingress_global_timestamp"]}
_LEAST = 8  # messages of a window; with fewer the rates that can be had are far apart
_MOST = 255  # messages of a window that the program can count


@dataclass(frozen=True)
class IcmpLimit:
    """At most ``messages`` ICMP messages of a switch in each window of 2**``shift`` us."""

    shift: int
    messages: int

    @classmethod
    def of(cls, per_s: float) -> IcmpLimit:
        """Return the limit that is nearest to ``per_s`` messages a second and not above it.

        Its window is as long as the program's own if the messages fit. In a shorter one with as
        many a second, a switch refuses more of those that come by chance at the same time.
        """
        shift = COMPILED.shift
        while int(per_s * (1 << shift) / 1e6) < _LEAST:
            shift += 1
        while int(per_s * (1 << shift) / 1e6) > _MOST:
            shift -= 1
        return cls(shift, int(per_s * (1 << shift) / 1e6))

    @property
    def window_s(self) -> float:
        """Return the length of a window in seconds."""
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
