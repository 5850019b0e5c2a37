"""ECMP probabilities of the topology, as 007's vote adjustment needs them (section 5.1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.fabric import Fabric

__all__ = ["continuations", "shared_votes"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]


def shared_votes(topology: Fabric, link: int) -> FloatArray:
    """The share of a link's votes that every link gets from the same connections.

    Connections run between ToRs uniformly at random and ECMP spreads them uniformly over paths
    (remark 1 of the paper's appendix C); a connection over h links votes 1/h for each. Of the
    expected votes for ``link``, entry i is the part cast by connections that cross link i too:
    float64[n_links], 1 at ``link`` itself; 0 throughout where no shortest path crosses ``link``.
    """
    low = int(topology.link_src[link & ~1])
    votes = np.zeros(topology.n_links)
    every = np.arange(topology.n_tors, dtype=np.int32)
    upward = link % 2 == 0
    for tor in topology.tors_below(low):
        far = every[every != tor]
        here = np.full_like(far, tor)
        sets = topology.path_sets(here, far) if upward else topology.path_sets(far, here)
        paths = sets.paths
        crossing = paths.owner[paths.links == link]
        chosen = paths.take(crossing)
        weight = 1 / (sets.width[sets.owner[crossing]] * chosen.length)
        votes += np.bincount(chosen.links, weight[chosen.owner], topology.n_links)
    return votes / votes[link] if votes[link] else votes


def continuations(
    topology: Fabric, src_tor: int, dst_tor: int, traced: IntArray
) -> tuple[IntArray, FloatArray]:
    """Where a connection whose trace broke off may have gone, as far as the topology implies.

    Args:
        traced: The directed links the trace saw, in order.

    Returns:
        The links of all ECMP paths that begin with ``traced``, ascending, and the probability that
        the connection took each: 1 for the traced ones and wherever no choice was left.
        Both empty if no path begins so.
    """
    paths = topology.path_sets(np.array([src_tor]), np.array([dst_tor])).paths.padded()
    if not paths.size or len(traced) > paths.shape[1]:
        return np.zeros(0, np.int32), np.zeros(0)
    possible = paths[(paths[:, : len(traced)] == traced).all(axis=1)]
    if not len(possible):
        return np.zeros(0, np.int32), np.zeros(0)
    link, times = np.unique(possible[possible >= 0], return_counts=True)
    return link.astype(np.int32), times / len(possible)
