# SPDX-License-Identifier: Apache-2.0
"""Epoch boundaries are skewed, and a packet's parity tells its epoch."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from testbed.control.epochs import EpochClock

CLOCK = EpochClock(epoch_ns=100_000_000, skew_ns=1_000_000, seed=5)


def test_flips_are_skewed_within_bounds_and_differ_by_switch() -> None:
    flips = CLOCK.flips(3, list(range(50)))
    times = np.array([at for at, _ in flips])
    assert sorted(switch for _, switch in flips) == list(range(50))
    assert (np.abs(times - 400_000_000) <= 1_000_000).all()
    assert len(set(times.tolist())) > 40
    assert flips == CLOCK.flips(3, list(range(50)))


@given(epoch=st.integers(0, 1000), offset=st.integers(-40_000_000, 140_000_000))
def test_parity_and_time_give_the_epoch_even_outside_of_it(epoch: int, offset: int) -> None:
    # A packet may be lost a little before or after the nominal epoch that counted it.
    time = epoch * 100_000_000 + offset
    if time < 0:
        return
    found = CLOCK.epoch_of(np.array([time], np.uint64), np.array([epoch % 2]))
    assert found[0] == epoch
