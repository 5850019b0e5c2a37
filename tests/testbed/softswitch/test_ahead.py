# SPDX-License-Identifier: Apache-2.0
"""What is fetched before a packet needs it: the lookups that its headers tell."""

from __future__ import annotations

import re

from testbed.dataplane import PROGRAM
from testbed.softswitch.compiler.source import translate


def test_tables_keyed_by_headers_are_guessed_with_their_registers() -> None:
    source = translate(PROGRAM.read_bytes(), str(PROGRAM))
    marks = re.search(r"ss_guessed\[\] = \{([^}]*)\}", source.code)
    assert marks
    guessed = [
        table.name
        for table, mark in zip(source.definition.tables, marks[1].split(","), strict=True)
        if int(mark)
    ]
    ingress = ["CanaryIngress.dsm.rules", "CanaryIngress.routing.routes"]
    assert guessed == [*ingress, "CanaryEgress.usm.rules"]
    found = re.findall(r"ss_guess_register\(sw, (\d+), guess", source.code)
    blocks = {
        source.generated.registers[name].block
        for name in source.generated.registers
        if ".dsm." in name or ".usm." in name
    }
    assert sorted(map(int, found)) == sorted(blocks) and len(blocks) == 6
