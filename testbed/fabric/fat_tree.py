# SPDX-License-Identifier: Apache-2.0
"""The fat-tree as pure data: switches, hosts, ports, addresses and directed links::

            core0      core1      core2      core3          k^2/4 core switches
              |  \\    /  |          |  \\    /  |
            agg0_0 ...                agg0_1 ...            k/2 aggregation switches a pod
              |    \\            /       |
            tor0_0 ...                tor0_1 ...            k/2 ToR switches a pod
            /    \\                    /    \\
        h0_0_0  h0_0_1            h0_1_0  h0_1_1            k/2 hosts a ToR

Nothing here does I/O and nothing knows a localization method. Everything counted in thousands is an
array; indices are dense and stable, so an index means the same in every file of a run.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray
from testbed.fabric.clos import TopologyError
from testbed.fabric.packet_fabric import PacketFabric


class FatTree(PacketFabric):
    """A k-ary fat-tree (Al-Fares et al., SIGCOMM 2008) with its names, ports and addresses.

    Switches are numbered ToRs first, then aggregation, then core. A directed fabric link is
    numbered ``2 * edge`` upwards and ``2 * edge + 1`` downwards, so ``link ^ 1`` is the opposite
    direction and ``link >> 1`` the undirected link. Ports count from 1, down-links first.

    Memory and construction time grow as k^3 (links); segments as k^3 with core monitors and as k^6
    without.

    Raises:
        TopologyError: ``k`` is odd, below 4 or above 128.

    >>> topology = FatTree(4)
    >>> topology.n_switches, topology.n_hosts, topology.n_links
    (20, 16, 64)
    >>> link = topology.link_names.index("tor0_0->agg0_1")
    >>> topology.link_names[link ^ 1]
    'agg0_1->tor0_0'

    >>> path = topology.path_sets(np.array([0]), np.array([7]))[0][0]  # the first of four
    >>> [topology.link_names[link] for link in path]
    ['tor0_0->agg0_0', 'agg0_0->core0', 'core0->agg3_0', 'agg3_0->tor3_1']
    """

    pod_length = 16

    def __init__(self, k: int) -> None:
        if k < 4 or k % 2 or k > 128:
            raise TopologyError(f"K={k} is not a fat-tree: use an even number from 4 to 128")
        self.k = k
        self.half = half = k // 2
        self.n_pods = k
        self.n_tors = self.n_aggs = k * half
        self.n_cores = half * half
        tors = [f"tor{p}_{i}" for p in range(k) for i in range(half)]
        aggs = [f"agg{p}_{i}" for p in range(k) for i in range(half)]
        cores = [f"core{c}" for c in range(self.n_cores)]
        lower, upper = self._ends()
        super().__init__(
            tors + aggs + cores,
            np.repeat([0, 1, 2], [self.n_tors, self.n_aggs, self.n_cores]),
            lower,
            upper,
            hosts_per_tor=half,
            title=f"a K={k} fat-tree",
        )

    def _ends(self) -> tuple[IntArray, IntArray]:
        """Return the lower and the upper switch of each undirected link, int32[n_edges] each."""
        half = self.half
        pod_switch = np.arange(self.n_tors, dtype=np.int32).repeat(half)
        nth = np.tile(np.arange(half, dtype=np.int32), self.n_tors)
        pod, position = pod_switch // half, pod_switch % half
        agg = self.n_tors + pod * half + nth
        core = self.n_tors + self.n_aggs + position * half + nth
        lower = np.concatenate((pod_switch, self.n_tors + pod_switch))
        return lower, np.concatenate((agg, core))

    # ---- names -------------------------------------------------------------------------------

    @cached_property
    def host_names(self) -> list[str]:
        """Return the name of each host: ``hPOD_TOR_HOST``."""
        return [
            f"h{p}_{t}_{h}"
            for p in range(self.n_pods)
            for t in range(self.half)
            for h in range(self.half)
        ]

    # ---- switches and hosts ------------------------------------------------------------------

    def tor(self, pod: int, i: int) -> int:
        """Return the index of the i-th ToR switch of a pod; both count from 0."""
        return pod * self.half + i

    def agg(self, pod: int, i: int) -> int:
        """Return the index of the i-th aggregation switch of a pod; both count from 0."""
        return self.n_tors + pod * self.half + i

    def core(self, i: int) -> int:
        """Return the index of the i-th core switch, counted from 0."""
        return self.n_tors + self.n_aggs + i

    # ---- addresses ---------------------------------------------------------------------------

    @cached_property
    def switch_ip(self) -> npt.NDArray[np.uint32]:
        """Return the IPv4 address of each switch as an integer, uint32[n_switches].

        10.pod.i.1 for ToRs, 10.pod.(k/2 + i).1 for aggregation, 10.k.group.(1 + i) for cores.
        """
        pod_index = np.arange(self.n_tors, dtype=np.uint32)
        base = np.uint32(10 << 24)
        tor = base | pod_index // self.half << 16 | pod_index % self.half << 8 | 1
        agg = base | pod_index // self.half << 16 | (pod_index % self.half + self.half) << 8 | 1
        core_index = np.arange(self.n_cores, dtype=np.uint32)
        group, member = core_index // self.half, core_index % self.half + 1
        core = base | np.uint32(self.k << 16) | group << 8 | member
        return np.concatenate((tor, agg, core)).astype(np.uint32)

    @cached_property
    def pod(self) -> IntArray:
        """Return the pod of each switch, int32[n_switches]; -1 for core switches."""
        in_pod = np.arange(self.n_tors, dtype=np.int32) // self.half
        return np.concatenate((in_pod, in_pod, np.full(self.n_cores, -1, np.int32)))

    # ---- paths -------------------------------------------------------------------------------

    def path_counts(
        self, src_tor: npt.NDArray[np.integer], dst_tor: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.int64]:
        """Return the number of equal-cost paths of each pair of ToRs (int[N] each), int64[N]."""
        src, dst = self._checked_pairs(src_tor, dst_tor)
        within = np.where(src // self.half == dst // self.half, self.half, self.n_cores)
        return np.where(src == dst, 1, within).astype(np.int64)
