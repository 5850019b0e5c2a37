"""Two switches and a link between them (Canary, section IV-B): traffic of one epoch, and the
sketches that detect what the link loses of it.

10,000 flows send 100 Gbit/s for 100 ms in packets of 1,500 bytes, 833,333 packets. The paper does
not say how they are spread over the flows; here flow sizes are Pareto's of shape 2.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.sketches.fermat import FermatSketch
from analysis.sketches.flow_radar import FlowRadar
from analysis.sketches.hashing import buckets, flow_ids
from analysis.sketches.hashpipe import ENTRY_BITS
from analysis.sketches.loss_radar import LossRadar, signatures
from analysis.sketches.meters import DSM_BUCKET_BITS, USM_BUCKET_BITS, FlowMeter, minus
from analysis.sketches.sizing import PEELING, clean_width, peels, smallest_width
from testbed.arrays import WordArray

FLOWS, PACKETS = 10_000, 833_333
SHAPE = 2.0
SHARE, CLEAN = 0.99, 0.8
PRECISION, MANY = 0.01, 12_000
HASHPIPE_BYTES = 3 * 32 * ENTRY_BITS / 8
BUCKET_BYTES = (USM_BUCKET_BITS + DSM_BUCKET_BITS) / 8
SKETCHES = ("FlowRadar", "LossRadar", "FermatSketch", "Canary")

LongArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Epoch:
    """``sent`` and ``lost`` packets of each flow, int64[flows], and its ID; ``order`` is a random
    one of the flows."""

    hi: WordArray
    lo: WordArray
    sent: LongArray
    lost: LongArray
    loss: float
    order: npt.NDArray[np.intp]

    @classmethod
    def draw(cls, loss: float, seed: int, flows: int = FLOWS, packets: int = PACKETS) -> Epoch:
        rng = np.random.default_rng([seed, round(1e9 * loss)])
        weight = 1 + rng.pareto(SHAPE, flows)
        sent = 1 + rng.multinomial(packets - flows, weight / weight.sum())
        hi, lo = flow_ids(flows, rng)
        return cls(hi, lo, sent, rng.binomial(sent, loss), loss, rng.permutation(flows))

    @property
    def wanted(self) -> float:
        """Packets of which one is lost in 99 % of all cases: the paper's alpha for this loss."""
        return math.log(1 - SHARE) / math.log1p(-self.loss)

    def selected(self, packets: float) -> npt.NDArray[np.intp]:
        """Random flows until they have as many packets."""
        enough = int(np.searchsorted(np.cumsum(self.sent[self.order]), packets)) + 1
        return self.order[:enough]


@dataclass(frozen=True)
class Sized:
    """A sketch's width and what it and all that goes with it take at one switch, of Canary at the
    mean of the two: kilobytes of 1,000. ``flows`` are Canary's, else none."""

    width: int
    kilobytes: float
    flows: npt.NDArray[np.intp]


NONE = np.zeros(0, np.intp)


def kilobytes(sketch: str, width: int) -> float:
    """What a sketch of three rows takes at one switch, with FlowRadar's filter; of Canary half of
    the USM at one and the DSM and HashPipe at the other."""
    match sketch:
        case "FlowRadar":
            return 3 * width * 18 * 10 / 9e3
        case "LossRadar":
            return 3 * width * 19 / 1e3
        case "FermatSketch":
            return 3 * width * 17 / 1e3
    return (3 * width * BUCKET_BYTES + HASHPIPE_BYTES) / 2e3


def items(sketch: str, epoch: Epoch) -> int:
    """What a sketch has to give back: flows, lost packets, or flows that lost some."""
    match sketch:
        case "FlowRadar":
            return len(epoch.sent)
        case "LossRadar":
            return int(epoch.lost.sum())
    return int((epoch.lost > 0).sum())


def by_formula(sketch: str, epoch: Epoch) -> Sized:
    """As wide as 80 % of the items need to have a bucket of their own: table II, it seems."""
    if sketch == "Canary":
        flows = epoch.selected(epoch.wanted)
        width = clean_width(len(flows), CLEAN)
        return Sized(width, kilobytes(sketch, width), flows)
    width = clean_width(items(sketch, epoch), CLEAN)
    return Sized(width, kilobytes(sketch, width), NONE)


def by_decoding(sketch: str, epoch: Epoch, tries: int) -> Sized:
    """The least width with which 99 % of ``tries`` succeed: all items come out and are right, or,
    of Canary, a lost packet is seen in a clean bucket. Of many items the share rises from 0 to 1
    within the precision, and a quarter of the tries will do."""
    if sketch == "Canary":
        return _by_detection(epoch, tries)
    wanted = max(items(sketch, epoch), 1)
    start = max(1, int(PEELING * wanted / 3))
    tries = tries if wanted < MANY else max(tries // 4, 2)

    def succeeds(width: int, number: int) -> bool:
        if sketch == "FlowRadar":
            return _flow_radar(epoch, epoch.sent, width, number)[0]
        return peels(wanted, width, seed=number)

    width = smallest_width(succeeds, start, share=SHARE, tries=tries, precision=PRECISION)
    return Sized(width, kilobytes(sketch, width), NONE)


def _by_detection(epoch: Epoch, tries: int) -> Sized:
    """Flows with more packets than alpha need fewer clean buckets: the least memory of a few.
    Where too many tries lose nothing at all, no width helps, and more packets are needed."""
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
    """Fill the true structures of both ends and decode them: whether all items come out and are
    right, and the processor's seconds of the decoding alone."""
    sent, arrived = epoch.sent, epoch.sent - epoch.lost
    if sketch == "FlowRadar":
        up = _flow_radar(epoch, sent, width, seed)
        down = _flow_radar(epoch, arrived, width, seed)
        return up[0] and down[0], up[1] + down[1]
    if sketch == "LossRadar":
        # What arrived cancels: only what was lost is put in.
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
    """One end's table: whether each flow comes out with its packets, and the seconds of it."""
    table, seen = FlowRadar(width, seed=seed), packets > 0
    table.add(epoch.hi[seen], epoch.lo[seen], packets[seen])
    begin = time.process_time()
    hi, lo, count, complete = table.decode()
    seconds = time.process_time() - begin
    if not complete or len(hi) != seen.sum():
        return False, seconds
    got, true = np.lexsort((lo, hi)), np.lexsort((epoch.lo[seen], epoch.hi[seen]))
    return bool((count[got] == packets[seen][true]).all()), seconds


def read_meters(epoch: Epoch, sized: Sized, seed: int) -> tuple[bool, float]:
    """The same of Canary's meters: whether a loss is seen, and the seconds to compare them."""
    flows = sized.flows
    place = buckets(epoch.hi[flows], epoch.lo[flows], 3, sized.width, seed)
    up, down = FlowMeter(place, sized.width), FlowMeter(place, sized.width)
    every = np.arange(len(flows))
    up.add(every, epoch.sent[flows])
    down.add(every, epoch.sent[flows] - epoch.lost[flows])
    begin = time.process_time()
    lost = minus(up, down)[1]
    return bool(lost.any()), time.process_time() - begin
