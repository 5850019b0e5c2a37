# SPDX-License-Identifier: Apache-2.0
"""A fabric together with the links of its hosts, which are one tier more below the ToRs.

The links of the fabric keep their numbers, and those of hosts follow: host ``h`` has the link
``n_links + 2 * h`` up to its ToR and ``n_links + 2 * h + 1`` down from it, so that ``link ^ 1`` is
the opposite direction here, too. Paths begin and end at hosts. Whoever reads paths, equal-cost
paths or links of a `Fabric` needs no case for hosts: the papers of 007, Flock and NetBouncer have
them in their graphs, too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths, pointers
from testbed.fabric.segments import Segments


def with_hosts(fabric: Fabric) -> HostFabric:
    """Return a fabric with its hosts as the lowest tier, and their links; one is made of each."""
    own = vars(fabric)
    if _MADE not in own:
        own[_MADE] = HostFabric(fabric)
    return own[_MADE]


_MADE = "_with_hosts"


class HostFabric(Fabric):
    """A fabric whose lowest tier are the hosts of another one.

    Attributes:
        switches_only: The fabric without hosts.

    >>> from testbed.fabric.clos import leaf_spine
    >>> whole = HostFabric(leaf_spine(2, 1, oversubscription=2))
    >>> whole.link_names[4:8]
    ['h0_0->leaf0', 'leaf0->h0_0', 'h0_1->leaf0', 'leaf0->h0_1']
    >>> whole.path_sets(np.array([0]), np.array([2]))[0].links.tolist()
    [4, 0, 3, 9]
    """

    def __init__(self, switches_only: Fabric) -> None:
        plain, hosts = switches_only, switches_only.n_hosts
        host = np.arange(hosts, dtype=np.int32)
        super().__init__(
            [*plain.host_names, *plain.switch_names],
            np.concatenate((np.zeros(hosts, np.int8), plain.tier + 1)),
            np.concatenate((hosts + plain.link_src[::2], host)),
            np.concatenate((hosts + plain.link_dst[::2], hosts + host // plain.hosts_per_tor)),
            n_tors=hosts,
            title=f"{plain.title} with its hosts",
        )
        self.switches_only = plain

    def around(
        self,
        paths: Paths,
        src_host: npt.NDArray[np.integer],
        dst_host: npt.NDArray[np.integer],
        whole: npt.NDArray[np.bool_] | None = None,
    ) -> Paths:
        """Return paths of the fabric with the link of the sender before them and that of the
        receiver behind them.

        Args:
            paths: Paths between ToRs; within a rack they have no link.
            src_host, dst_host: The sender and the receiver of each path, int[P].
            whole: Which paths end at the receiver's ToR, bool[P]; those of others end where they
                end. By default all do.
        """
        whole = np.ones(len(paths), np.bool_) if whole is None else whole
        first = self.switches_only.n_links
        ptr = pointers(paths.length + 1 + whole)
        links = np.empty(ptr[-1], np.int32)
        at = np.arange(len(paths.links)) - paths.ptr[paths.owner] + ptr[paths.owner] + 1
        links[at] = paths.links
        links[ptr[:-1]] = first + 2 * np.asarray(src_host)
        links[ptr[1:][whole] - 1] = first + 2 * np.asarray(dst_host)[whole] + 1
        return Paths(ptr, links)

    def numbered(self, segments: Segments) -> Segments:
        """Return segments of the fabric without hosts with the numbers that switches, and hosts
        with meters, have here."""
        first = self.switches_only.n_switches
        place = np.append(self.n_tors + np.arange(first), np.arange(self.n_tors)).astype(np.int32)
        return replace(
            segments,
            upstream=place[segments.upstream],
            downstream=place[segments.downstream],
            switches=np.where(segments.switches < 0, -1, place[segments.switches]),
        )
