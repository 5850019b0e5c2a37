"""The P4 program as a run needs it: with its limit of ICMP messages and tables of its sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from testbed.dataplane import PROGRAM
from testbed.dataplane.icmp_limit import COMPILED, IcmpLimit

__all__ = ["adapted_program"]


def adapted_program(folder: Path, limit: IcmpLimit, entries: Mapping[str, int]) -> Path:
    """Return the BMv2 JSON of the program as a run needs it, a new file unless that is `PROGRAM`.

    Args:
        folder: Where the file is written.
        limit: Of ICMP messages.
        entries: By table, how many entries it must have room for; smaller ones grow.

    Raises:
        DataPlaneError: The program does not have its limit in the places known here.
    """
    program = json.loads(PROGRAM.read_text())
    tables = {table["name"]: table for each in program["pipelines"] for table in each["tables"]}
    small = {name: n for name, n in entries.items() if n > tables[name]["max_size"]}
    if limit == COMPILED and not small:
        return PROGRAM
    if limit != COMPILED:
        limit.put_into(program)
    for name, n in small.items():
        tables[name]["max_size"] = n
    path = folder / PROGRAM.name
    path.write_text(json.dumps(program))
    return path
