# SPDX-License-Identifier: Apache-2.0
"""Sketches that detect the losses of one link (Canary, section IV-B): figure 6 and table II.

10,000 flows send 100 Gbit/s for 100 ms in packets of 1,500 bytes, that is 833,333 packets. The
paper does not give the distribution of flow sizes; here it is a Pareto distribution of shape 2.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from scenarios.papers.experiment import Effort, Row, Task, by_draw, label
from scenarios.papers.sketches.hashpipe import ENTRY_BITS
from scenarios.papers.sketches.meters import DSM_BUCKET_BITS, USM_BUCKET_BITS, FlowMeter, minus
from scenarios.papers.sketches.sizing import PEELING, clean_width, smallest_width
from testbed.arrays import LongArray, WordArray
from testbed.measurements.sketches.fermat import FermatSketch
from testbed.measurements.sketches.flow_radar import FlowRadar
from testbed.measurements.sketches.hashing import buckets, flow_ids, peels
from testbed.measurements.sketches.loss_radar import LossRadar, signatures

FLOWS, PACKETS = 10_000, 833_333
SHAPE = 2.0
SHARE, CLEAN = 0.99, 0.8
PRECISION, MANY = 0.01, 12_000
HASHPIPE_BYTES = 3 * 32 * ENTRY_BITS / 8
BUCKET_BYTES = (USM_BUCKET_BITS + DSM_BUCKET_BITS) / 8
SKETCHES = ("FlowRadar", "LossRadar", "FermatSketch", "Canary")


@dataclass(frozen=True)
class Epoch:
    """The flows of an epoch: packets ``sent`` and ``lost`` of each, int64[flows], its ID, and a
    random ``order`` of the flows."""

    hi: WordArray
    lo: WordArray
    sent: LongArray
    lost: LongArray
    loss: float
    order: npt.NDArray[np.intp]

    @classmethod
    def draw(cls, loss: float, seed: int, flows: int = FLOWS, packets: int = PACKETS) -> Epoch:
        """Draw the packets of each flow, and those that are lost with probability ``loss``; return
        the epoch."""
        rng = np.random.default_rng([seed, round(1e9 * loss)])
        weight = 1 + rng.pareto(SHAPE, flows)
        sent = 1 + rng.multinomial(packets - flows, weight / weight.sum())
        hi, lo = flow_ids(flows, rng)
        return cls(hi, lo, sent, rng.binomial(sent, loss), loss, rng.permutation(flows))

    @property
    def wanted(self) -> float:
        """Return the number of packets of which at least one is lost with a probability of 99 %:
        the paper's alpha for this loss rate."""
        return math.log(1 - SHARE) / math.log1p(-self.loss)

    def selected(self, packets: float) -> npt.NDArray[np.intp]:
        """Return random flows that together have at least ``packets`` packets, int[n]."""
        enough = int(np.searchsorted(np.cumsum(self.sent[self.order]), packets)) + 1
        return self.order[:enough]


@dataclass(frozen=True)
class Sized:
    """A sketch's width, and its memory at one switch in kilobytes of 1,000 bytes; for Canary the
    mean of a link's two switches. ``flows`` are the flows that Canary monitors."""

    width: int
    kilobytes: float
    flows: npt.NDArray[np.intp]


NONE = np.zeros(0, np.intp)


def kilobytes(sketch: str, width: int) -> float:
    """Return the memory of a sketch with three rows at one switch, in kilobytes. FlowRadar's
    includes its filter; Canary's is half of the USM at one switch and the DSM and HashPipe at the
    other."""
    match sketch:
        case "FlowRadar":
            return 3 * width * 18 * 10 / 9e3
        case "LossRadar":
            return 3 * width * 19 / 1e3
        case "FermatSketch":
            return 3 * width * 17 / 1e3
    return (3 * width * BUCKET_BYTES + HASHPIPE_BYTES) / 2e3


def items(sketch: str, epoch: Epoch) -> int:
    """Return how many items a sketch has to decode: flows, lost packets, or flows with losses."""
    match sketch:
        case "FlowRadar":
            return len(epoch.sent)
        case "LossRadar":
            return int(epoch.lost.sum())
    return int((epoch.lost > 0).sum())


def by_formula(sketch: str, epoch: Epoch) -> Sized:
    """Return the width at which 80 % of the items have their own bucket, as table II seems to
    do."""
    if sketch == "Canary":
        flows = epoch.selected(epoch.wanted)
        width = clean_width(len(flows), CLEAN)
        return Sized(width, kilobytes(sketch, width), flows)
    width = clean_width(items(sketch, epoch), CLEAN)
    return Sized(width, kilobytes(sketch, width), NONE)


def by_decoding(sketch: str, epoch: Epoch, tries: int) -> Sized:
    """Return the smallest width with which 99 % of ``tries`` succeed. A try succeeds if all items
    are decoded correctly or, for Canary, if a clean bucket shows a lost packet. With many items, a
    quarter of the tries suffices, as the share rises from 0 to 1 within the precision."""
    if sketch == "Canary":
        return _by_detection(epoch, tries)
    wanted = max(items(sketch, epoch), 1)
    start = max(1, int(PEELING * wanted / 3))
    tries = tries if wanted < MANY else max(tries // 4, 2)

    def succeeds(width: int, number: int) -> bool:
        """Return True if try ``number`` decodes all items with rows of ``width`` buckets."""
        if sketch == "FlowRadar":
            return _flow_radar(epoch, epoch.sent, width, number)[0]
        return peels(wanted, width, seed=number)

    width = smallest_width(succeeds, start, share=SHARE, tries=tries, precision=PRECISION)
    return Sized(width, kilobytes(sketch, width), NONE)


def _by_detection(epoch: Epoch, tries: int) -> Sized:
    """Return the smallest memory over several numbers of packets: with more packets than alpha,
    fewer clean buckets are needed. A number is skipped if too many tries lose no packet at all,
    because then no width helps."""
    found = []
    for more in (1.25, 1.5, 2.0, 3.0):
        flows = epoch.selected(more * epoch.wanted)
        sent = epoch.sent[flows]
        lost = [
            np.random.default_rng([number, 77]).binomial(sent, epoch.loss)
            for number in range(tries)
        ]
        if sum(not each.any() for each in lost) > tries - math.ceil(SHARE * tries):
            continue

        def succeeds(width: int, number: int, flows=flows, sent=sent, lost=lost) -> bool:
            """Return True if a clean bucket shows a packet lost in try ``number``, with rows of
            ``width`` buckets."""
            place = buckets(epoch.hi[flows], epoch.lo[flows], 3, width, number)
            up, down = FlowMeter(place, width), FlowMeter(place, width)
            every = np.arange(len(flows))
            up.add(every, sent)
            down.add(every, sent - lost[number])
            return bool(minus(up, down)[1].any())

        start = max(1, len(flows) // 4)
        width = smallest_width(succeeds, start, share=SHARE, tries=tries, precision=PRECISION)
        found.append(Sized(width, kilobytes("Canary", width), flows))
        if width == 1:
            break
    return min(found, key=lambda sized: sized.kilobytes)


def decode(sketch: str, epoch: Epoch, width: int, seed: int) -> tuple[bool, float]:
    """Fill a sketch at both ends and decode it; return whether all items are decoded correctly, and
    the processor seconds of decoding."""
    sent, arrived = epoch.sent, epoch.sent - epoch.lost
    if sketch == "FlowRadar":
        up = _flow_radar(epoch, sent, width, seed)
        down = _flow_radar(epoch, arrived, width, seed)
        return up[0] and down[0], up[1] + down[1]
    if sketch == "LossRadar":
        # Packets that arrived cancel out, so only lost packets are added.
        left = LossRadar(width, seed=seed)
        first = signatures(epoch.hi, epoch.lo, epoch.lost)
        left.add(*first[:2])
        begin = time.process_time()
        hi, _, complete = left.decode()
        seconds = time.process_time() - begin
        return bool(complete and len(hi) == epoch.lost.sum()), seconds
    left = FermatSketch(width, seed=seed)
    victims = epoch.lost > 0
    left.add(epoch.hi[victims], epoch.lo[victims], epoch.lost[victims])
    begin = time.process_time()
    hi, _, count, complete = left.decode()
    seconds = time.process_time() - begin
    right = complete and len(hi) == victims.sum() and count.sum() == epoch.lost.sum()
    return bool(right), seconds


def _flow_radar(epoch: Epoch, packets: LongArray, width: int, seed: int) -> tuple[bool, float]:
    """Decode one end's table; return whether each flow is decoded with its packets, and the
    processor seconds."""
    table, sent = FlowRadar(width, seed=seed), packets > 0
    table.add(epoch.hi[sent], epoch.lo[sent], packets[sent])
    begin = time.process_time()
    hi, lo, count, complete = table.decode()
    seconds = time.process_time() - begin
    if not complete or len(hi) != sent.sum():
        return False, seconds
    got, true = np.lexsort((lo, hi)), np.lexsort((epoch.lo[sent], epoch.hi[sent]))
    return bool((count[got] == packets[sent][true]).all()), seconds


def read_meters(epoch: Epoch, sized: Sized, seed: int) -> tuple[bool, float]:
    """Return whether Canary's meters show a loss, and the processor seconds to compare them."""
    flows = sized.flows
    place = buckets(epoch.hi[flows], epoch.lo[flows], 3, sized.width, seed)
    up, down = FlowMeter(place, sized.width), FlowMeter(place, sized.width)
    every = np.arange(len(flows))
    up.add(every, epoch.sent[flows])
    down.add(every, epoch.sent[flows] - epoch.lost[flows])
    begin = time.process_time()
    lost = minus(up, down)[1]
    return bool(lost.any()), time.process_time() - begin


RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
FORMULA, DECODED = "KB, sized so that 80 % are clean", "KB, sized by decoding"
RATIO = "Canary / FermatSketch, %"
SECONDS, GROWTH = "seconds", "time at 0.1 / at 0.0001"
RATES_II = (1e-3, 1e-2, 1e-1)
SWITCHES = {"FlowRadar": 80, "LossRadar": 80, "FermatSketch": 80}
MONITORS = {"Canary (bottom)": 32, "Canary (top+bottom)": 48}
PRINTED = "KB, of the items that the cells mean"
ITEMS = {
    "FlowRadar": (10_000, 10_000, 10_000),
    "LossRadar": (834, 8_333, 83_333),
    "FermatSketch": (627, 4_966, 9_998),
    "Canary": (799, 90, 15),
}
"""For each rate: flows, lost packets (833,333 times the rate), flows with losses, and monitored
flows. The last two are not in the paper, but its printed cells imply them."""


def figure_6a(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 6 (a), one for each draw."""
    flows, tries = (3_000, 4) if effort.small else (10_000, 100)
    return by_draw(effort, sizes, _rates(effort), tries, flows)


def figure_6b(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 6 (b), one for each draw."""
    flows, tries = (3_000, 4) if effort.small else (10_000, 25)
    return by_draw(effort, times, _rates(effort), tries, flows)


def table_2(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of table II: the printed cells, and one for each draw."""
    flows, tries = (3_000, 4) if effort.small else (10_000, 100)
    return {"printed": as_printed, **by_draw(effort, network_wide, tries, flows)}


def _rates(effort: Effort) -> tuple[float, ...]:
    """Return the loss rates to compute: all, or the first and the last."""
    return (RATES[0], RATES[-1]) if effort.small else RATES


def sizes(draw: int, rates: tuple[float, ...], tries: int, flows: int) -> list[Row]:
    """Return the kilobytes of each sketch at one switch. FlowRadar's do not depend on the rate, and
    are computed once."""
    rows, of_flow_radar = [], None
    for loss in rates:
        epoch = Epoch.draw(loss, draw, flows, round(83.3333 * flows))
        of_flow_radar = of_flow_radar or by_decoding("FlowRadar", epoch, tries)
        sized = {}
        for name in SKETCHES:
            formula = by_formula(name, epoch)
            sized[name] = of_flow_radar
            if name != "FlowRadar":
                sized[name] = by_decoding(name, epoch, tries)
            rows.append(Row(FORMULA, name, label(loss), draw, formula.kilobytes))
            rows.append(Row(DECODED, name, label(loss), draw, sized[name].kilobytes))
            sized[name, FORMULA] = formula
        for how, key in (("80 % clean", FORMULA), ("by decoding", None)):
            ours, fermat = (
                sized[(name, key) if key else name].kilobytes for name in ("Canary", "FermatSketch")
            )
            rows.append(Row(RATIO, how, label(loss), draw, 100 * ours / fermat))
    return rows


def times(draw: int, rates: tuple[float, ...], tries: int, flows: int) -> list[Row]:
    """Return the processor seconds to decode each sketch at the width of 99 % success: the shortest
    of five."""
    rows, found = [], {}
    for loss in rates:
        epoch = Epoch.draw(loss, draw, flows, round(83.3333 * flows))
        for name in SKETCHES:
            sized = by_decoding(name, epoch, tries)
            one = partial(read_meters, epoch, sized) if name == "Canary" else None
            one = one or partial(decode, name, epoch, sized.width)
            found[name, loss] = min(one(seed)[1] for seed in range(5))
            rows.append(Row(SECONDS, name, label(loss), draw, found[name, loss]))
    first, last = rates[0], rates[-1]
    for name in SKETCHES:
        growth = found[name, last] / max(found[name, first], 1e-9)
        rows.append(Row(GROWTH, name, "growth", draw, growth))
    return rows


def network_wide(draw: int, tries: int, flows: int) -> list[Row]:
    """Return the memory of each sketch, in kilobytes of 1,000 bytes, over all switches of a K=8
    fat-tree that have it."""
    rows = []
    for row in sizes(draw, RATES_II, tries, flows):
        if row.quantity == RATIO:
            rows.append(row)
            continue
        many = {row.series: SWITCHES[row.series]} if row.series in SWITCHES else MONITORS
        rows += [row._replace(series=name, value=row.value * n) for name, n in many.items()]
    return rows


def as_printed() -> list[Row]:
    """Return the cells of table II, computed from a number of items each: the smallest width at
    which 80 % have their own bucket, one switch's kilobytes rounded to one decimal, times the
    switches. For Canary, the kilobytes of both switches of a link are rounded, and multiplied by
    half of the monitors."""
    rows = []
    for sketch, every in ITEMS.items():
        for loss, items in zip(RATES_II, every, strict=True):
            one = kilobytes(sketch, clean_width(items, CLEAN))
            if sketch in SWITCHES:
                rows.append(Row(PRINTED, sketch, label(loss), 0, SWITCHES[sketch] * round(one, 1)))
                continue
            both = round(2 * one, 1)
            rows += [
                Row(PRINTED, name, label(loss), 0, monitors * both / 2)
                for name, monitors in MONITORS.items()
            ]
    return rows
