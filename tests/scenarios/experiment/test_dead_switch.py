# SPDX-License-Identifier: Apache-2.0
"""A switch that died in the middle of a run: its meters are missing, they are not empty."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from analysis.methods.mle.mle import CanaryMle
from analysis.telemetry.observations import read_telemetry
from testbed.fabric.fat_tree import FatTree
from testbed.record.run import RunDirectory, RunWriter
from testbed.record.run_tables import registers

DEAD = FatTree(4).switch("core3")


@pytest.fixture
def run(run_path: Path, tmp_path: Path) -> RunDirectory:
    """The finished run, without what a core switch would have told of its last two epochs."""
    copy = tmp_path / "copy"
    shutil.copytree(run_path, copy)
    run = RunDirectory(copy)
    with RunWriter.again(run) as writer:
        (writer.partial / "registers").mkdir()
        for epoch in (2, 3):
            dump = run.table(registers(epoch))
            alive = dump["switch"] != DEAD
            writer.table(registers(epoch), {k: v[alive] for k, v in dump.items()})
    return run


def test_nothing_is_known_of_its_segments_while_it_is_dead(
    run: RunDirectory, finished_run: RunDirectory
) -> None:
    blamed = set(CanaryMle().localize(read_telemetry(run)).flagged.tolist())
    whole = read_telemetry(finished_run)
    truth = set(CanaryMle().localize(whole).flagged.tolist())
    assert blamed > truth  # as if its links had lost everything

    network = run.network | {"unread": [[2, DEAD], [3, DEAD]]}
    (run.path / "network.json").write_text(json.dumps(network))
    telemetry = read_telemetry(RunDirectory(run.path, trust=True))
    assert telemetry.segments is not None
    assert whole.segments is not None
    segments = telemetry.segments.segments
    at = (segments.upstream == DEAD) | (segments.downstream == DEAD)
    assert not telemetry.segments.sent[2:, at].any()
    assert telemetry.segments.sent[:2, at].any()
    for mine, theirs in (
        (telemetry.segments.sent, whole.segments.sent),
        (telemetry.segments.lost, whole.segments.lost),
    ):
        assert (mine[:, ~at] == theirs[:, ~at]).all()
        assert (mine[:2] == theirs[:2]).all()
    assert set(CanaryMle().localize(telemetry).flagged.tolist()) <= truth
    assert np.isfinite(telemetry.segments.sent).all()
