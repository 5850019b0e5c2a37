"""NetBouncer's probing plans (its sections 3.2 and 4) for any Clos fabric.

A probe goes up from a server, or from its ToR, to a switch that bounces it, and comes back over the
same links. A plan is thus a set of upward paths, and observes undirected links.

Probes of runs are planned by `testbed.fabric.ecmp.Ecmp.bounces`. The plans here are for the paper's
own setting, whose 15.9 million paths begin at servers, and for its theorem 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.solvers.parts import in_parts
from testbed.arrays import IntArray
from testbed.compiled import njit
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths


@dataclass(frozen=True)
class ProbingPlan:
    """The paths of a plan, ordered by their origin.

    Attributes:
        origin: The switch of tier 0 (or server, see `with_servers`) where each path begins,
            int32[P].
        bounce: The switch that sends the probe back, int32[P].
        paths: The directed links of each path, up and down again over the same links.
    """

    origin: IntArray
    bounce: IntArray
    paths: Paths

    def __len__(self) -> int:
        return len(self.origin)


def probing_plan(fabric: Fabric) -> ProbingPlan:
    """Return NetBouncer's plan: all upward paths from each origin to a switch without links
    upwards.

    In a complete Clos network those are the switches of the top tier. If links are missing, a
    switch without links upwards bounces probes itself, because no other probe would cross it.
    """
    return _plan(fabric, every_hop=False)


def hop_by_hop_plan(fabric: Fabric) -> ProbingPlan:
    """Return the exhaustive plan of section 6.2: all upward paths from each origin to every
    switch."""
    return _plan(fabric, every_hop=True)


def with_servers(fabric: Fabric) -> Fabric:
    """Return a fabric with its servers as the lowest tier, so that their links are links of the
    fabric.

    Server ``h`` has number ``h`` and its link is undirected link ``h``; the numbers of the switches
    and of the undirected links of ``fabric`` increase by ``fabric.n_hosts``.
    """
    servers = np.arange(fabric.n_hosts, dtype=np.int32)
    return Fabric(
        [f"server{h}" for h in range(fabric.n_hosts)] + fabric.switch_names,
        np.concatenate((np.zeros(fabric.n_hosts, np.int8), fabric.tier + 1)),
        np.concatenate((servers, fabric.n_hosts + fabric.link_src[::2])),
        np.concatenate(
            (
                fabric.n_hosts + servers // fabric.hosts_per_tor,
                fabric.n_hosts + fabric.link_dst[::2],
            )
        ),
        title=f"{fabric.title} with its servers",
    )


def _plan(fabric: Fabric, *, every_hop: bool) -> ProbingPlan:
    """Return all upward paths to a switch without links upwards, or, with ``every_hop``, to every
    switch."""
    up = np.argsort(fabric.link_src[::2], kind="stable").astype(np.int32)
    ptr = np.searchsorted(fabric.link_src[::2][up], np.arange(fabric.n_switches + 1))
    upper = fabric.link_dst[::2][up]
    order = np.argsort(-fabric.tier, kind="stable")
    here, steps = _ways(order, ptr, upper, every_hop)
    first = np.concatenate(([0], np.cumsum(here[: fabric.n_tors])))
    entry = np.concatenate(([0], np.cumsum(2 * steps[: fabric.n_tors])))
    origin = np.repeat(np.arange(fabric.n_tors, dtype=np.int32), here[: fabric.n_tors])
    bounce = np.empty(first[-1], np.int32)
    path_ptr = np.zeros(first[-1] + 1, np.int64)
    links = np.empty(entry[-1], np.int32)
    tiers = int(fabric.tier.max(initial=0)) + 1
    in_parts(
        len(bounce), _climb, ptr, up, upper, tiers, every_hop, first, entry, bounce, path_ptr, links
    )
    return ProbingPlan(origin, bounce, Paths(path_ptr, links))


@njit
def _ways(order, ptr, upper, every_hop):
    """Count the upward paths of at least one link from each switch, and the links of all of them.

    ``order`` lists the switches from the top down. Uplink u of switch s, ptr[s] <= u < ptr[s + 1],
    leads to switch upper[u].
    """
    ways, steps = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    for s in order:
        for u in range(ptr[s], ptr[s + 1]):
            above = upper[u]
            bounces = 1 if every_hop or ptr[above] == ptr[above + 1] else 0
            ways[s] += ways[above] + bounces
            steps[s] += steps[above] + ways[above] + bounces
    return ways, steps


@njit
def _climb(part, parts, ptr, up, upper, tiers, every_hop, first, entry, bounce, path_ptr, links):
    """Write the upward paths of this part's origins, depth first."""
    n = len(first) - 1
    taken = np.empty(tiers, np.int64)  # the uplink taken at each height
    for origin in range(n * part // parts, n * (part + 1) // parts):
        path, at = first[origin], entry[origin]
        if ptr[origin] == ptr[origin + 1]:
            continue
        height = 0
        taken[0] = ptr[origin]
        while height >= 0:
            above = upper[taken[height]]
            top = ptr[above] == ptr[above + 1]
            if every_hop or top:
                bounce[path] = above
                for h in range(height + 1):
                    link = 2 * up[taken[h]]
                    links[at + h] = link
                    links[at + 2 * height + 1 - h] = link + 1
                at += 2 * height + 2
                path += 1
                path_ptr[path] = at
            if not top:
                height += 1
                taken[height] = ptr[above]
                continue
            while height >= 0:  # the next uplink, of this switch or of one below it
                below = origin if height == 0 else upper[taken[height - 1]]
                taken[height] += 1
                if taken[height] < ptr[below + 1]:
                    break
                height -= 1
