# SPDX-License-Identifier: Apache-2.0
"""Traffic between two switches for 30 seconds (Canary, sections IV-C and IV-F): figure 7, the
counts of the meters while the controller selects flows, and figure 11, how well each method knows
the largest flows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import inputs_of, layout_of
from scenarios.experiment.loop import run
from scenarios.experiment.observer import Observer
from scenarios.experiment.run import run_config
from scenarios.experiment.settings import make_settings
from scenarios.experiment.setup import set_up
from scenarios.papers.canary_tables import traffic_of
from scenarios.papers.experiment import Effort, Row, Task, by_draw, label
from scenarios.papers.sketches.hashpipe import HashPipe
from scenarios.papers.sketches.meters import DSM_BUCKET_BITS, FlowMeter
from testbed.arrays import FloatArray, LongArray, WordArray
from testbed.measurements.sketches.hashing import buckets, flow_ids
from testbed.record.run import RunDirectory, RunWriter
from testbed.traffic.capture import read_capture

ALPHA, BETA, DELTA, ETA = 1000, 20, 20, 16
EPOCHS, EPOCH_MS, SECONDS = 300, 100, 30
UP = 0  # the segment from the first switch to the second
STAGES, SMALL_STAGES, SMALL_ENTRIES, ROWS = 6, 3, 32, 3
MOST, LARGE = 20_000, 200


@dataclass(frozen=True)
class Trace:
    """30 seconds of packets: the ``flow`` of each, int64[packets]; its time ``when`` in epochs,
    ascending, float64[packets]; the true ``size`` of each flow in packets, int64[flows]; and the
    flow IDs ``hi`` and ``lo``, uint64[flows]."""

    flow: LongArray
    when: FloatArray
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
        """Draw a trace and return it. Flow sizes are Pareto-distributed with ``shape``, from 2 to
        20,000 packets. A flow begins at a random time and sends evenly for ``lasting_s`` seconds or
        until the end. With ``bursts``, large flows last until the end and send in that many bursts
        of up to 2 % of the time."""
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
        """Return the first 30 seconds of a capture's TCP and UDP packets; ``seed`` draws the flow
        IDs that are hashed.

        Raises:
            testbed.traffic.frames.CaptureError: The capture cannot be read (one line).
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
        """Return an empty HashPipe for the flows of this trace."""
        return HashPipe(buckets(self.hi, self.lo, stages, entries, seed=3), entries)


@dataclass(frozen=True)
class Counts:
    """For each epoch, the ``packets`` that the meters counted, their ``active`` flows, and the
    flows for which rules were ``installed``; int64[EPOCHS] each."""

    packets: LongArray
    active: LongArray
    installed: LongArray


def watch(trace: Trace, eta: int, alpha: int, seed: int) -> Counts:
    """Run a trace through two switches that lose no packets, and return the counts of each
    epoch."""
    given = {"topology": "two-switch", "faults": "none", "noise": "0", "eta": eta, "alpha": alpha}
    settings = make_settings(given | {"seed": seed, "epochs": EPOCHS, "epoch_ms": EPOCH_MS})
    layout = layout_of(settings, name="two-switch")
    time_ns = (trace.when * layout.epochs.length_ns).astype(np.uint64)
    traffic = traffic_of(trace.flow, time_ns, len(trace.size), seed)
    with tempfile.TemporaryDirectory() as folder:
        writer = RunWriter(Path(folder) / "run")
        writer.config(run_config(layout.config))
        inputs = inputs_of(layout, traffic)
        with open_backend(inputs, Path(folder)) as backend:
            emulation = set_up(inputs, backend)
            run(emulation, writer, Observer())
        table = RunDirectory(writer.partial, finished=False).table("selection")
        writer.abandon()
    here = table["segment"] == UP
    counts = np.zeros((3, EPOCHS), np.int64)
    for row, name in enumerate(("packets", "flows", "installed")):
        counts[row, table["epoch"][here]] = table[name][here]
    return Counts(*counts)


ETAS, VARIED_ETAS = (0, 8, 16, 32), (0, 32)
GENERATED, CAPTURED = "generated", "captured"
PERCENTILES = (1, 5, 10, 20, 40, 60, 80, 90, 95, 99)
PACKETS, ACTIVE, INSTALLED = "packets counted", "active flows", "flows with new rules"
FEW, MEAN, QUIET = "epochs below 1,000 packets, %", "active flows, mean", "epochs without rules, %"
FEWER = "rules at η=32 / at η=0"

FLOWS, SHAPE, LASTING_S = 300_000, 1.1, (5.4, 30.0)
VARIED_DRAWS = 3
BY_FLOWS, BY_LASTING = "active flows by the trace's flows", "active flows by how long flows last"
BY_SHAPE, BY_BURSTS = "active flows by the skew of sizes", "active flows by bursts"
Varied = tuple[str, str, Callable[[int], Trace]]
VARIED: tuple[Varied, ...] = (
    *(
        (BY_FLOWS, str(flows), partial(Trace.draw, flows=flows, lasting_s=LASTING_S))
        for flows in (75_000, 150_000, 450_000)
    ),
    *(
        (BY_LASTING, label(least), partial(Trace.draw, flows=FLOWS, lasting_s=(least, most)))
        for least, most in ((0.9, 9.0), (18.0, 30.0))
    ),
    *(
        (BY_SHAPE, label(shape), partial(Trace.draw, flows=FLOWS, shape=shape, lasting_s=LASTING_S))
        for shape in (1.0, 1.2)
    ),
    (BY_BURSTS, "6", partial(Trace.draw, flows=FLOWS, bursts=6)),
)
"""Traces that differ from that of figure 7 in one property: the panel, its x, and a function from
the number of a draw to the trace."""
UNVARIED = {
    BY_FLOWS: str(FLOWS),
    BY_LASTING: label(LASTING_S[0]),
    BY_SHAPE: label(SHAPE),
    BY_BURSTS: "0",
}


def figure_7(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 7, and those of traces that differ in one property."""
    flows, etas = (2_000, (0,)) if effort.small else (FLOWS, ETAS)
    tasks = by_draw(effort, epochs, flows, etas, effort.trace)
    if effort.trace is None and not effort.small:
        for draw in range(min(effort.draws, VARIED_DRAWS)):
            for number, varied in enumerate(VARIED):
                tasks[f"varied-{number}-{draw}"] = partial(one_variation, draw, varied)
    return tasks


def epochs(draw: int, flows: int, etas: tuple[int, ...], capture: Path | None) -> list[Row]:
    """Return the rows of one draw of the generated trace, whose number of flows is ``flows``, or of
    a capture."""
    if capture is not None:
        return _rows(Trace.captured(capture, draw), CAPTURED, draw, etas)
    return _rows(Trace.draw(draw, flows, lasting_s=LASTING_S), GENERATED, draw, etas)


def _rows(trace: Trace, kind: str, draw: int, etas: tuple[int, ...]) -> list[Row]:
    """Return percentiles of the counts of a trace's epochs, and shares of epochs, for each eta."""
    rows, rules = [], {}
    for eta in etas:
        counts = watch(trace, eta, ALPHA, draw)
        name = f"η={eta}, {kind}"
        for quantity, values in (
            (PACKETS, counts.packets),
            (ACTIVE, counts.active),
            (INSTALLED, counts.installed),
        ):
            at = np.percentile(values, PERCENTILES)
            points = zip(PERCENTILES, at.tolist(), strict=True)
            rows += [Row(quantity, name, str(p), draw, value) for p, value in points]
        rules[eta] = int(counts.installed.sum())
        rows.append(Row(FEW, name, "all", draw, 100 * float((counts.packets < ALPHA).mean())))
        rows.append(Row(MEAN, name, "all", draw, float(counts.active.mean())))
        rows.append(Row(QUIET, name, "all", draw, 100 * float((counts.installed == 0).mean())))
        if kind == GENERATED and draw < VARIED_DRAWS and eta in VARIED_ETAS:
            mean = float(counts.active.mean())
            rows += [Row(panel, f"η={eta}", x, draw, mean) for panel, x in UNVARIED.items()]
    rows.append(Row(FEWER, kind, "all", draw, rules[etas[-1]] / max(rules[etas[0]], 1)))
    return rows


def one_variation(draw: int, varied: Varied) -> list[Row]:
    """Return the mean number of active flows for a draw of a trace that differs in one property."""
    panel, x, trace = varied
    counts = {eta: watch(trace(draw), eta, ALPHA, draw) for eta in VARIED_ETAS}
    return [
        Row(panel, f"η={eta}", x, draw, float(count.active.mean())) for eta, count in counts.items()
    ]


SIZES = ((64, 56), (128, 96), (192, 136), (256, 176))
"""DSM buckets per row, and entries per stage of the original HashPipe; section IV-F has the
smallest and the largest."""
TOPS, BUDGET_TOPS = (10, 25, 50, 75, 100), (25, 50, 75)
TRACES = {"bursts": 6, "steady": 0}
F1, BUDGET, BYTES, GAP = "F1 of the top k", "F1 against memory", "bytes", "F1, Canary - HashPipe"
OURS, OTHER = "Canary", "HashPipe, 6 stages"


def figure_11(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 11, one for each draw."""
    flows, sizes = (3_000, SIZES[:1]) if effort.small else (150_000, SIZES)
    return by_draw(effort, largest, flows, sizes, effort.trace)


def largest(
    draw: int, flows: int, sizes: tuple[tuple[int, int], ...], capture: Path | None
) -> list[Row]:
    """Return F1 of the largest flows by Canary and by the original HashPipe, for each size of
    memory, and the bytes of both."""
    rows = []
    for kind, bursts in TRACES.items() if capture is None else ((CAPTURED, 0),):
        trace = Trace.captured(capture, draw) if capture else Trace.draw(draw, flows, bursts)
        for number, (width, entries) in enumerate(sizes):
            known = {OURS: by_canary(trace, width), OTHER: by_hashpipe(trace, entries)}
            found = {
                (name, k): f1(each, trace.size, k) for name, each in known.items() for k in TOPS
            }
            at, kilobytes = f"{entries} entries", label(round(STAGES * entries * 17e-3, 1))
            for (name, k), value in found.items():
                if not number:
                    rows.append(Row(F1, f"{name}, {kind}", label(k), draw, value))
                if k == TOPS[-2]:
                    rows.append(Row(BUDGET, f"{name}, {kind}", kilobytes, draw, value))
            for k in BUDGET_TOPS:
                gap = found[OURS, k] - found[OTHER, k]
                rows.append(Row(GAP, kind, f"top {k}, {at}", draw, gap))
    for width, entries in sizes:
        small = SMALL_STAGES * SMALL_ENTRIES * 17
        ours = small + ROWS * width * DSM_BUCKET_BITS / 8
        rows.append(Row(BYTES, OURS, f"{entries} entries", draw, ours))
        rows.append(Row(BYTES, OTHER, f"{entries} entries", draw, STAGES * entries * 17.0))
    return rows


def by_canary(trace: Trace, width: int) -> LongArray:
    """Return the packets of each flow that Canary knows at the end, int64[flows].

    After each epoch with fewer than alpha packets or beta flows counted, the controller adds up to
    delta of the flows that HashPipe reported. HashPipe sees the packets that the DSM does not
    count, and is not cleared. The DSM's clean buckets are summed over the epochs, and rules stay.
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
    """Return the packets of each flow in the original HashPipe, which is never cleared,
    int64[flows]."""
    pipe = trace.pipe(STAGES, entries)
    pipe.add(trace.flow)
    return pipe.read()


def f1(known: LongArray, size: LongArray, k: int) -> float:
    """Return F1 of the k flows that seem largest. Of flows that seem equally large, the first ones
    are named; a flow that was never seen is not named."""
    true = np.argsort(-size, kind="stable")[:k]
    named = np.argsort(-known, kind="stable")[:k]
    named = named[known[named] > 0]
    hits = len(np.intersect1d(true, named))
    return 2 * hits / (len(true) + len(named))
