"""The program as a run needs it: what is changed in the JSON, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from testbed.dataplane import HEAVY_HITTER, PROGRAM, ROUTING
from testbed.dataplane.adapted import adapted_program
from testbed.dataplane.icmp_limit import COMPILED, IcmpLimit
from tests.testbed.dataplane.test_icmp_limit import differences


def changed(path: Path) -> list[tuple[object, object]]:
    return [*differences(json.loads(PROGRAM.read_text()), json.loads(path.read_text()))]


def test_a_program_that_fits_is_used_as_it_is(tmp_path: Path) -> None:
    full = {HEAVY_HITTER.segments: HEAVY_HITTER.capacity, ROUTING.routes: 1}
    assert adapted_program(tmp_path, COMPILED, full) == PROGRAM


def test_tables_grow_and_nothing_else_changes(tmp_path: Path) -> None:
    more = {HEAVY_HITTER.segments: HEAVY_HITTER.capacity + 1, ROUTING.routes: 10}
    made = adapted_program(tmp_path, COMPILED, more)
    assert changed(made) == [(HEAVY_HITTER.capacity, HEAVY_HITTER.capacity + 1)]


def test_a_limit_and_a_size_go_together(tmp_path: Path) -> None:
    more = {ROUTING.routes: 5000}
    assert len(changed(adapted_program(tmp_path, IcmpLimit.of(10), more))) == 4
