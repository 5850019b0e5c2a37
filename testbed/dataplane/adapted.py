"""The P4 program as a run needs it: with its limit of ICMP messages and tables of its sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from testbed.dataplane import P4INFO, PROGRAM
from testbed.dataplane.icmp_limit import COMPILED, IcmpLimit


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
    adapted.p4info.write_text(_p4info(small))
    return adapted


def _p4info(sizes: Mapping[str, int]) -> str:
    """Return the text of the P4Info with the sizes of some tables."""
    from google.protobuf import text_format  # a tenth of a second, which most runs do not need
    from p4.config.v1 import p4info_pb2

    info: Any = p4info_pb2.P4Info()
    text_format.Parse(P4INFO.read_text(), info)
    for table in info.tables:
        table.size = sizes.get(table.preamble.name, table.size)
    return text_format.MessageToString(info)
