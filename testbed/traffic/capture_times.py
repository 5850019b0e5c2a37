"""Finds wrong times and long pauses in a capture before its times are used.

One packet with the time 0, as a damaged clock writes it, makes a capture of one second last for 50
years. A capture that was interrupted for an hour is mostly silence. Scaled to the length of a run,
both would send all their packets at almost the same time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

STRAY = "far from all others in time"
"""The reason for refusing a packet whose time is far from those of all others."""

_LEAST_PAUSE_NS = 10**9
_TIMES_THE_REST = 10  # a pause lasts that many times as long as all the rest of the capture
_PACKETS_A_PAUSE = 100  # traffic is bursty: among few packets, any silence looks long
_FEWEST = 10  # packets that say anything of each other's times
_SHARE = 0.01  # of the largest part's packets; what has fewer, between pauses, is stray


class JudgedTimes(NamedTuple):
    """The stray packets and the pauses among P packets.

    Attributes:
        stray: Whether each packet is far from the others in time, bool[P].
        begins_ns: The time of the last packet before each pause, int64[N], ascending.
        ends_ns: The time of the first packet after each pause, int64[N].
    """

    stray: npt.NDArray[np.bool_]
    begins_ns: npt.NDArray[np.int64]
    ends_ns: npt.NDArray[np.int64]

    @property
    def pauses_ns(self) -> npt.NDArray[np.int64]:
        """Return the length of each pause in ns, int64[N]."""
        return self.ends_ns - self.begins_ns

    def without_pauses(self, time_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the times (int64[P], ns) with all pauses removed: later packets come earlier."""
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
