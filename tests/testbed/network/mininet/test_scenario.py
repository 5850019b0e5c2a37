# SPDX-License-Identifier: Apache-2.0
"""A scenario over real packets: the same code, telemetry and methods as in virtual time."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from analysis.telemetry.views.segments import read_minus_meters
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import make_settings
from testbed.network.requirements import missing
from testbed.record.run import RunDirectory
from tests.real_packets import paced

pytestmark = [
    pytest.mark.root,
    pytest.mark.xdist_group("mininet"),
    pytest.mark.skipif(bool(missing("softswitch")), reason=missing("softswitch") or "never"),
]


@pytest.mark.real_time
def test_a_lossy_link_is_found_with_real_packets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = make_settings(
        paced(3, 2500, 0.2)
        | {"backend": "softswitch"}
        | {"faults": "agg0_0->core0:0.3,core3->agg2_1:0.1", "noise": "0"}
    )
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "run"
    summary = run_experiment(layout_of(settings), path)
    run = RunDirectory(path)
    network = run.network
    # How late the controller is depends on what else the machine does, and what it loses.
    assert all("late" in reason or "emulator lost" in reason for reason in network["degraded"])
    assert network["conservation"]["fault_drops"] > 100
    for meter in read_minus_meters(run):
        assert meter.negative == meter.inconsistent == 0
        assert meter.sent.sum() > 1000
    links = run.table("links")
    assert set(np.flatnonzero(links["fault_drops"])) <= set(np.flatnonzero(links["faulty"]))
    assert summary["methods"]["canary-mle"]["directed"]["true_positives"] == 2
    assert (run.path / "logs").is_dir()
