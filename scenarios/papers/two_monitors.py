"""Two monitor switches and a link between them, in the switches' own program: the network of
Canary's sections IV-C and IV-G. A ToR of a K=4 fat-tree counts upstream, a core switch downstream;
what the ToR sends up arrives there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.telemetry.minus_meters import MeterDump, Rules, minus_meter
from scenarios.papers.heavy_hitters import EPOCHS, Trace
from testbed.control.collection import clear_hashpipe, collect
from testbed.control.epochs import set_parity
from testbed.control.forwarding import install_forwarding
from testbed.control.local import LocalSwitch
from testbed.control.selection import FlowSelector, SelectionParameters
from testbed.dataplane import FLOW_ID, PROGRAM, VERDICT
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pathbf import SegmentDecoder, bloom_mask, switch_ids
from testbed.fabric.segments import Segments
from testbed.softswitch import Program, Switch
from testbed.traffic.packets import put, put_ipv4, put_udp

__all__ = ["Pair", "Seen", "frames_of", "watch"]

LENGTH, ETHERNET, IPV4, UDP = 46, 14, 20, 17
TICKS, EPOCH_NS = 50, 100_000_000
DOWN_PORT = 1

LongArray = npt.NDArray[np.int64]
Frames = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Pair:
    """The ``lower`` switch, the ``upper`` one, and the only segment between them."""

    lower: Switch
    upper: Switch
    segment: Segments
    decoder: SegmentDecoder
    controls: dict[int, LocalSwitch]

    @classmethod
    def make(cls, monitor: bool = True) -> Pair:
        """With the program's meters at work, or forwarding alone."""
        fabric = FatTree(4)
        every = fabric.segments()
        ids, core = switch_ids(fabric, every, 1), fabric.core(0)
        one = np.flatnonzero((every.upstream == 0) & (every.downstream == core))
        # Nothing is between the two: the ToR alone writes itself into pathBF.
        alone = np.zeros((1, 1), np.int32)
        arrays = (every.upstream, every.downstream)
        up, down = (array[one] for array in arrays)
        segment = Segments(up, down, alone, every.paths.take(one), every.subproblem[one])
        controls = {}
        for index in (0, core):
            switch = Switch(Program.load(PROGRAM, observe=VERDICT.field), seed=1)
            install_forwarding(fabric, index, switch, int(bloom_mask(ids)[index]), monitor)
            controls[index] = LocalSwitch(switch)
        decoder = SegmentDecoder(fabric, segment, ids)
        return cls(controls[0].switch, controls[core].switch, segment, decoder, controls)

    def send(self, frames: Frames, now_us: npt.NDArray[np.uint64]) -> int:
        """Pass frames uint8[n, LENGTH] through both switches; how many come out."""
        offsets = LENGTH * np.arange(len(frames) + 1, dtype=np.uint64)
        ports = np.full(len(frames), DOWN_PORT, np.uint16)
        out = self.lower.process_batch(ports, frames.reshape(-1), offsets, now_us)
        ports = np.full(len(out.ports), DOWN_PORT, np.uint16)
        return len(self.upper.process_batch(ports, out.data, out.offsets, now_us[out.source]).ports)


def frames_of(flows: int, rng: np.random.Generator) -> tuple[Frames, list[int]]:
    """A frame of each of so many flows to another pod, uint8[flows, LENGTH], and the flows' IDs."""
    src = 0x0A000000 | rng.permutation(1 << 24)[:flows]
    dst = 0x0A010000 | rng.integers(0, 1 << 16, flows)
    ports = rng.integers(1024, 65536, (2, flows))
    frames = np.zeros((flows, LENGTH), np.uint8)
    put(frames, 12, 0x0800, 2)
    put_ipv4(frames, ETHERNET, src, dst, UDP, ttl=64, length=LENGTH - ETHERNET)
    put_udp(frames, ETHERNET + IPV4, *ports, length=LENGTH - ETHERNET - IPV4)
    columns = (src.tolist(), dst.tolist(), *ports.tolist())
    return frames, [FLOW_ID.of(a, b, p, q, UDP) for a, b, p, q in zip(*columns, strict=True)]


@dataclass(frozen=True)
class Seen:
    """Of each epoch: ``packets`` counted and flows ``active`` in the meters, and flows for which
    rules were ``installed``; int64[EPOCHS]."""

    packets: LongArray
    active: LongArray
    installed: LongArray


def watch(trace: Trace, parameters: SelectionParameters, seed: int, clear: bool = True) -> Seen:
    """Send a trace through, with the testbed's own controller: epochs of 100 ms, quiet flows' rules
    are removed, HashPipe is cleared after each epoch."""
    pair = Pair.make()
    selector = FlowSelector(pair.segment, pair.decoder, dict(pair.controls), parameters)
    frames, _ = frames_of(len(trace.size), np.random.default_rng([seed, 7]))
    seen = np.zeros((3, EPOCHS), np.int64)
    selector.plan(*np.zeros((2, 1), np.int64))
    tick = (trace.when * TICKS).astype(np.int64)
    cuts = np.searchsorted(tick, np.arange(EPOCHS * TICKS + 1)).tolist()
    now_us = (trace.when * (EPOCH_NS // 1000)).astype(np.uint64)
    for epoch in range(EPOCHS):
        before = selector.installed
        for at in range(epoch * TICKS, (epoch + 1) * TICKS):
            if cuts[at] < cuts[at + 1]:
                some = slice(cuts[at], cuts[at + 1])
                pair.send(frames[trace.flow[some]], now_us[some])
            selector.poll((at + 1) * (EPOCH_NS // TICKS))
        for control in pair.controls.values():
            set_parity(control, (epoch + 1) % 2)
        dump, rules = MeterDump(**collect(dict(pair.controls), epoch % 2)), selector.in_force()
        selector.finish_retiring()
        meter = minus_meter(dump, pair.decoder.decode, pair.segment, Rules(*rules))
        counted, active = int(meter.sent.sum()), len(meter)
        selector.plan(np.array([counted]), np.array([active]))
        selector.retire_quiet()
        if clear:
            clear_hashpipe(dict(pair.controls))
        seen[:, epoch] = counted, active, selector.installed - before
    return Seen(*seen)
