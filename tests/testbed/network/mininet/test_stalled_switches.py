# SPDX-License-Identifier: Apache-2.0
"""Switches that get no processor around the end of an epoch lose nothing, and say so."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from analysis.telemetry.observations import read_telemetry
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.observer import Observer
from scenarios.experiment.request import load_scenario
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import make_settings
from scenarios.experiment.setup import Emulation
from testbed.network.mininet import MininetNetwork
from testbed.network.requirements import missing
from testbed.record.run import RunDirectory

pytestmark = pytest.mark.root

STALL_S = 1.5


class Stall(Observer):
    """Stops the switches' process for a while shortly before the first epoch ends."""

    network: MininetNetwork | None = None

    def network_up(self, emulation: Emulation) -> None:
        assert isinstance(emulation.network, MininetNetwork)
        self.network = emulation.network

    def progressed(self, what: str, share: float) -> None:
        if self.network is not None and self.network.now_ns > 1_900_000_000:
            process = self.network.process("tor0")
            os.kill(process, signal.SIGSTOP)
            threading.Timer(STALL_S, os.kill, (process, signal.SIGCONT)).start()
            self.network = None


@pytest.mark.nightly  # 8 s
def test_packets_that_wait_at_a_stalled_switch_are_not_counted_as_lost(tmp_path: Path) -> None:
    if reason := missing("softswitch"):
        pytest.skip(reason)
    given = {"backend": "softswitch", "topology": "two-switch", "epochs": 2, "epoch_ms": 2000}
    settings = make_settings(given | {"faults": "none", "noise": "0", "tcp": 0, "load": 0.9})
    path, scenario = tmp_path / "run", load_scenario("healthy")
    summary = run_experiment(layout_of(settings, scenario, "healthy"), path, [], Stall())
    run = RunDirectory(path)
    counts = read_telemetry(run).segments
    assert counts is not None
    assert counts.sent.sum() > 200 and not counts.lost.any(), counts.lost.sum(axis=1)
    assert summary["degraded"] == []
    assert summary.get("slowdown", 1.0) > 1.1
