# SPDX-License-Identifier: Apache-2.0
"""The program as a run needs it: what is changed in the JSON, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import google.protobuf.text_format
from p4.config.v1 import p4info_pb2

from testbed.dataplane import DSM, HEAVY_HITTER, P4INFO, PROGRAM, ROUTING
from testbed.dataplane.adapted import COMPILED, Adapted, IcmpLimit, adapted_program
from tests.testbed.dataplane.test_icmp_limit import differences


def changed(path: Path) -> list[tuple[object, object]]:
    return [*differences(json.loads(PROGRAM.read_text()), json.loads(path.read_text()))]


def test_a_program_that_fits_is_used_as_it_is(tmp_path: Path) -> None:
    full = {HEAVY_HITTER.segments: HEAVY_HITTER.capacity, ROUTING.routes: 1}
    assert adapted_program(tmp_path, COMPILED, full) == Adapted(PROGRAM, P4INFO)


def test_tables_grow_and_nothing_else_changes(tmp_path: Path) -> None:
    more = {HEAVY_HITTER.segments: HEAVY_HITTER.capacity + 1, ROUTING.routes: 10}
    made = adapted_program(tmp_path, COMPILED, more)
    assert changed(made.json) == [(HEAVY_HITTER.capacity, HEAVY_HITTER.capacity + 1)]


def test_a_limit_and_a_size_go_together(tmp_path: Path) -> None:
    more = {ROUTING.routes: 5000}
    assert len(changed(adapted_program(tmp_path, IcmpLimit.of(10), more).json)) == 4


def sizes(p4info: Path) -> dict[str, int]:
    info: Any = p4info_pb2.P4Info()
    google.protobuf.text_format.Parse(p4info.read_text(), info)
    return {table.preamble.name: table.size for table in info.tables}


def test_the_p4info_has_the_same_sizes(tmp_path: Path) -> None:
    """A P4Runtime client asks the P4Info how many entries a table takes."""
    more = {HEAVY_HITTER.segments: 2406, ROUTING.routes: 5000, DSM.rules: 10}
    made = adapted_program(tmp_path, COMPILED, more)
    grown = {HEAVY_HITTER.segments: 2406, ROUTING.routes: 5000}
    assert sizes(made.p4info) == sizes(P4INFO) | grown
