"""The running switch's upstream meter, asked how many flows have a clean bucket."""

from __future__ import annotations

from functools import cache

import numpy as np

from testbed.control.forwarding import install_forwarding
from testbed.dataplane import BUCKETS, FLOW_ID, PROGRAM, ROWS, USM, VERDICT
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pathbf import bloom_mask, switch_ids
from testbed.softswitch import Program, Switch
from testbed.traffic.packets import put, put_ipv4, put_udp

__all__ = ["clean_flows"]

LENGTH, ETHERNET, IPV4, UDP = 46, 14, 20, 17


@cache
def _monitor() -> Switch:
    """A ToR of a K=4 fat-tree, with its routes."""
    fabric = FatTree(4)
    switch = Switch(Program.load(PROGRAM, observe=VERDICT.field), seed=1)
    masks = bloom_mask(switch_ids(fabric, fabric.segments(), 1))
    install_forwarding(fabric, 0, switch, int(masks[0]), True)
    return switch


def clean_flows(flows: int, seed: int) -> float:
    """The share of random flows with a clean bucket in some row, after one packet of each."""
    switch, rng = _monitor(), np.random.default_rng([seed, flows])
    src = 0x0A000000 | rng.permutation(1 << 24)[:flows]
    dst = 0x0A010000 | rng.integers(0, 1 << 16, flows)  # in another pod
    ports = rng.integers(1024, 65536, (2, flows))
    frames = np.zeros((flows, LENGTH), np.uint8)
    put(frames, 12, 0x0800, 2)
    put_ipv4(frames, ETHERNET, src, dst, UDP, ttl=64, length=LENGTH - ETHERNET)
    put_udp(frames, ETHERNET + IPV4, *ports, length=LENGTH - ETHERNET - IPV4)
    rules = switch.table(USM.rules)
    rules.clear()
    ids = [
        FLOW_ID.of(a, b, p, q, UDP)
        for a, b, p, q in zip(src.tolist(), dst.tolist(), *ports.tolist(), strict=True)
    ]
    for each in ids:
        rules.add([each], USM.monitor)
    offsets = LENGTH * np.arange(flows + 1, dtype=np.uint64)
    switch.process_batch(np.full(flows, 1, np.uint16), frames.ravel(), offsets)
    low = np.array([each & (1 << USM.half_bits) - 1 for each in ids], np.uint64)
    clean = np.zeros(flows, np.bool_)
    for row in range(ROWS):
        fields = {name: switch.register(field) for name, field in USM.rows[row].items()}
        owned = (fields["count"][:BUCKETS] == 1) & (fields["dirty"][:BUCKETS] == 0)
        clean |= np.isin(low, fields["flow_lo"][:BUCKETS][owned])
        for register in fields.values():
            register[:] = 0
    return float(clean.mean())
