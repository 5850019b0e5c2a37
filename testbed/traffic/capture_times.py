"""The times of a capture's packets, judged before they are used.

One packet with the time 0, as a damaged clock writes it, makes a capture of a second last for 50
years. A capture that was interrupted for an hour is mostly an hour of nothing. Squeezed into a run,
both would send all their packets in an instant.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

STRAY = "far from all others in time"
"""Why a packet is refused whose time has nothing to do with those of the others."""

_LEAST_PAUSE_NS = 10**9
_TIMES_THE_REST = 10  # a pause lasts that many times as long as all the rest of the capture
_PACKETS_A_PAUSE = 100  # traffic is bursty: among few packets, any silence looks long
_FEWEST = 10  # packets that say anything of each other's times
_SHARE = 0.01  # of the largest part's packets; what has fewer, between pauses, is stray


class JudgedTimes(NamedTuple):
    """What the times of P packets are worth.

    Attributes:
        stray: Whether a packet is far from the others in time, bool [P].
        begins_ns: Where each pause begins, int64 [N], ascending: the last packet before it.
        ends_ns: Where it ends, int64 [N]: the first packet after it.
    """

    stray: npt.NDArray[np.bool_]
    begins_ns: npt.NDArray[np.int64]
    ends_ns: npt.NDArray[np.int64]

    @property
    def pauses_ns(self) -> npt.NDArray[np.int64]:
        """How long each pause lasts, int64 [N]."""
        return self.ends_ns - self.begins_ns

    def without_pauses(self, time_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the times as if a pause took no time: the packets behind it come that much
        earlier."""
        closed = np.concatenate(([0], np.cumsum(self.pauses_ns)))
        return time_ns - closed[np.searchsorted(self.ends_ns, time_ns, side="right")]


def judge_times(time_ns: npt.NDArray[np.int64]) -> JudgedTimes:
    """Find the pauses of a capture, and the packets that are far from all others.

    A pause is a silence of at least a second that is more than ten times as long as all that is
    left of the capture without the pauses. There is at most one for every hundred packets, or one,
    and none among fewer than ten packets.
    Of the parts between pauses, one with less than a hundredth of the largest part's packets is
    stray: its packets have wrong times.

    Args:
        time_ns: Times of the packets, not negative, in any order, int64 [P].
    """
    order = np.argsort(time_ns, kind="stable")
    ordered = time_ns[order]
    silence = np.diff(ordered)
    most = max(1, len(time_ns) // _PACKETS_A_PAUSE) if len(time_ns) >= _FEWEST else 0
    cuts = _longest(silence, most)
    parts = np.diff(np.concatenate(([0], cuts + 1, [len(ordered)])))
    is_stray = parts < _SHARE * parts.max(initial=0)
    stray = np.empty(len(time_ns), np.bool_)
    stray[order] = np.repeat(is_stray, parts)
    kept = np.flatnonzero(~is_stray)
    first = np.cumsum(parts) - parts
    before = first[kept[:-1]] + parts[kept[:-1]] - 1
    after = first[kept[1:]]
    return JudgedTimes(stray, ordered[before], ordered[after])


def _longest(silence: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Return the indices of the silences that are pauses, ascending."""
    most = min(most, len(silence))
    if not most:
        return np.zeros(0, np.int64)
    longest = np.argpartition(-silence, most - 1)[:most]
    longest = longest[np.argsort(-silence[longest], kind="stable")]
    length = silence[longest].astype(np.float64)
    rest = silence.sum(dtype=np.float64) - np.cumsum(length)
    pauses = (length >= _LEAST_PAUSE_NS) & (length > _TIMES_THE_REST * rest)
    n = int(np.flatnonzero(pauses).max(initial=-1)) + 1
    return np.sort(longest[:n])
