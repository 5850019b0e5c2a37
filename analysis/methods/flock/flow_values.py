# SPDX-License-Identifier: Apache-2.0
"""The flows of each group, and their log-likelihood if some of the group's paths are bad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.solvers.parts import in_parts
from testbed.arrays import BoolArray, FloatArray, FloatMatrix, LongArray
from testbed.compiled import kernel, njit
from testbed.fabric.paths import pointers

MEMO_SLOTS = 1 << 25
"""Log-likelihoods that are cached for all groups with several paths together, at least 16 for each
group: up to 540 MB."""


@dataclass(frozen=True)
class Loss:
    """Loss rates on a bad and on a good path, in (0, 1): ``known`` for flows whose path is known,
    ``hidden`` for flows with several possible paths."""

    known: tuple[float, float]
    hidden: tuple[float, float]


class FlowValues(NamedTuple):
    """The flows of each group, from which its log-likelihood with b of w paths bad follows
    (equation 1).

    Flows ``ptr[g]:ptr[g + 1]`` of group g have the ``score`` ln(P(bad path) / P(good path)), and
    each stands for ``times`` equal flows; ``bent`` is expm1(score), or exp(-score) where the score
    is positive. Group g has ``width[g]`` possible paths. Its latest values are cached as pairs (b,
    value) in ``memo[memo_ptr[g]:memo_ptr[g + 1]]``; b is 0 in an empty entry.
    """

    ptr: LongArray
    score: FloatArray
    bent: FloatArray
    times: FloatArray
    width: LongArray
    memo_ptr: LongArray
    memo: FloatMatrix


@kernel
def value(values, g, b):
    """Return the log-likelihood in nats of group g with b bad paths, relative to no bad path; b is
    limited to 0..width."""
    width = values.width[g]
    b = min(max(b, 0), width)
    if b == 0:
        return 0.0
    slots = values.memo_ptr[g + 1] - values.memo_ptr[g]
    at = values.memo_ptr[g] + (b & (slots - 1))
    if slots and values.memo[at, 0] == b:
        return values.memo[at, 1]
    total = 0.0
    if b == width:
        for f in range(values.ptr[g], values.ptr[g + 1]):
            total += values.times[f] * values.score[f]
    else:
        share = b / width
        for f in range(values.ptr[g], values.ptr[g + 1]):
            score, bent = values.score[f], values.bent[f]
            if score > 0:
                total += values.times[f] * (score + np.log(share + (1 - share) * bent))
            else:
                total += values.times[f] * np.log1p(share * bent)
    if slots:
        values.memo[at, 0] = b
        values.memo[at, 1] = total
    return total


class Counts(NamedTuple):
    """Packets that each flow ``sent`` and ``lost``, int64[F], and whether it was reported only
    because it lost some (``given_loss``, bool[F])."""

    sent: LongArray
    lost: LongArray
    given_loss: BoolArray


class _Odds(NamedTuple):
    """The change of a bad path's log-odds for each lost and each arrived packet, float64[2] (known
    path, hidden path); and the loss rates on bad and good paths that are known."""

    per_lost: FloatArray
    per_arrived: FloatArray
    bad: float
    good: float

    @classmethod
    def of(cls, loss: Loss) -> _Odds:
        """Return the log-odds that follow from loss rates."""
        both = (loss.known, loss.hidden)
        per_lost = [np.log(bad / good) for bad, good in both]
        per_arrived = [np.log1p(-bad) - np.log1p(-good) for bad, good in both]
        return cls(np.array(per_lost), np.array(per_arrived), *loss.known)


def flow_values(
    group: npt.NDArray[np.integer], width: LongArray, counts: Counts, loss: Loss
) -> FlowValues:
    """Return the flows of each group with their scores; equal flows are stored once, with their
    number.

    Args:
        group: The group of each flow, int[F].
        width: The number of possible paths of each group, int64[G].
        counts: The packets of each flow.
        loss: Loss rates on bad and on good paths.
    """
    score, ptr = _scores(group, width, counts, _Odds.of(loss))
    count = np.zeros(len(width), np.int64)
    merged = in_parts(len(score), _merge, ptr, score, width, count)
    score, times = (np.concatenate([part[i] for part in merged]) for i in (0, 1))
    bent = np.where(score > 0, np.exp(-np.abs(score)), np.expm1(np.minimum(score, 0)))
    most = max(16, MEMO_SLOTS >> int((width > 1).sum()).bit_length())
    slots = np.exp2(np.ceil(np.log2(np.minimum(width + 1, most)))).astype(np.int64)
    memo_ptr = pointers(np.where(width > 1, slots, 0))
    return FlowValues(
        ptr=pointers(count),
        score=score,
        bent=bent,
        times=times,
        width=width.astype(np.int64),
        memo_ptr=memo_ptr,
        memo=np.zeros((memo_ptr[-1], 2)),
    )


@njit
def _scores(group, width, counts, odds):
    """Return the scores of all flows in the order of their groups, float64[F], and where each
    group's scores begin, int64[G + 1]."""
    ptr = np.zeros(len(width) + 1, np.int64)
    for g in group:
        ptr[g + 1] += 1
    ptr = np.cumsum(ptr)
    score = np.empty(len(group))
    _place_scores(group, width, counts, odds, ptr[:-1].copy(), score)
    return score, ptr


@kernel
def _place_scores(group, width, counts, odds, free, score):
    """Write each flow's score to the next free place of its group, ``free[g]``, int64[G]."""
    for f in range(len(group)):
        g, sent, lost = group[f], counts.sent[f], counts.lost[f]
        hidden = 1 if width[g] > 1 else 0
        total = lost * odds.per_lost[hidden] + (sent - lost) * odds.per_arrived[hidden]
        if counts.given_loss[f] and not hidden:
            bad = np.expm1(sent * np.log1p(-odds.bad))
            good = np.expm1(sent * np.log1p(-odds.good))
            total -= np.log(bad / good)
        score[free[g]] = total
        free[g] += 1


@njit
def _merge(part, parts, ptr, score, width, count):
    """Merge equal flows of each group in one part of the groups. The flows of a group with a single
    path become one, since their scores add up.

    Return the distinct scores and how often each occurs, one group after another; write the number
    of distinct scores of each group to ``count``, int64[G].
    """
    n = len(width)
    begin, end = part * n // parts, (part + 1) * n // parts
    left = np.empty(ptr[end] - ptr[begin])
    times = np.empty(len(left))
    at = 0
    for g in range(begin, end):
        flows = score[ptr[g] : ptr[g + 1]]
        start = at
        if width[g] == 1 and len(flows):
            left[at], times[at] = flows.sum(), 1.0
            at += 1
        else:
            flows.sort()
            for f in range(len(flows)):
                if f > 0 and flows[f] == flows[f - 1]:
                    times[at - 1] += 1.0
                else:
                    left[at], times[at] = flows[f], 1.0
                    at += 1
        count[g] = at - start
    return left[:at], times[:at]
