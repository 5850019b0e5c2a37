# SPDX-License-Identifier: Apache-2.0
"""From one epoch's registers to minus meters (Canary, section III-E, algorithm 3).

A switch's upstream meter (USM) counts what it sends, its downstream meter (DSM) what arrives. The
difference between a flow's clean bucket at the two ends of a path segment is its loss there, with
no error at all:

    USM at the upstream --(flow)--+
                                  +--> sent, lost of the flow on the segment
    DSM at the downstream -(flow, pathBF -> segment, hence upstream)

Three things are added to algorithm 3:

- **Total loss.** A flow that loses every packet never shows up in the DSM, so algorithm 3 cannot
  see it. But both ends use the same hash functions: if the flow's rule is in force, its USM bucket
  is clean, and the DSM bucket in the *same* row and column is empty, then no packet of it arrived,
  and lost = sent. A flow with rules on two segments of one upstream is left out: which of them its
  packets took is then unknown.
- **Moved is not lost.** A flow moves to another path when routes change, and may then arrive at
  another downstream switch. That switch makes the flow's buckets dirty. So, of upstreams whose
  routes changed, packets are called lost only if every other downstream of the same upstream
  has, in one row at least, a bucket of the flow that is empty, or clean and of another flow or
  upstream: then none of its packets came there. Flows that may have moved are dropped and counted.
  Where no route changed no flow is dropped, since this would drop flows with losses alone: with
  10 % of the links faulty a sixth of them at K=8, and at K=16, with 127 other downstreams, all.
- **Broken runs show.** Clean rows of one flow that disagree, or a DSM that counted more than the
  USM sent, cannot happen in a correct run. Such flows are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, IntArray, LongArray, WordArray
from testbed.fabric.segments import Segments
from testbed.record.run_tables import DSM, USM

Decoder = Callable[[IntArray, npt.NDArray[np.uint32]], IntArray]
"""``decode(downstream int32[N], path_bf uint32[N]) -> int32[N]``: segment ids, or -1."""


@dataclass(frozen=True)
class MeterDump:
    """Every non-empty bucket of one epoch's USM and DSM instances, as parallel arrays of N rows.

    ``switch`` int32, ``meter`` int8 (`USM` or `DSM`), ``row`` int8, ``bucket`` int16, ``dirty``
    bool, ``flow_hi`` and ``flow_lo`` uint64 (the 104-bit flow ID: upper 40 and lower 64 bits),
    ``path_bf`` uint32 (0 in a USM), ``count`` uint32.
    """

    switch: IntArray
    meter: npt.NDArray[np.int8]
    row: npt.NDArray[np.int8]
    bucket: npt.NDArray[np.int16]
    dirty: BoolArray
    flow_hi: WordArray
    flow_lo: WordArray
    path_bf: npt.NDArray[np.uint32]
    count: npt.NDArray[np.uint32]

    def __post_init__(self) -> None:
        _same_length("meter dump", self)

    def __len__(self) -> int:
        return len(self.switch)


@dataclass(frozen=True)
class Rules:
    """The monitoring rules in force in the epoch: flow ID and the segment it is monitored on."""

    flow_hi: WordArray
    flow_lo: WordArray
    segment: IntArray

    def __post_init__(self) -> None:
        _same_length("rules", self)

    def __len__(self) -> int:
        return len(self.segment)


@dataclass(frozen=True)
class MinusMeter:
    """The minus meter of one epoch, ordered by segment and flow ID, and counts of what it leaves
    out.

    ``flow_hi`` and ``flow_lo`` are uint64[M]; ``path_bf`` is uint32[M], and 0 for a total loss, as
    no packet arrived with it; ``segment`` is int32[M]; ``sent`` and ``lost`` are int64[M] packets.

    ``unmatched`` flows were clean at the downstream and at no row of the upstream (algorithm 3,
    line 10); ``undecodable`` had a pathBF that names no segment; ``total_losses`` were found by an
    empty DSM bucket. ``moved`` flows may have left their segment in the epoch. ``negative`` and
    ``inconsistent`` are 0 in a correct run.
    """

    flow_hi: WordArray
    flow_lo: WordArray
    path_bf: npt.NDArray[np.uint32]
    segment: IntArray
    sent: LongArray
    lost: LongArray
    unmatched: int = 0
    undecodable: int = 0
    total_losses: int = 0
    moved: int = 0
    negative: int = 0
    inconsistent: int = 0

    def __len__(self) -> int:
        return len(self.segment)


# Long: one algorithm, whose intermediate arrays are used to its end.
def minus_meter(
    dump: MeterDump,
    decode: Decoder,
    segments: Segments,
    rules: Rules | None = None,
    rerouted: Sequence[int] | None = None,
) -> MinusMeter:
    """Return the minus meter of an epoch: algorithm 3 for the whole network at once, in O(N log N)
    array operations.

    Args:
        dump: The epoch's non-empty buckets.
        decode: Returns the segment of a pathBF that a downstream switch counted.
        segments: All segments of the network, with the upstream of each.
        rules: The monitoring rules of the epoch. Without them, flows that lost all packets are not
            found.
        rerouted: Switches whose routes changed in this epoch or before, or that were without a
            controller. By default any may have changed.
    """
    if rules is None:
        none = np.zeros(0, np.uint64)
        rules = Rules(none, none, np.zeros(0, np.int32))
    flow = _number(
        np.concatenate((dump.flow_hi, rules.flow_hi)), np.concatenate((dump.flow_lo, rules.flow_lo))
    )
    n_flows = int(flow.max(initial=-1)) + 1
    rule_flow, flow = flow[len(dump) :], flow[: len(dump)]
    at_switch = dump.switch.astype(np.int64) * n_flows + flow

    clean = ~dump.dirty
    usm_key, usm_row, usm_broken = _merge(dump, at_switch, clean & (dump.meter == USM))
    _, dsm_row, dsm_broken = _merge(dump, at_switch, clean & (dump.meter == DSM))

    # The flows of every DSM, their segments, and the USM at the segment's other end.
    segment = np.asarray(decode(dump.switch[dsm_row], dump.path_bf[dsm_row]), np.int64)
    decoded = segment >= 0
    dsm_row, segment = dsm_row[decoded], segment[decoded]
    upstream = segments.upstream[segment].astype(np.int64)
    found, position = _find(usm_key, upstream * n_flows + flow[dsm_row])
    dsm_row, segment, position = dsm_row[found], segment[found], position[found]
    sent = dump.count[usm_row[position]].astype(np.int64)
    lost = sent - dump.count[dsm_row].astype(np.int64)
    valid = lost >= 0

    gone_row, gone_segment = _total_losses(
        dump, segments, rules.segment.astype(np.int64), rule_flow, at_switch, n_flows, usm_broken
    )
    gone_sent = dump.count[gone_row].astype(np.int64)

    row = np.concatenate((dsm_row[valid], gone_row))
    segment_of = np.concatenate((segment[valid], gone_segment))
    bf = np.concatenate((dump.path_bf[dsm_row[valid]], np.zeros(len(gone_row), np.uint32)))
    sent_all = np.concatenate((sent[valid], gone_sent))
    lost_all = np.concatenate((lost[valid], gone_sent))
    lossy = np.flatnonzero(lost_all)
    if rerouted is not None:
        through = np.zeros(len(segments), np.bool_)
        for switch in rerouted:
            through |= segments.through(switch)
        lossy = lossy[
            np.isin(segments.upstream[segment_of[lossy]], np.unique(segments.upstream[through]))
        ]
    moved = lossy[
        _perhaps_elsewhere(
            dump, decode, segments, segment_of[lossy], flow[row[lossy]], at_switch, n_flows
        )
    ]
    order = np.lexsort((dump.flow_lo[row], dump.flow_hi[row], segment_of))
    order = order[~np.isin(order, moved)]
    return MinusMeter(
        flow_hi=dump.flow_hi[row][order],
        flow_lo=dump.flow_lo[row][order],
        path_bf=bf[order],
        segment=segment_of[order].astype(np.int32),
        sent=sent_all[order],
        lost=lost_all[order],
        unmatched=int((~found).sum()),
        undecodable=int((~decoded).sum()),
        total_losses=int((order >= valid.sum()).sum()),
        moved=len(moved),
        negative=int((~valid).sum()),
        inconsistent=len(usm_broken) + len(dsm_broken),
    )


def segment_counts(meter: MinusMeter, n_segments: int) -> tuple[LongArray, LongArray]:
    """Return the packets sent and lost on each segment, int64[S] each: the sums of equation 2."""
    sent, lost = np.zeros(n_segments, np.int64), np.zeros(n_segments, np.int64)
    np.add.at(sent, meter.segment, meter.sent)
    np.add.at(lost, meter.segment, meter.lost)
    return sent, lost


def _total_losses(
    dump: MeterDump,
    segments: Segments,
    segment: LongArray,
    flow: LongArray,
    at_switch: LongArray,
    n_flows: int,
    broken: LongArray,
) -> tuple[LongArray, LongArray]:
    """Return the dump's row of a clean USM bucket and the segment of each flow of which no packet
    arrived: int64[] each."""
    if not len(segment):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    distinct = np.unique(segment * n_flows + flow)
    segment, flow = distinct // n_flows, distinct % n_flows
    origin = segments.upstream[segment].astype(np.int64) * n_flows + flow
    _, inverse, uses = np.unique(origin, return_inverse=True, return_counts=True)
    single = (uses[inverse] == 1) & ~np.isin(origin, broken)
    segment, origin = segment[single], origin[single]

    usm = np.flatnonzero(~dump.dirty & (dump.meter == USM))
    order = np.argsort(origin)
    segment, origin = segment[order], origin[order]
    watched, position = _find(origin, at_switch[usm])
    usm, segment, origin = usm[watched], segment[position[watched]], origin[position[watched]]

    width = int(dump.bucket.max(initial=0)) + 1
    depth = int(dump.row.max(initial=0)) + 1
    cell = dump.row.astype(np.int64) * width + dump.bucket
    filled = dump.switch.astype(np.int64) * (depth * width) + cell
    filled = filled[dump.meter == DSM]
    opposite = segments.downstream[segment].astype(np.int64) * (depth * width) + cell[usm]
    empty = ~np.isin(opposite, filled)
    _, first = np.unique(origin[empty], return_index=True)
    return usm[empty][first], segment[empty][first]


def _perhaps_elsewhere(
    dump: MeterDump,
    decode: Decoder,
    segments: Segments,
    segment: LongArray,
    flow: LongArray,
    at_switch: LongArray,
    n_flows: int,
) -> BoolArray:
    """Return whether each flow that its segment's upstream counted may have arrived at another
    downstream switch of that upstream: bool[N].

    It did not if one of its buckets there is empty, or is clean and belongs to another flow or
    another upstream. A flow has the same buckets at every switch, so those are known that any meter
    shows. With the upstream's alone, a third of the flows that lost packets were left out at K=8,
    and none of the others: lossy segments counted too few packets, and too few of them lost.
    """
    pairs = np.unique(
        np.stack((segments.upstream, segments.downstream), 1).astype(np.int64), axis=0
    )
    upstream = segments.upstream[segment].astype(np.int64)
    which, pair = _expand(pairs[:, 0], upstream)
    other = pairs[pair, 1] != segments.downstream[segment[which]]
    which, there = which[other], pairs[pair[other], 1]

    width = int(dump.bucket.max(initial=0)) + 1
    depth = int(dump.row.max(initial=0)) + 1
    cell = dump.row.astype(np.int64) * width + dump.bucket
    of_row = at_switch - dump.switch.astype(np.int64) * n_flows
    shown = np.unique(of_row * (depth * width) + cell)
    case, place = _expand(shown // (depth * width), flow[which])
    opposite = shown[place] % (depth * width)

    dsm = np.flatnonzero(dump.meter == DSM)
    at = dump.switch.astype(np.int64) * (depth * width) + cell
    dsm = dsm[np.argsort(at[dsm])]
    filled, position = _find(at[dsm], there[case] * (depth * width) + opposite)
    if not len(dsm):
        return np.zeros(len(segment), np.bool_)
    bucket = dsm[position]
    present = filled & dump.dirty[bucket]
    own = of_row[bucket] == flow[which[case]]
    own = np.flatnonzero(filled & own & ~present)
    came = np.asarray(decode(dump.switch[bucket[own]], dump.path_bf[bucket[own]]), np.int64)
    present[own] = (came < 0) | (segments.upstream[came] == upstream[which[case[own]]])
    proved = np.zeros(len(which), np.bool_)
    proved[case[~present]] = True
    perhaps = np.zeros(len(segment), np.bool_)
    perhaps[which[~proved]] = True
    return perhaps


def _expand(keys: LongArray, wanted: LongArray) -> tuple[LongArray, LongArray]:
    """Return the indices of all pairs of equal elements of ``wanted`` and of the ascending
    ``keys``: two arrays int64[pairs]."""
    first = np.searchsorted(keys, wanted)
    times = np.searchsorted(keys, wanted, "right") - first
    which = np.repeat(np.arange(len(wanted)), times)
    within = np.arange(len(which)) - np.repeat(np.cumsum(times) - times, times)
    return which, first[which] + within


def _merge(
    dump: MeterDump, key: LongArray, chosen: BoolArray
) -> tuple[LongArray, LongArray, LongArray]:
    """Merge the clean buckets of each flow in each meter; there may be one in every row.

    Return the ascending keys, a row of the dump for each, and the keys whose clean buckets disagree
    and which are therefore left out.
    """
    row = np.flatnonzero(chosen)
    unique, first, inverse = np.unique(key[row], return_index=True, return_inverse=True)
    kept = row[first]
    differs = (dump.count[row] != dump.count[kept][inverse]) | (
        dump.path_bf[row] != dump.path_bf[kept][inverse]
    )
    broken = np.zeros(len(unique), np.bool_)
    broken[inverse[differs]] = True
    return unique[~broken], kept[~broken], unique[broken]


def _find(keys: LongArray, wanted: LongArray) -> tuple[BoolArray, LongArray]:
    """Return whether each wanted key is in the ascending ``keys``, bool[], and its index there,
    int64[]."""
    if not len(keys):
        return np.zeros(len(wanted), np.bool_), np.zeros(len(wanted), np.int64)
    position = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return keys[position] == wanted, position


def _number(high: WordArray, low: WordArray) -> LongArray:
    """Return numbers from 0 for 104-bit IDs, equal for equal IDs: int64[N]."""
    order = np.lexsort((low, high))
    is_new = (np.diff(high[order]) != 0) | (np.diff(low[order]) != 0)
    number = np.empty(len(order), np.int64)
    number[order] = np.concatenate(([0], np.cumsum(is_new)))[: len(order)]
    return number


def _same_length(name: str, columns: MeterDump | Rules) -> None:
    lengths = {len(column) for column in vars(columns).values()}
    if len(lengths) > 1:
        raise ValueError(f"{name}: columns of different lengths {sorted(lengths)}")
