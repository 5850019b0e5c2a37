# SPDX-License-Identifier: Apache-2.0
"""The trivial method: right where healthy links lose nothing, and wrong where they do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.methods.any_loss import AnyLoss
from analysis.telemetry.telemetry import Probes, Telemetry
from canary import run
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree

K4 = FatTree(4)
PATHS = Ecmp(K4).bounces()


def telemetry(lost: np.ndarray, sent: int = 5000) -> Telemetry:
    """Probes over all bounces, of which some were lost."""
    probes = Probes(PATHS, np.full(len(PATHS), sent), lost)
    return Telemetry(K4, "tor+core", probes=probes)


def test_it_blames_the_lossy_paths_and_clears_what_loss_free_ones_cross() -> None:
    lost = np.zeros(len(PATHS), np.int64)
    assert not AnyLoss().localize(telemetry(lost)).flagged.size
    lost[3] = 1
    links = np.unique(PATHS.take(np.array([3])).links)
    others = np.unique(PATHS.take(np.flatnonzero(lost == 0)).links)
    only = np.setdiff1d(links, others)
    assert AnyLoss().localize(telemetry(lost)).flagged.tolist() == only.tolist()
    # Too few packets clear nothing.
    assert AnyLoss().localize(telemetry(lost, 2999)).flagged.tolist() == links.tolist()
    assert AnyLoss(enough=2999).localize(telemetry(lost, 2999)).flagged.tolist() == only.tolist()


def test_a_loss_on_every_path_of_a_link_blames_it() -> None:
    link = 5
    lost = np.array([link in path for path in PATHS.padded()]).astype(np.int64)
    assert link in AnyLoss().localize(telemetry(lost)).flagged


def test_what_it_reads_and_costs() -> None:
    part = telemetry(np.zeros(len(PATHS), np.int64), 10)
    both = replace(part, detector=part.probes, canary_bytes=0)
    assert AnyLoss().measurements(part) == ["probes"]
    assert AnyLoss().measurements(both) == ["probes", "detector"]
    assert AnyLoss().probe_packets(both) == 2 * AnyLoss().probe_packets(part) == 20 * len(PATHS)
    assert AnyLoss().telemetry_bytes(part) == 16 * len(PATHS)
    with pytest.raises(ValueError, match="enough=0: it should be greater than or equal to 1"):
        AnyLoss(enough=0)


def test_it_wins_without_noise_and_loses_with_it(tmp_path: Path) -> None:
    f1 = {}
    for noise in ("0", "0..0.0001"):
        asked = {"backend": "flow", "epochs": 4, "epoch_ms": 100, "load": 0.6, "noise": noise}
        made = run(path=tmp_path / noise, methods="canary,any-loss", seed=1, **asked)
        f1[noise] = made.figures["f1"].to_dict()
    assert f1["0"]["any-loss"] >= 0.95
    assert f1["0..0.0001"]["any-loss"] < 0.6 < f1["0..0.0001"]["canary"]
