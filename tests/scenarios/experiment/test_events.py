# SPDX-License-Identifier: Apache-2.0
"""What EVENTS says happens in a run."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analysis.methods.mle.mle import CanaryMle
from analysis.methods.registry import METHODS, find_methods
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.views.segments import read_minus_meters
from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.loop import run
from scenarios.experiment.recording import Epoch
from scenarios.experiment.request import Scenario
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings
from scenarios.experiment.setup import set_up
from testbed.fabric.fat_tree import FatTree
from testbed.measurements.canary.minus_meters import segment_counts
from testbed.network.virtual import LinkModel
from testbed.record.run import RunDirectory
from tests.conftest import SMALL, inputs_for
from tests.present import present
from tests.scenarios.experiment.nowhere import EpochObserver, Nowhere

HEALTHY = replace(SMALL, faults="none")


def recorded(settings: Settings, path: Path) -> RunDirectory:
    settings = replace(settings, measure="all")
    run_experiment(layout_of(settings), path, find_methods("netbouncer"))
    return RunDirectory(path)


def test_flows_leave_a_drained_link_and_none_is_lost(tmp_path: Path) -> None:
    still = replace(HEALTHY, alpha=0, beta=0)
    moved = replace(still, events="0.1 drain tor0_0->agg0_1; 0.3 undrain tor0_0->agg0_1")
    before, after = (recorded(each, tmp_path / each.events[:3]) for each in (still, moved))
    assert after.config.get("events") == moved.events
    names = before.table("links")["name"]
    drained, other = (names.index(f"tor0_0->agg0_{agg}") for agg in (1, 0))
    then, now = (one.table("links")["packets"].astype(np.int64) for one in (before, after))
    taken = then[drained] - now[drained]
    assert taken > 0.3 * then[drained]  # of half of the time; probes go on
    assert now[other] == then[other] + taken
    for each in before, after:
        counts = each.network["conservation"]
        assert counts["sent"] == counts["delivered"] + counts["ttl_drops"]
        assert not each.table("flows")["lost"].any()


REBOOTS = "0.15 reboot core0; 0.2 reboot agg1_1; 0.375 reboot tor2_0"


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A healthy run in which a core, an aggregation and a ToR switch restart."""
    settings = replace(HEALTHY, epochs=6, events=REBOOTS)
    return recorded(settings, tmp_path_factory.mktemp("restarted") / "run")


def test_a_restart_is_void_and_no_loss(restarted: RunDirectory, tmp_path: Path) -> None:
    fabric, network = restarted.fabric, restarted.network
    void, told = present(network.get("restarted")), present(network.get("events"))
    other_drops = present(network.get("other_drops"))
    core, agg, tor = (fabric.switch(name) for name in ("core0", "agg1_1", "tor2_0"))
    # The aggregation switch restarts when the epoch has begun and the one before is not read.
    assert void == [(1, agg), (1, core), (2, agg), (3, tor)]
    for event, name in zip(told, ("core0", "agg1_1", "tor2_0"), strict=True):
        assert re.search(rf"reboot {name}: it lacked \d+ entries for \d ms and dropped", event)
    assert restarted.summary.get("events") == told
    traffic = len(restarted.table("drops")["link"])
    assert 100 < traffic < other_drops  # the others are of probes
    counts = network["conservation"]
    ended = counts["delivered"] + counts["ttl_drops"] + other_drops
    assert counts["sent"] == ended

    telemetry = read_telemetry(restarted)
    counted = telemetry.segments
    assert counted is not None and not counted.lost.any()
    for epoch, switch in void:
        through = counted.segments.through(switch)
        assert not counted.sent[epoch, through].any() and counted.sent[epoch, ~through].any()
        assert counted.sent[5, through].any()  # it counts again
    assert present(restarted.summary.get("measured"))["segments"]["budgets"]["meters"] == {
        "asked": 6 * 12,
        "got": 6 * 12 - 2,
    }
    for name, entry in METHODS.items():
        method = entry()
        if getattr(method, "reads", "") == "segments":
            assert not len(method.localize(telemetry).flagged), name

    # As if nobody had said that they restarted.
    copy = tmp_path / "copy"
    shutil.copytree(restarted.path, copy)
    (copy / "network.json").write_text(json.dumps(network | {"restarted": []}))
    untold = read_telemetry(RunDirectory(copy, trust=True))
    assert untold.segments is not None and untold.segments.lost.sum() > 50
    assert len(CanaryMle().localize(untold).flagged)


def test_meters_of_a_restarted_switch_are_right_again(restarted: RunDirectory) -> None:
    void = {epoch for epoch, _ in present(restarted.network.get("restarted"))}
    for epoch, meter in enumerate(read_minus_meters(restarted)):
        if epoch not in void:
            assert meter.negative == meter.inconsistent == meter.lost.sum() == 0


def test_faults_and_drains_hold_after_a_restart(tmp_path: Path) -> None:
    events = "0.0 drain tor0_0->agg0_1; 0.05 reboot tor0_0; 0.05 reboot core0"
    faults = "core0->agg1_0:0.4"
    settings = replace(SMALL, epochs=3, faults=faults, events=events, alpha=0, beta=0)
    run = recorded(settings, tmp_path / "run")
    links = run.table("links")
    fault, drained = (links["name"].index(name) for name in ("core0->agg1_0", "tor0_0->agg0_1"))
    drops = run.table("drops")
    late = drops["link"][drops["time_ns"] > 150_000_000]
    assert (late == fault).all() and len(late) > 50
    probes = run.table("probe_counts")["sent"].sum()
    assert links["packets"][drained] < probes  # flows go another way


@given(
    switch=st.sampled_from(FatTree(4).switch_names),
    milliseconds=st.integers(0, 199),
    skew=st.sampled_from([0, 0.01, 0.1]),
    monitors=st.sampled_from(["tor", "tor+core"]),
)
@example(switch="core0", milliseconds=119, skew=0.1, monitors="tor+core")
@example(switch="agg0_0", milliseconds=81, skew=0.01, monitors="tor+core")
@example(switch="tor0_0", milliseconds=40, skew=0.1, monitors="tor")
@settings(max_examples=10, deadline=None, derandomize=True)
def test_no_restart_invents_a_loss(
    switch: str, milliseconds: int, skew: float, monitors: str, tmp_path_factory
) -> None:
    chosen = replace(HEALTHY, epochs=5, epoch_ms=40, alpha=50, beta=2, skew=skew)
    events = f"{milliseconds / 1000} reboot {switch}"
    chosen = replace(chosen, monitors=monitors, events=events)
    lost: list[np.ndarray] = []

    def ended(epoch: Epoch) -> None:
        lost.append(segment_counts(epoch.found["canary"], len(epoch.emulation.segments))[1])

    inputs = inputs_for(chosen, Scenario(links=LinkModel(delay_ns=100_000)))
    folder = tmp_path_factory.mktemp("restart")
    with open_backend(inputs, folder) as backend:
        emulation = set_up(inputs, backend)
        run(emulation, Nowhere(), EpochObserver(ended))
        [restart] = emulation.events.absences
        void = emulation.events.void(chosen.epochs)
    assert restart.missing and restart.dropped and len(void) in (1, 2)
    for epoch, number in void:
        lost[epoch][emulation.segments.through(number)] = 0
    assert not np.sum(lost)


@pytest.mark.parametrize("path", ["tor0_0->agg0_1", "agg0_0->core1"])
def test_flows_that_move_lose_nothing_to_the_meters_and_are_selected_again(
    tmp_path: Path, path: str
) -> None:
    """What the meters call lost the network lost: nothing."""
    events = f"0.15 drain {path}; 0.45 undrain {path}"
    run = recorded(replace(HEALTHY, epochs=6, events=events), tmp_path / "run")
    counts, segments = run.network["conservation"], run.table("segments")
    assert counts["sent"] == counts["delivered"] + counts["ttl_drops"]
    assert segments["lost"].sum() == 0
    drained = run.table("links")["name"].index(path)
    paths = FatTree(4).segments().paths
    over = paths.owner[paths.links == drained]
    selection = run.table("selection")
    of_these = np.isin(selection["segment"], over)
    installed = [
        selection["installed"][of_these & (selection["epoch"] == epoch)].sum() for epoch in range(6)
    ]
    assert installed[2] + installed[3] == 0 < installed[5]
