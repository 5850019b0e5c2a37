"""The P4 program as a run needs it: with its limit of ICMP messages and tables of its sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from testbed.dataplane import P4INFO, PROGRAM
from testbed.dataplane.icmp_limit import COMPILED, IcmpLimit

__all__ = ["Adapted", "adapted_program"]

_TABLE = re.compile(r'^tables \{\n  preamble \{.*?^    name: "([^"]+)".*?^\}\n', re.M | re.S)


class Adapted(NamedTuple):
    """The files of a program: BMv2's JSON and the P4Info, which agree on the tables' sizes."""

    json: Path
    p4info: Path


def adapted_program(folder: Path, limit: IcmpLimit, entries: Mapping[str, int]) -> Adapted:
    """Return the files of the program as a run needs it, new ones unless `PROGRAM` and `P4INFO` do.

    Args:
        folder: Where the files are written.
        limit: Of ICMP messages.
        entries: By table, how many entries it must have room for; smaller ones grow.

    Raises:
        DataPlaneError: The program does not have its limit in the places known here.
    """
    program = json.loads(PROGRAM.read_text())
    tables = {table["name"]: table for each in program["pipelines"] for table in each["tables"]}
    small = {name: n for name, n in entries.items() if n > tables[name]["max_size"]}
    if limit == COMPILED and not small:
        return Adapted(PROGRAM, P4INFO)
    if limit != COMPILED:
        limit.put_into(program)
    for name, n in small.items():
        tables[name]["max_size"] = n
    adapted = Adapted(folder / PROGRAM.name, folder / P4INFO.name)
    adapted.json.write_text(json.dumps(program))
    adapted.p4info.write_text(_TABLE.sub(lambda found: _resized(found, small), P4INFO.read_text()))
    return adapted


def _resized(table: re.Match[str], sizes: Mapping[str, int]) -> str:
    """Return a table of the P4Info with its size, if it has a new one."""
    size = sizes.get(table[1])
    return table[0] if size is None else re.sub(r"(?m)^  size: \d+$", f"  size: {size}", table[0])
