# SPDX-License-Identifier: Apache-2.0
"""Packets made block by block are those that a list of all would have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.network import schedules
from testbed.network.schedules import FOREVER, Packets, Rounds, Schedule, listed


def blocks_of(schedule: Schedule, size: int) -> list[Packets]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "_BLOCK", size)
        return list(schedule.blocks())


def check_blocks(schedule: Schedule, size: int) -> None:
    """Blocks hold what leaves between their ends, and together everything in order."""
    blocks, whole = blocks_of(schedule, size), listed(schedule)
    begin = 0
    for block in blocks:
        time = block.time_ns.astype(object)
        assert all(begin <= at < block.until_ns for at in time)
        begin = block.until_ns
    assert begin == FOREVER
    assert len(schedule) == len(whole) == sum(map(len, blocks))
    for name in ("time_ns", "flow", "size"):
        if getattr(whole, name) is not None:
            parts = [getattr(block, name) for block in blocks]
            assert (np.concatenate(parts) == getattr(whole, name)).all()


@given(
    phases=st.lists(st.floats(0, 1, exclude_max=True), max_size=20),
    rounds=st.integers(1, 9),
    round_ns=st.floats(1, 1e6),
    size=st.integers(1, 50),
)
def test_rounds_send_every_flow_once_a_round(phases, rounds, round_ns, size) -> None:
    phase = np.sort(np.array(phases))
    flow = np.arange(len(phase), dtype=np.uint32)[::-1]
    schedule = Rounds(flow, phase, rounds, round_ns)
    whole = listed(schedule)
    time = ((np.arange(rounds)[:, None] + phase) * round_ns).ravel()
    assert (whole.time_ns == time.astype(np.uint64)).all()
    assert (whole.flow == np.tile(flow, rounds)).all()
    check_blocks(schedule, size)


def test_a_list_is_one_block() -> None:
    packets = Packets(np.array([3, 4], np.uint64), np.zeros(2, np.uint32))
    check_blocks(packets, 1)
    assert len(blocks_of(packets, 1)) == 1 and len(packets.cut(1)) == 1
