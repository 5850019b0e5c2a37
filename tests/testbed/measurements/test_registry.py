# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from testbed.errors import UserError
from testbed.fabric.paths import Paths
from testbed.measurements.measurement import Running
from testbed.measurements.registry import (
    BUDGETS,
    MEASUREMENTS,
    STANDARD,
    budget,
    chosen,
    find_measurement,
    measurement_of,
    view_of,
)
from testbed.measurements.tables import joined
from testbed.record.run_tables import of


def names(views: set[str] | None, more: str = "none") -> list[str]:
    return [each.name for each in chosen(views, more)]


def test_a_run_makes_what_methods_read_and_what_is_asked_for() -> None:
    everything = ["canary", "bounce", "matrix", "traces", "flows"]
    assert names(None) == names(set(), "all") == names(set(MEASUREMENTS)) == everything
    assert names({"segments"}) == ["canary", "flows"]
    assert names({"probes", "connections"}) == ["bounce", "traces", "flows"]
    assert names({"segments"}, "matrix") == names({"detector"}, "canary+matrix")
    assert names(None, "counters") == [*everything, "counters"]
    assert names({"segments"}, "all+int") == [*everything, "int"]
    assert names({"counters"}) == ["flows", "counters"]
    assert names({"roundtrips"}) == names(set()) == ["flows"]


@pytest.mark.parametrize("wrong", ["bounces", "", "bounce+", "canary,bounce", "segments"])
def test_a_measurement_that_there_is_not_is_named(wrong: str) -> None:
    with pytest.raises(UserError, match="there is no measurement"):
        chosen(None, wrong)


def test_names_views_budgets_and_tables_fit_together() -> None:
    for each in STANDARD:
        assert find_measurement(each.name) is each and measurement_of(each.view) == each.name
        assert each.help and each.unseen and each.budgets
        assert all(view_of(one.name) == each.view for one in each.budgets)
        for schema in each.tables:
            assert of(schema.file.replace("NNN", "000") or schema.name) is schema
    assert len({each.name for each in BUDGETS}) == len(BUDGETS)
    assert budget("traceroutes").option == "traces_per_s"


def test_a_measurement_that_does_nothing_writes_nothing() -> None:
    running = Running()
    running.begin()
    running.poll(5, None)
    running.restarted(3)
    assert running.end_epoch(0, (), lambda name, columns: None) is None
    assert not running.changes(0) and not running.sending


def part(plan: str, links: list[list[int]], path: list[int]) -> dict[str, Any]:
    """The tables of some probed paths, and of probes over them."""
    ptr = np.cumsum([0, *map(len, links)])
    paths = Paths(ptr, np.concatenate([np.array(each, np.int32) for each in links]))
    counts = np.array(path, np.int32)
    return {
        "probe_paths": {"plan": [plan] * len(links), "path": paths},
        "probe_counts": {"path": counts, "sent": counts + 10},
    }


def test_rows_of_joined_tables_number_their_own_paths() -> None:
    one, two = part("netbouncer", [[0, 1], [2]], [0, 1, 1]), part("detector", [[3]], [0, 0])
    tables: Any = joined([one, two, {"connections": {"flow": np.array([1])}}])
    assert tables["probe_paths"]["plan"] == ["netbouncer", "netbouncer", "detector"]
    assert tables["probe_paths"]["path"].links.tolist() == [0, 1, 2, 3]
    assert tables["probe_counts"]["path"].tolist() == [0, 1, 1, 2, 2]
    assert tables["probe_counts"]["sent"].tolist() == [10, 11, 11, 10, 10]
    assert tables["connections"]["flow"].tolist() == [1]
    assert joined([two])["probe_counts"] == two["probe_counts"]
