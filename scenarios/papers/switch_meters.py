"""The running switch's upstream meter, asked how many flows have a clean bucket."""

from __future__ import annotations

from functools import cache

import numpy as np

from scenarios.papers.two_monitors import Pair, frames_of
from testbed.dataplane import BUCKETS, ROWS, USM


@cache
def _pair() -> Pair:
    return Pair.make()


def clean_flows(flows: int, seed: int) -> float:
    """The share of random flows with a clean bucket in some row, after one packet of each."""
    switch = _pair().lower
    frames, ids = frames_of(flows, seed)
    rules = switch.table(USM.rules)
    rules.clear()
    for each in ids:
        rules.add([each], USM.monitor)
    _pair().send(frames, np.zeros(flows, np.uint64))
    low = np.array([each & (1 << USM.half_bits) - 1 for each in ids], np.uint64)
    clean = np.zeros(flows, np.bool_)
    for row in range(ROWS):
        fields = {name: switch.register(field) for name, field in USM.rows[row].items()}
        owned = (fields["count"][:BUCKETS] == 1) & (fields["dirty"][:BUCKETS] == 0)
        clean |= np.isin(low, fields["flow_lo"][:BUCKETS][owned])
        for register in fields.values():
            register[:] = 0
    return float(clean.mean())
