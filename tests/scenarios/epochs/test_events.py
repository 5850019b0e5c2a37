"""What EVENTS says happens in a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from scenarios.experiment import run_experiment
from scenarios.scenario import load_scenario
from scenarios.settings import Settings
from testbed.record.run import RunDirectory
from tests.conftest import SMALL, quiet

HEALTHY = replace(SMALL, faults="none")


def recorded(settings: Settings, path: Path) -> RunDirectory:
    scenario = load_scenario("faulty_links")
    run_experiment("faulty_links", scenario, settings, path, quiet, ["netbouncer"])
    return RunDirectory(path)


def test_flows_leave_a_drained_link_and_none_is_lost(tmp_path: Path) -> None:
    still = replace(HEALTHY, alpha=0, beta=0)
    moved = replace(still, events="0.1 drain tor0_0->agg0_1; 0.3 undrain tor0_0->agg0_1")
    before, after = (recorded(each, tmp_path / each.events[:3]) for each in (still, moved))
    assert after.config["events"] == moved.events
    names = before.table("links")["name"]
    drained, other = (names.index(f"tor0_0->agg0_{agg}") for agg in (1, 0))
    then, now = (run.table("links")["packets"].astype(np.int64) for run in (before, after))
    taken = then[drained] - now[drained]
    assert taken > 0.3 * then[drained]  # of half of the time; probes go on
    assert now[other] == then[other] + taken
    for run in before, after:
        counts = run.network["conservation"]
        assert counts["sent"] == counts["delivered"] + counts["ttl_drops"]
        assert not run.table("flows")["lost"].any()
