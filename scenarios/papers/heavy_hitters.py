"""Traffic of two switches for 30 seconds, and who knows its largest flows at the end: Canary's DSM
with its small HashPipe, and the original HashPipe (Canary, sections IV-C and IV-F)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from analysis.sketches.hashing import buckets, flow_ids
from analysis.sketches.hashpipe import HashPipe
from analysis.sketches.meters import FlowMeter
from testbed.arrays import WordArray
from testbed.traffic.capture import read_capture

ALPHA, BETA, DELTA, ETA = 1000, 20, 20, 16
EPOCHS, SECONDS = 300, 30
STAGES, SMALL_STAGES, SMALL_ENTRIES, ROWS = 6, 3, 32, 3
MOST, LARGE = 20_000, 200

LongArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """30 seconds of packets: the ``flow`` of each, int64[packets], and ``when`` it comes, in epochs
    and in order, float64[packets]; each flow's true ``size``, int64[flows], and its ID."""

    flow: LongArray
    when: npt.NDArray[np.float64]
    size: LongArray
    hi: WordArray
    lo: WordArray

    @classmethod
    def draw(
        cls,
        seed: int,
        flows: int,
        bursts: int = 0,
        shape: float = 1.1,
        lasting_s: tuple[float, float] = (0.9, 9.0),
    ) -> Trace:
        """Sizes are Pareto's of ``shape``, from 2 to 20,000 packets; a flow begins at any time and
        sends evenly, for ``lasting_s`` or to the end. With ``bursts`` large flows last to the end
        and send in so many bursts of up to 2 % of the time."""
        rng = np.random.default_rng([seed, 11])
        size = np.minimum(np.ceil(2 * (1 + rng.pareto(shape, flows))), MOST).astype(np.int64)
        begin = rng.uniform(-0.1, 1.0, flows).clip(0)
        last = rng.uniform(*lasting_s, flows) / SECONDS
        flow = np.repeat(np.arange(flows), size)
        within = rng.random(len(flow))
        if bursts:
            last = np.where(size > LARGE, 1.0, 0.02)
            start = rng.random((flows, bursts))[flow, rng.integers(0, bursts, len(flow))]
            within = np.minimum(start + 0.02 * within, 1.0)
        when = begin[flow] + np.minimum(last, 1 - begin)[flow] * within
        order = np.argsort(when)
        when = np.minimum(when[order] * EPOCHS, EPOCHS - 1e-6).astype(np.float64)
        return cls(flow[order], when, size, *flow_ids(flows, rng))

    @classmethod
    def captured(cls, path: Path, seed: int) -> Trace:
        """The first 30 seconds of a capture's TCP and UDP packets; ``seed`` is of the hashes.

        Raises:
            testbed.traffic.frames.CaptureError: It cannot be read (one line).
        """
        capture = read_capture(path, SECONDS)
        here = capture.time_ns < SECONDS * 10**9
        ends = (capture.src, capture.dst, capture.src_port, capture.dst_port, capture.protocol)
        key = np.stack([each[here].astype(np.uint64) for each in ends], axis=1)
        _, flow, size = np.unique(key, axis=0, return_inverse=True, return_counts=True)
        when = capture.time_ns[here].astype(np.float64) * (EPOCHS / (SECONDS * 1e9))
        ids = flow_ids(len(size), np.random.default_rng([seed, 11]))
        return cls(flow.reshape(-1), when, size, *ids)

    def pipe(self, stages: int, entries: int) -> HashPipe:
        return HashPipe(buckets(self.hi, self.lo, stages, entries, seed=3), entries)


def by_canary(trace: Trace, width: int) -> LongArray:
    """Packets of each flow as Canary knows them at the end, int64[flows].

    After each epoch with fewer than alpha packets or beta flows counted, the controller adds up to
    delta of the flows that HashPipe reported. HashPipe sees what the DSM does not, and is not
    cleared; the DSM's clean buckets are summed over the epochs; rules stay.
    """
    pipe, known = trace.pipe(SMALL_STAGES, SMALL_ENTRIES), np.zeros(len(trace.size), np.int64)
    watched = np.zeros(len(trace.size), np.bool_)
    cuts = np.searchsorted(trace.when, np.arange(EPOCHS + 1))
    for first, end in pairwise(cuts.tolist()):
        flow = trace.flow[first:end]
        own = watched[flow]
        active, packets = np.unique(flow[own], return_counts=True)
        if len(active):
            place = buckets(trace.hi[active], trace.lo[active], ROWS, width, seed=5)
            meter = FlowMeter(place, width)
            meter.add(np.arange(len(active)), packets)
            known[active] += meter.read()[0]
        rest = flow[~own]
        large = rest[pipe.add(rest) > ETA]
        if packets.sum() < ALPHA or len(active) < BETA:
            watched[list(dict.fromkeys(large.tolist()))[:DELTA]] = True
    return known + pipe.read()


def by_hashpipe(trace: Trace, entries: int) -> LongArray:
    """The same of the original HashPipe, never cleared."""
    pipe = trace.pipe(STAGES, entries)
    pipe.add(trace.flow)
    return pipe.read()


def f1(known: LongArray, size: LongArray, k: int) -> float:
    """F1 of the k flows that look largest: as many are named as are true. Of those that look
    equally large, the first are named; a flow never seen is not."""
    true = np.argsort(-size, kind="stable")[:k]
    named = np.argsort(-known, kind="stable")[:k]
    named = named[known[named] > 0]
    hits = len(np.intersect1d(true, named))
    return 2 * hits / (len(true) + len(named))
