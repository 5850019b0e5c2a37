"""The path segments between monitor switches of any Clos, and how much traffic crosses each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from testbed.fabric.clos import TopologyError
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.paths import Paths

__all__ = ["Monitors", "Segments", "segment_share", "segments"]

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]

Monitors = Literal["tor", "tor+core"]

MOST_ENTRIES = 200_000_000  # links of all segments: 0.8 GB


@dataclass(frozen=True)
class Segments:
    """All path segments between monitor switches (Canary, section III-A), as parallel arrays.

    ``upstream`` and ``downstream`` are switch indices int32[S]; ``switches`` int32[S, H] holds the
    switches that encode themselves into pathBF (the upstream and those between, -1 padded);
    ``subproblem`` int32[S] numbers the disjoint sub-problem (section III-E) of each segment.
    """

    upstream: IntArray
    downstream: IntArray
    switches: IntArray
    paths: Paths
    subproblem: IntArray

    def __len__(self) -> int:
        return len(self.upstream)


def segments(ecmp: Ecmp, monitors: Monitors = "tor+core") -> Segments:
    """Every path segment between monitor switches (Canary, section III-A).

    With ``"tor+core"`` the ToRs and the switches of the highest tier are monitors: first come the
    paths that turn below it, then the climbs to it, then those downwards. A sub-problem (section
    III-E) is a pod with its links to the highest tier. With ``"tor"`` a segment is a whole path and
    there is one sub-problem.

    Raises:
        TopologyError: There are too many, or ``monitors`` is neither.
    """
    if monitors not in ("tor", "tor+core"):
        raise TopologyError(f"MONITORS={monitors} is unknown: use tor or tor+core")
    fabric = ecmp.fabric
    if monitors == "tor":
        entries = int((2 * ecmp.turn * ecmp.width.astype(np.int64)).sum())
        if entries > MOST_ENTRIES:
            raise TopologyError(
                f"MONITORS=tor makes {int(ecmp.width.sum(dtype=np.int64)):,} segments of "
                f"{fabric.title}: use tor+core"
            )
    src, dst = _local(ecmp, monitors)
    local = fabric.path_sets(src, dst)
    src, dst = src[local.owner], dst[local.owner]
    if monitors == "tor":
        return _of(ecmp, src, dst, local.paths, np.zeros(len(src), np.int32))
    top = ecmp.to_top
    tor, end, up = ecmp.tor[top], ecmp.end[top], ecmp.climbs.take(top)
    ptr = np.concatenate((local.paths.ptr, local.paths.ptr[-1] + up.ptr[1:]))
    ptr = np.concatenate((ptr, ptr[-1] + up.ptr[1:]))
    links = np.concatenate((local.paths.links, up.links, _reversed(up)))
    upstream = np.concatenate((src, tor, end))
    downstream = np.concatenate((dst, end, tor))
    pod = ecmp.fabric.pod[np.concatenate((src, tor, tor))]
    return _of(ecmp, upstream, downstream, Paths(ptr, links), pod)


def segment_share(
    ecmp: Ecmp, pair_share: FloatArray, monitors: Monitors = "tor+core"
) -> FloatArray:
    """The share of all flows that crosses each of `segments`, float64[S].

    Args:
        pair_share: The share of the flows from ToR to ToR, float64[n_tors, n_tors]; ECMP spreads
            those of a pair uniformly over its paths.
    """
    spread = pair_share / ecmp.width
    src, dst = _local(ecmp, monitors)
    local = np.repeat(spread[src, dst], ecmp.width[src, dst])
    if monitors == "tor":
        return local
    across = np.where(ecmp.turn == ecmp.top, spread, 0.0)
    reach = ecmp.reach(ecmp.top).astype(np.float64)
    top = ecmp.to_top
    at = ecmp.tor[top], _number_in_tier(ecmp)[ecmp.end[top]]
    return np.concatenate((local, (across @ reach)[at], (across.T @ reach)[at]))


def _local(ecmp: Ecmp, monitors: Monitors) -> tuple[IntArray, IntArray]:
    """The pairs of ToRs with no monitor in between, those whose paths turn lower first."""
    tiers = range(1, ecmp.top + (monitors == "tor"))
    pairs = [np.zeros((0, 2), np.int64), *(np.argwhere(ecmp.turn == tier) for tier in tiers)]
    src, dst = np.concatenate(pairs).T.astype(np.int32)
    return src, dst


def _number_in_tier(ecmp: Ecmp) -> npt.NDArray[np.int64]:
    """The position of each switch among those of the highest tier."""
    return np.cumsum(ecmp.fabric.tier == ecmp.top) - 1


def _reversed(climbs: Paths) -> IntArray:
    """The links of each climb's descent, one after another."""
    position = np.arange(len(climbs.links)) - climbs.ptr[climbs.owner]
    last = climbs.ptr[1:][climbs.owner] - 1
    return climbs.links[last - position] ^ 1


def _of(
    ecmp: Ecmp, upstream: IntArray, downstream: IntArray, paths: Paths, subproblem: IntArray
) -> Segments:
    links = paths.padded()
    switches = np.where(links >= 0, ecmp.fabric.link_src[links], -1).astype(np.int32)
    return Segments(upstream, downstream, switches, paths, subproblem)
