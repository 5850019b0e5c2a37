# SPDX-License-Identifier: Apache-2.0
"""`make bench`: how fast the soft switch, the network and the methods are on this machine.

`python -m tests.bench NAME...` runs some only. How well methods do is in `tests.studies`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console

from canary_softswitch import Program, Switch
from testbed.control.forwarding import install_forwarding
from testbed.dataplane import DSM, FLOW_ID, PROGRAM, USM, VERDICT
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pathbf import SegmentDecoder, bloom_mask, switch_ids
from tests.bench.bench_canary import bench_canary
from tests.bench.bench_cores import bench_cores
from tests.bench.bench_detector import bench_detector
from tests.bench.bench_flock import bench_flock
from tests.bench.bench_flow import bench_flow
from tests.bench.bench_netbouncer import bench_netbouncer
from tests.bench.bench_packets import bench_packets
from tests.bench.bench_parts import bench_parts
from tests.bench.bench_scale import bench_scale
from tests.bench.bench_vigil import bench_vigil

FLOWS = 64
BATCH = 4096
TURNS = 100


def monitored_core(size: int) -> tuple[Switch, np.ndarray]:
    """A core switch that monitors every flow up and down, and one batch of frames for it."""
    topology = FatTree(4)
    segments = topology.segments()
    ids = switch_ids(topology, segments, 1)
    decoder = SegmentDecoder(topology, segments, ids)
    core = topology.core(0)
    switch = Switch(Program.load(PROGRAM, observe=VERDICT.field), seed=1)
    install_forwarding(topology, core, switch, int(bloom_mask(ids)[core]), monitor=True)
    segment = int(np.flatnonzero((segments.downstream == core) & (segments.upstream == 0))[0])
    path_bf = int(decoder.path_bf[segment])
    src, dst = int(topology.host_ip[0]), int(topology.host_ip[-1])
    frames = np.zeros((BATCH, size), np.uint8)
    for n in range(FLOWS):
        flow = FLOW_ID.of(src, dst, 1000 + n, 80, 6)
        switch.table(DSM.rules).add([flow, path_bf], DSM.monitor)
        switch.table(USM.rules).add([flow], USM.monitor)
        frames[n::FLOWS, :] = _frame(size, path_bf, src, dst, 1000 + n)
    return switch, frames


def _frame(size: int, path_bf: int, src: int, dst: int, port: int) -> np.ndarray:
    ip = bytearray.fromhex("45000000000000003e060000")
    ip[2:4] = (size - 21).to_bytes(2, "big")
    ip += src.to_bytes(4, "big") + dst.to_bytes(4, "big")
    total = sum(int.from_bytes(ip[i : i + 2], "big") for i in range(0, 20, 2))
    total = (total & 0xFFFF) + (total >> 16)
    ip[10:12] = (~(total + (total >> 16)) & 0xFFFF).to_bytes(2, "big")
    shim = path_bf.to_bytes(4, "big") + b"\x80\x08\x00"  # counted, in an even epoch
    l4 = port.to_bytes(2, "big") + (80).to_bytes(2, "big")
    packet = bytes(12) + b"\x88\xb5" + shim + bytes(ip) + l4
    return np.frombuffer(packet.ljust(size, b"\0"), np.uint8)


def bench_switch(console: Console) -> None:
    for size in (64, 1500):
        switch, frames = monitored_core(size)
        ports = np.full(BATCH, 1, np.uint16)
        offsets = np.arange(BATCH + 1, dtype=np.uint64) * size
        data = frames.reshape(-1)
        result = switch.process_batch(ports, data, offsets, 0)
        begin = time.process_time()
        for _ in range(TURNS):
            result = switch.process_batch(ports, data, offsets, 0)
        rate = BATCH * TURNS / (time.process_time() - begin)
        counted = int(switch.register(USM.rows[0]["count"]).sum())
        assert len(result.ports) == BATCH
        assert counted >= BATCH * TURNS
        console.print(
            f"soft switch, full Canary program on a monitor switch, {size:4}-byte packets: "
            f"{rate / 1e6:.2f} M packet-hops a second of processor"
        )


BENCHES: dict[str, Callable[[Console], None]] = {
    "switch": bench_switch,
    "packets": bench_packets,
    "scale": bench_scale,
    "flow": bench_flow,
    "canary": bench_canary,
    "netbouncer": bench_netbouncer,
    "detector": bench_detector,
    "vigil": bench_vigil,
    "flock": bench_flock,
}
ON_REQUEST: dict[str, Callable[[Console], None]] = {"parts": bench_parts, "cores": bench_cores}
"""These only by name: they take hours, or a machine on which nothing else runs."""


def main(names: list[str]) -> None:
    for name in names:
        if name not in BENCHES | ON_REQUEST:
            sys.exit(f"no bench {name!r}: known are {', '.join(BENCHES | ON_REQUEST)}")
    console = Console(width=180, highlight=False)
    for name in names or BENCHES:
        (BENCHES | ON_REQUEST)[name](console)


if __name__ == "__main__":
    main(sys.argv[1:])
