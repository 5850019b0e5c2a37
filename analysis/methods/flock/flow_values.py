# SPDX-License-Identifier: Apache-2.0
"""The flows of each group, and their log-likelihood if some of the group's paths are bad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.solvers.parts import in_parts
from testbed.arrays import BoolArray, FloatArray, FloatMatrix, IntArray, LongArray
from testbed.fabric.paths import pointers
from testbed.kernels import Kernels

KERNELS = Kernels.beside(__file__)

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
    # A column of a table may have strides.
    counts = Counts(
        np.ascontiguousarray(counts.sent),
        np.ascontiguousarray(counts.lost),
        np.ascontiguousarray(counts.given_loss),
    )
    score, ptr = _scores(group.astype(np.int32, copy=False), width, counts, _Odds.of(loss))
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


def _scores(
    group: IntArray, width: LongArray, counts: Counts, odds: _Odds
) -> tuple[FloatArray, LongArray]:
    """Return the scores of all flows in the order of their groups, float64[F], and where each
    group's scores begin, int64[G + 1]."""
    ptr = pointers(np.bincount(group, minlength=len(width)))
    score = np.empty(len(group))
    KERNELS.place_scores(
        group=group,
        width=width,
        **counts._asdict(),
        odds=odds,
        free_place=ptr[:-1].copy(),
        score=score,
    )
    return score, ptr


def _merge(
    part: int, parts: int, ptr: LongArray, score: FloatArray, width: LongArray, count: LongArray
) -> tuple[FloatArray, FloatArray]:
    """Merge equal flows of each group in one part of the groups. The flows of a group with a single
    path become one, since their scores add up.

    Return the distinct scores and how often each occurs, one group after another; write the number
    of distinct scores of each group to ``count``, int64[G].
    """
    begin, end = (len(width) * at // parts for at in (part, part + 1))
    distinct, times = np.empty((2, ptr[end] - ptr[begin]))
    n = KERNELS.merge_equal(
        part=part,
        parts=parts,
        ptr=ptr,
        score=score,
        width=width,
        count=count,
        distinct=distinct,
        times=times,
    )
    return distinct[:n], times[:n]
