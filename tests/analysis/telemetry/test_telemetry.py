# SPDX-License-Identifier: Apache-2.0
"""Telemetry is checked when it is made."""

import numpy as np
import pytest

from analysis.telemetry.telemetry import Connections, Flows, Probes, SegmentCounts, Telemetry
from testbed.fabric.clos import leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths, PathSets

TOPOLOGY = FatTree(4)
SEGMENTS = TOPOLOGY.segments()
LEAF_SPINE = leaf_spine(2, 2)
I32, I64 = np.int32, np.int64
NO_PATHS = Paths(np.zeros(1, I64), np.zeros(0, I32))


def flows(path_set=(0,), sent=(1,), lost=(0,), sets=None):
    sets = TOPOLOGY.path_sets(np.array([0]), np.array([5])) if sets is None else sets
    return Flows(sets, np.array(path_set, I32), np.array(sent, I64), np.array(lost, I64))


def probes(link, rows=1):
    return Probes(Paths.from_padded(np.array([[link]])), np.ones(rows, I64), np.zeros(rows, I64))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: flows(lost=(2,)), "row 0: more packets lost than sent"),
        (lambda: flows(lost=(-1,)), "row 0: lost is negative"),
        (lambda: flows(path_set=(0, 1)), "path_set must be an integer array of 1 rows"),
        (lambda: flows(path_set=(1,)), "row 0: path_set must be one of the 1 sets"),
        (lambda: flows(sets=PathSets(np.zeros(2, I64), NO_PATHS)), "row 0: its set has no path"),
        (lambda: flows(sets=PathSets(np.array([0, 1]), NO_PATHS)), "pointers do not match"),
        (
            lambda: Telemetry(LEAF_SPINE, "tor", flows=flows()),
            "uses link 32, but a leaf-spine of 2 leaves and 2 spines has links 0 to 7",
        ),
        (lambda: probes(0, rows=2), "1 paths for 2 rows"),
        (lambda: Telemetry(TOPOLOGY, "tor", probes=probes(999)), "row 0 uses link 999"),
        (lambda: SegmentCounts(SEGMENTS, np.zeros((1, 3), I64), np.zeros((1, 3), I64)), "segments"),
        (lambda: SegmentCounts(SEGMENTS, np.zeros(3, I64), np.zeros(3, I64)), "2 dimensions"),
        (
            lambda: SegmentCounts(
                SEGMENTS,
                np.zeros((1, 3)),  # pyright: ignore[reportArgumentType]
                np.zeros((1, 3)),  # pyright: ignore[reportArgumentType]
            ),
            "integers",
        ),
        (
            lambda: Connections(
                np.zeros(1, I32),
                np.zeros(1, I32),
                np.ones(1, I64),
                Paths.from_padded(np.array([[0]])),
                np.zeros(2, np.bool_),
                0,
            ),
            "complete",
        ),
        (lambda: Telemetry(TOPOLOGY, "tor", canary_bytes=-1), "canary_bytes"),
    ],
)
def test_bad_telemetry_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
