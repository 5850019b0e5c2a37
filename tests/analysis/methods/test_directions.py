# SPDX-License-Identifier: Apache-2.0
"""Probes that go one way tell the two directions of a link apart; probes that bounce do not."""

import numpy as np
import pytest

from analysis.methods.flock.flock import Flock
from analysis.methods.netbouncer import NetBouncer, NetBouncerStage
from analysis.methods.netscope import NetScope
from analysis.telemetry.telemetry import Probes, Telemetry
from testbed.fabric.clos import leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.paths import Paths

FABRIC = leaf_spine(6, 3)
LINK = FABRIC.link("spine1->leaf2")
METHODS = [Flock, NetBouncer, NetBouncerStage, NetScope]


def one_way() -> Paths:
    src, dst = np.divmod(np.arange(36, dtype=np.int32), np.int32(6))
    return FABRIC.path_sets(src[src != dst], dst[src != dst]).paths


def probed(paths: Paths) -> Telemetry:
    sent = np.full(len(paths), 1000, np.int64)
    lost = np.where([LINK in paths[p] for p in range(len(paths))], 500, 0)
    return Telemetry(FABRIC, "given", probes=Probes(paths, sent, lost.astype(np.int64)))


@pytest.mark.parametrize("method", METHODS)
def test_one_way_probes_keep_the_direction(method):
    verdict = method().localize(probed(one_way()))
    assert verdict.native == "directed"
    assert verdict.flagged.tolist() == [LINK]


@pytest.mark.parametrize("method", METHODS)
def test_bounced_probes_have_none(method):
    verdict = method().localize(probed(Ecmp(FABRIC).bounces()))
    assert verdict.native == "undirected"
    assert verdict.flagged.tolist() == sorted((LINK, LINK ^ 1))


@pytest.mark.parametrize("method", METHODS)
def test_one_probe_that_goes_one_way_is_enough(method):
    bounces, away = Ecmp(FABRIC).bounces(), one_way()
    both = Paths(
        np.concatenate((bounces.ptr, bounces.ptr[-1] + away.ptr[1:])),
        np.concatenate((bounces.links, away.links)),
    )
    verdict = method().localize(probed(both))
    assert verdict.native == "directed"
    assert verdict.flagged.tolist() == [LINK]


def test_a_device_that_one_way_probes_cross():
    paths = one_way()
    spine = FABRIC.switch("spine1")
    crosses = np.isin(paths.links, FABRIC.links_of(spine))
    lost = np.where(np.logical_or.reduceat(crosses, paths.ptr[:-1]), 300, 0).astype(np.int64)
    sent = np.full(len(paths), 1000, np.int64)
    telemetry = Telemetry(FABRIC, "given", probes=Probes(paths, sent, lost))
    verdict = NetBouncer().localize(telemetry)
    assert verdict.devices.tolist() == [spine]
    assert verdict.flagged.tolist() == sorted(FABRIC.links_of(spine).tolist())
