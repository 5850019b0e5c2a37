# SPDX-License-Identifier: Apache-2.0
"""Flow IDs of the record are those that the P4 program makes, and can be taken apart again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from testbed.dataplane import FLOW_ID
from testbed.record.flow_ids import FiveTuples, five_tuples, flow_ids

FIELDS = (2**32, 2**32, 2**16, 2**16, 2**8)


@given(st.lists(st.tuples(*(st.integers(0, n - 1) for n in FIELDS)), min_size=1, max_size=20))
def test_both_ways_and_as_the_program(flows: list[tuple[int, int, int, int, int]]) -> None:
    columns = FiveTuples(*(np.array(column) for column in zip(*flows, strict=True)))
    hi, lo = flow_ids(columns)
    whole = [int(h) << 64 | int(low) for h, low in zip(hi, lo, strict=True)]
    assert whole == [FLOW_ID.of(*flow) for flow in flows]
    again = five_tuples(hi, lo)
    for before, after in zip(columns, again, strict=True):
        assert (before == after).all()
