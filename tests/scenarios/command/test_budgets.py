# SPDX-License-Identifier: Apache-2.0
"""Budgets are settings: what probes, traceroutes and ICMP messages a run may send."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.loop import run
from scenarios.experiment.observer import Observer
from scenarios.experiment.run import run_config
from scenarios.experiment.settings import Settings
from scenarios.experiment.setup import Emulation, set_up
from scenarios.experiment.without_packets import simulate
from testbed.dataplane.adapted import IcmpLimit
from testbed.fabric.fat_tree import FatTree
from testbed.measurements.traces.path_discovery import parse_time_exceeded
from testbed.measurements.without_packets import FlowRun
from testbed.record.run import RunDirectory, RunWriter
from tests.conftest import SMALL, inputs_for

K4 = FatTree(4)
LOSSY = "50pct:0.1"  # each host has more lossy connections than it may trace


def emulated(settings: Settings, folder: Path) -> tuple[Emulation, RunDirectory]:
    """A run whose network is still there to be looked at, and its record."""
    inputs, writer = inputs_for(settings), RunWriter(folder / "run")
    writer.config(run_config(inputs.config))
    with open_backend(inputs, folder) as backend:
        emulation = set_up(inputs, backend)
        run(emulation, writer, Observer())
        return emulation, RunDirectory(writer.partial, finished=False)


def most_in_a_window(times_s: np.ndarray, limit: IcmpLimit) -> int:
    return int(np.bincount((times_s / limit.window_s).astype(np.int64)).max())


@pytest.mark.parametrize("per_s", [2.0, 10.0])
def test_hosts_send_no_more_traceroutes_than_they_may(per_s: float, tmp_path: Path) -> None:
    settings = replace(SMALL, faults=LOSSY, traces_per_s=per_s)
    _, record = emulated(settings, tmp_path)
    connections, flows = record.table("connections"), record.table("flows")
    traced = np.bincount(flows["src_host"][connections["flow"]], minlength=K4.n_hosts)
    # a host may be an epoch ahead, and the last look is six ticks of a fiftieth after the end
    allowed = int(per_s * (settings.duration_s + settings.epoch_ms * 1.12 / 1000))
    assert traced.max() == allowed and record.network["traceroute_packets"] % 5 == 0
    lossy = (flows["lost"] > 0) & (flows["protocol"] == 6)
    assert np.bincount(flows["src_host"][lossy], minlength=K4.n_hosts).max() > allowed


@pytest.mark.parametrize("per_s", [pytest.param(20.0, marks=pytest.mark.nightly), 50.0])
def test_switches_answer_no_more_than_they_may(per_s: float, tmp_path: Path) -> None:
    settings = replace(SMALL, faults=LOSSY, icmp_per_s=per_s, traces_per_s=1000.0)
    emulation, _ = emulated(settings, tmp_path)
    replies = emulation.network.replies()
    switch = parse_time_exceeded(replies["data"], K4).switch
    counts = np.bincount(switch, minlength=K4.n_switches)
    limit = IcmpLimit.of(per_s)
    windows = settings.duration_s / limit.window_s + 1
    assert limit.messages * (windows - 1) < counts.max() <= limit.messages * np.ceil(windows)


def test_probes_are_as_many_as_they_should_be(tmp_path: Path) -> None:
    _, record = emulated(replace(SMALL, probes=7, epochs=1, load=0.02), tmp_path)
    plans = np.array(record.table("probe_paths")["plan"])
    counts = record.table("probe_counts")
    whose, sent = plans[counts["path"]], counts["sent"]
    assert set(sent[whose == "netbouncer"].tolist()) == {7}
    rows = (whose == "detector").sum()
    assert sent[whose == "detector"].sum() == 7 * 16 * 4 // rows * rows


def without_packets(**changes) -> FlowRun:
    usual = {"backend": "flow", "telemetry": "A1+P", "load": 0.06, "epoch_ms": 500}
    settings = replace(SMALL, **{**usual, **changes})
    return simulate(layout_of(settings))


def test_the_same_budgets_hold_without_packets() -> None:
    run = without_packets(probes=7, traces_per_s=3.0, faults=LOSSY)
    assert set(run.table("probe_counts")["sent"][: 16 * 4].tolist()) == {7}
    most = int(3.0 * (run.config["epochs"] + 1) * run.config["epoch_ms"] / 1000)
    lossy = int((run.flows.lost > 0).sum())
    assert 16 < len(run.table("connections")["flow"]) <= most * 16 < lossy

    some, all_ = (
        without_packets(icmp_per_s=each, traces_per_s=1000.0, faults=LOSSY) for each in (5.0, 1e4)
    )
    few, many = (each.table("connections")["complete"] for each in (some, all_))
    assert len(few) == len(many) and few.sum() < many.sum() / 2
