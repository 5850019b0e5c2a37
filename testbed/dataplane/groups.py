# SPDX-License-Identifier: Apache-2.0
"""The P4 program with several groups of uplinks, which routes choose among.

The compiled program has one group, for all that goes up: in its sources the action ``up`` sets a
bit, which is the key of the table of groups. Where uplinks lead to some ToRs only, this bit is
widened to the number of a group, which the route gives as a parameter, as if the sources had it so.
"""

from __future__ import annotations

from typing import Any

from testbed.dataplane import PROGRAM, ROUTING, DataPlaneError

_GROUP = {"name": "group", "bitwidth": 9}  # a bit and a byte more, as a header has whole bytes
_FIRST = {"type": "runtime_data", "value": 0}
_ONE = {"type": "hexstr", "value": "0x01"}


def choose_among_groups(program: dict[str, Any]) -> None:
    """Let the routes of a program choose among groups of uplinks.

    Args:
        program: Its BMv2 JSON, which is changed.

    Raises:
        DataPlaneError: The program does not choose an uplink in the places known here.
    """
    tables = [table for each in program["pipelines"] for table in each["tables"]]
    (key,) = next(table["key"] for table in tables if table["name"] == ROUTING.uplinks)
    field = {"type": "field", "value": key["target"]}
    (up,) = (action for action in program["actions"] if action["name"] == ROUTING.up)
    sets = [each for each in up["primitives"] if each["parameters"] == [field, _ONE]]
    asks = [
        condition["expression"]["value"]
        for each in program["pipelines"]
        for condition in each["conditionals"]
        if condition["expression"]["value"].get("left") == field
    ]
    header, name = key["target"]
    types = {each["name"]: each["header_type"] for each in program["headers"]}
    fields = next(h["fields"] for h in program["header_types"] if h["name"] == types[header])
    widths = [each for each in fields if each[0] == name]
    expected = [(each["op"], each["right"]) for each in asks] == [("==", _ONE)]
    if not expected or len(sets) != 1 or [each[1] for each in widths] != [1]:
        raise DataPlaneError(f"{PROGRAM.name} chooses uplinks in other places than expected")
    widths[0][1] = _GROUP["bitwidth"]
    up["runtime_data"] = [_GROUP]
    sets[0]["parameters"] = [field, _FIRST]
    asks[0].update(op="!=", right={"type": "hexstr", "value": "0x00"})


def describe_groups(info: Any) -> None:
    """Change a P4Info message as `choose_among_groups` changes the program."""
    for action in info.actions:
        if action.preamble.name == ROUTING.up:
            action.params.add(id=1, **_GROUP)
    for table in info.tables:
        if table.preamble.name == ROUTING.uplinks:
            table.match_fields[0].bitwidth = _GROUP["bitwidth"]
