"""ECMP probabilities of the topology, as 007's vote adjustment needs them (section 5.1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.topology import FatTree

__all__ = ["continuations", "shared_votes"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]


def shared_votes(topology: FatTree, link: int) -> FloatArray:
    """The share of a link's votes that every link gets from the same connections.

    Connections run between ToRs uniformly at random and ECMP spreads them uniformly over paths
    (remark 1 of the paper's appendix C); a connection over h links votes 1/h for each. Of the
    expected votes for ``link``, entry i is the part cast by connections that cross link i too:
    float64[n_links], 1 at ``link`` itself.
    """
    ends = (int(topology.link_src[link]), int(topology.link_dst[link]))
    low = min(ends)  # switches are numbered from the ToRs up
    if low < topology.n_tors:
        near = np.array([low], np.int32)
    else:
        near = np.flatnonzero(topology.switch_pod[: topology.n_tors] == topology.switch_pod[low])
    votes = np.zeros(topology.n_links)
    every = np.arange(topology.n_tors, dtype=np.int32)
    upward = link % 2 == 0
    for tor in near:
        far = every[every != tor]
        here = np.full_like(far, tor)
        paths = topology.ecmp_paths(here, far) if upward else topology.ecmp_paths(far, here)
        width = (paths[:, :, 0] >= 0).sum(axis=1)
        crossing = (paths == link).any(axis=2)
        pair, _ = np.nonzero(crossing)
        chosen = paths[crossing]
        hops = (chosen >= 0).sum(axis=1)
        weight = np.broadcast_to((1 / (width[pair] * hops))[:, None], chosen.shape)
        real = chosen >= 0
        votes += np.bincount(chosen[real], weight[real], topology.n_links)
    return votes / votes[link]


def continuations(
    topology: FatTree, src_tor: int, dst_tor: int, traced: IntArray
) -> tuple[IntArray, FloatArray]:
    """Where a connection whose trace broke off may have gone, as far as the topology implies.

    Args:
        traced: The directed links the trace saw, in order.

    Returns:
        The links of all ECMP paths that begin with ``traced``, ascending, and the probability that
        the connection took each: 1 for the traced ones and wherever no choice was left.
        Both empty if no path begins so.
    """
    paths = topology.ecmp_paths(np.array([src_tor], np.int32), np.array([dst_tor], np.int32))[0]
    possible = paths[(paths[:, 0] >= 0) & (paths[:, : len(traced)] == traced).all(axis=1)]
    if not len(possible):
        return np.zeros(0, np.int32), np.zeros(0)
    link, times = np.unique(possible[possible >= 0], return_counts=True)
    return link.astype(np.int32), times / len(possible)
