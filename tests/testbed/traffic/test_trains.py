# SPDX-License-Identifier: Apache-2.0
"""The frames of trains, one by one and in blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from testbed.fabric.fat_tree import FatTree
from testbed.network.schedules import listed
from testbed.traffic.flows import MAX_FRAME
from testbed.traffic.generator import Trains, frames_before, generate
from tests.testbed.network.test_schedules import check_blocks

TRAINS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(1, 44), st.integers(64, MAX_FRAME)), max_size=12
)


@given(trains=TRAINS, frame_ns=st.floats(1, 1e5), size=st.integers(1, 100))
def test_each_frame_follows_the_one_before(trains, frame_ns: float, size: int) -> None:
    trains = sorted(trains)
    columns = np.array(trains, np.int64).reshape(-1, 3).T
    made = Trains(
        columns[0],
        np.arange(len(trains), dtype=np.uint32),
        columns[1].astype(np.uint16),
        columns[2].astype(np.uint16),
        frame_ns,
    )
    expected = sorted(
        (start + int(frame * frame_ns), flow, last if frame == frames - 1 else MAX_FRAME)
        for flow, (start, frames, last) in enumerate(trains)
        for frame in range(frames)
    )
    whole = listed(made)
    assert whole.size is not None
    found = zip(whole.time_ns.tolist(), whole.flow.tolist(), whole.size.tolist(), strict=True)
    assert sorted(found) == expected
    check_blocks(made, size)


@given(passed=st.integers(-5, 10**7), frame_ns=st.floats(1, 1e5))
def test_frames_that_have_left_are_counted_exactly(passed: int, frame_ns: float) -> None:
    wanted = sum(int(p * frame_ns) < passed for p in range(44))
    counted = frames_before(np.array([passed]), np.array([44], np.uint16), frame_ns)
    assert counted.tolist() == [wanted]


def test_generated_traffic_in_blocks_is_what_it_is_as_a_list() -> None:
    check_blocks(generate(FatTree(4), "hadoop", 0.5, 0.02, seed=3).packets, 1000)
