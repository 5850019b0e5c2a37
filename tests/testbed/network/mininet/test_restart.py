# SPDX-License-Identifier: Apache-2.0
"""Switches that restart in the middle of a run of real packets."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.methods.mle.mle import CanaryMle
from analysis.methods.registry import find_methods
from analysis.telemetry.observations import read_telemetry
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import make_settings
from testbed.fabric.packet_fabric import PacketFabric
from testbed.network import requirements
from testbed.network.network import NetworkError
from testbed.network.requirements import missing
from testbed.network.switches import Backend
from testbed.record.run import RunDirectory
from tests.present import present
from tests.real_packets import paced

EVENTS = ((3.0, "reboot core0"), (5.5, "reboot agg1_1"), (8.0, "reboot tor2_0"))


@pytest.mark.root
@pytest.mark.real_time
@pytest.mark.xdist_group("mininet")
@pytest.mark.parametrize("backend", ["softswitch", "bmv2"])
def test_switches_restart_and_nothing_is_blamed(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := missing(backend):
        pytest.skip(reason)
    monkeypatch.chdir(tmp_path)
    pace = paced(5, 2500, 0.2)
    events = "; ".join(f"{at * pace['epoch_ms'] / 2500:g} {what}" for at, what in EVENTS)
    settings = make_settings(
        pace | {"backend": backend, "tcp": 0, "faults": "none", "noise": "0", "events": events}
    )
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "run"
    run_experiment(layout_of(settings), path, find_methods("canary-mle,canary"))
    run = RunDirectory(path)
    # How late the controller is depends on what else the machine does, and what it loses.
    degraded = run.network["degraded"]
    assert all("late" in reason or "emulator lost" in reason for reason in degraded)
    events = present(run.network.get("events"))
    lacking = [event for event in events if "it lacked" in event]
    names = [event.split()[3].rstrip(":") for event in lacking]
    assert names == ["core0", "agg1_1", "tor2_0"]
    void = set(present(run.network.get("restarted")))
    assert {switch for _, switch in void} == {run.fabric.switch(name) for name in names}
    # What they dropped meanwhile is counted and said, and makes nothing of the run incomplete.
    own, counts = run.table("emulator_drops"), run.network["conservation"]
    meanwhile = own["packets"][np.array(own["where"], object) == "restart"]
    assert 0 < len(meanwhile) == len(events) - len(lacking)
    assert all("in all its restarts" in event for event in events[len(lacking) :])
    assert counts.get("unaccounted") == 0
    assert counts.get("emulator_drops") == own["packets"].sum() >= meanwhile.sum()
    telemetry = read_telemetry(run)
    counted = telemetry.segments
    assert counted is not None
    core = counted.segments.through(run.fabric.switch("core0"))
    # It counts again, if not in each epoch: BMv2 carries few packets, and few flows get rules.
    assert counted.sent[2:, core].any()
    if not any("emulator lost" in reason for reason in degraded):
        assert not counted.lost.any()
        assert not len(CanaryMle().localize(telemetry).flagged)


OFF = ((3.0, "down agg0_0-core0"), (4.0, "down h1_0_0"), (5.0, "stop agg2_1"))
ON = ((6.0, "up agg0_0-core0"), (6.5, "up h1_0_0"), (7.0, "start agg2_1"))


@pytest.mark.root
@pytest.mark.real_time
@pytest.mark.parametrize("backend", ["softswitch", pytest.param("bmv2", marks=pytest.mark.nightly)])
def test_what_events_switch_off_is_not_observed_and_nothing_is_blamed(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := missing(backend):
        pytest.skip(reason)
    monkeypatch.chdir(tmp_path)
    pace = paced(4, 2500, 0.2)
    events = "; ".join(f"{at * pace['epoch_ms'] / 2500:g} {what}" for at, what in OFF + ON)
    settings = make_settings(
        pace | {"backend": backend, "tcp": 0, "faults": "none", "noise": "0", "events": events}
    )
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "run"
    methods = find_methods("canary-mle,canary,netbouncer,flock")
    run_experiment(layout_of(settings), path, methods)
    run = RunDirectory(path)
    fabric, network = run.fabric, run.network
    assert isinstance(fabric, PacketFabric)
    off = np.zeros(fabric.n_links, np.bool_)
    off[present(network.get("links_off"))] = True
    agg = fabric.switch("agg2_1")
    wanted = (fabric.link_src == agg) | (fabric.link_dst == agg)
    wanted[[fabric.link("agg0_0->core0"), fabric.link("core0->agg0_0")]] = True
    assert np.array_equal(off, wanted)
    assert present(network.get("hosts_off")) == [fabric.host_names.index("h1_0_0")]
    own = run.table("emulator_drops")
    assert own["packets"].sum() > 0, "what was sent to them was lost"
    assert network["conservation"].get("unaccounted") == 0
    if network["degraded"]:  # on a busy machine
        assert all("late" in reason or "emulator lost" in reason for reason in network["degraded"])
        return
    for method, verdict in run.summary["methods"].items():
        assert not verdict["directed"]["wrong"], (method, verdict["directed"]["wrong"])


def test_links_of_bmv2_are_not_switched_off_without_nft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := missing("bmv2"):
        pytest.skip(reason)
    monkeypatch.setattr(requirements, "NFT", replace(requirements.NFT, command="no-such-nft"))
    settings = make_settings(
        paced(1, 2500, 0.2) | {"backend": "bmv2", "tcp": 0, "events": "1 down agg0_0-core0"}
    )
    path = tmp_path / "run"
    with pytest.raises(NetworkError, match="^EVENTS with down: no-such-nft is not on the PATH"):
        run_experiment(layout_of(settings), path, find_methods("canary"))
    assert not path.exists()
