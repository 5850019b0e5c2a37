"""The fat-tree as pure data: switches, hosts, ports, addresses, directed links and path segments.

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

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from testbed.fabric.clos import Fabric, TopologyError
from testbed.fabric.paths import Paths, PathSets

__all__ = ["FatTree", "Monitors", "Paths", "Segments", "TopologyError"]

IntArray = npt.NDArray[np.int32]
Monitors = Literal["tor", "tor+core"]


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


class FatTree(Fabric):
    """A k-ary fat-tree (Al-Fares et al., SIGCOMM 2008) with its names, ports and addresses.

    Switches are numbered ToRs first, then aggregation, then core. A directed fabric link is
    numbered ``2 * edge`` upwards and ``2 * edge + 1`` downwards, so ``link ^ 1`` is the opposite
    direction and ``link >> 1`` the undirected link. Ports count from 1, down-links first.

    Memory and construction time grow as k^3 (links); segments as k^3 with core monitors and as k^6
    without.

    Raises:
        TopologyError: ``k`` is odd, below 4 or above 128.
    """

    def __init__(self, k: int) -> None:
        if k < 4 or k % 2 or k > 128:
            raise TopologyError(f"K={k} is no fat-tree: K must be an even number from 4 to 128")
        self.k = k
        self.half = half = k // 2
        self.n_pods = k
        self.n_tors = self.n_aggs = k * half
        self.n_cores = half * half
        tors = [f"tor{p}_{i}" for p in range(k) for i in range(half)]
        aggs = [f"agg{p}_{i}" for p in range(k) for i in range(half)]
        cores = [f"core{c}" for c in range(self.n_cores)]
        lower, upper, _, _ = self._edges
        super().__init__(
            tors + aggs + cores,
            np.repeat([0, 1, 2], [self.n_tors, self.n_aggs, self.n_cores]),
            lower,
            upper,
            hosts_per_tor=half,
            title=f"a K={k} fat-tree",
        )

    # ---- names -------------------------------------------------------------------------------

    @cached_property
    def host_names(self) -> list[str]:
        return [
            f"h{p}_{t}_{h}"
            for p in range(self.n_pods)
            for t in range(self.half)
            for h in range(self.half)
        ]

    # ---- switches and hosts ------------------------------------------------------------------

    def tor(self, pod: int, i: int) -> int:
        return pod * self.half + i

    def agg(self, pod: int, i: int) -> int:
        return self.n_tors + pod * self.half + i

    def core(self, i: int) -> int:
        return self.n_tors + self.n_aggs + i

    @cached_property
    def switch_pod(self) -> IntArray:
        """Pod of each switch, -1 for core switches: int32[n_switches]."""
        pods = np.repeat(np.arange(self.n_pods, dtype=np.int32), self.half)
        return np.concatenate((pods, pods, np.full(self.n_cores, -1, np.int32)))

    @cached_property
    def host_tor(self) -> IntArray:
        """The ToR switch of each host: int32[n_hosts]."""
        return np.repeat(np.arange(self.n_tors, dtype=np.int32), self.half)

    @cached_property
    def host_port(self) -> IntArray:
        """The ToR's port of each host: int32[n_hosts]."""
        return np.tile(np.arange(1, self.half + 1, dtype=np.int32), self.n_tors)

    # ---- addresses ---------------------------------------------------------------------------

    @cached_property
    def host_ip(self) -> npt.NDArray[np.uint32]:
        """10.pod.tor.(2 + n): uint32[n_hosts]."""
        tor = self.host_tor.astype(np.uint32)
        last = self.host_port.astype(np.uint32) + 1
        address = np.uint32(10 << 24) | tor // self.half << 16 | tor % self.half << 8 | last
        return address.astype(np.uint32)

    @cached_property
    def switch_ip(self) -> npt.NDArray[np.uint32]:
        """10.pod.i.1 for ToRs, 10.pod.(k/2 + i).1 for aggregation, 10.k.group.(1 + i) for cores."""
        pod_index = np.arange(self.n_tors, dtype=np.uint32)
        base = np.uint32(10 << 24)
        tor = base | pod_index // self.half << 16 | pod_index % self.half << 8 | 1
        agg = base | pod_index // self.half << 16 | (pod_index % self.half + self.half) << 8 | 1
        core_index = np.arange(self.n_cores, dtype=np.uint32)
        group, member = core_index // self.half, core_index % self.half + 1
        core = base | np.uint32(self.k << 16) | group << 8 | member
        return np.concatenate((tor, agg, core)).astype(np.uint32)

    @cached_property
    def host_mac(self) -> npt.NDArray[np.uint64]:
        """Locally administered, 02:00 followed by the IPv4 address: uint64[n_hosts]."""
        return np.uint64(0x0200 << 32) | self.host_ip.astype(np.uint64)

    @cached_property
    def switch_mac(self) -> npt.NDArray[np.uint64]:
        return np.uint64(0x0200 << 32) | self.switch_ip.astype(np.uint64)

    # ---- links -------------------------------------------------------------------------------

    @cached_property
    def _edges(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Lower switch, upper switch, lower's port, upper's port of each undirected link."""
        half = self.half
        pod_switch = np.arange(self.n_tors, dtype=np.int32).repeat(half)
        nth = np.tile(np.arange(half, dtype=np.int32), self.n_tors)
        pod, position = pod_switch // half, pod_switch % half
        lower = np.concatenate((pod_switch, self.n_tors + pod_switch))
        upper = np.concatenate(
            (
                self.n_tors + pod * half + nth,
                self.n_tors + self.n_aggs + position * half + nth,
            )
        )
        lower_port = np.concatenate((half + 1 + nth, half + 1 + nth))
        upper_port = np.concatenate((1 + position, 1 + pod))
        return lower, upper, lower_port, upper_port

    @staticmethod
    def _both(up: IntArray, down: IntArray) -> IntArray:
        return np.stack((up, down), axis=1).reshape(-1).astype(np.int32)

    @cached_property
    def link_src_port(self) -> IntArray:
        _, _, lower, upper = self._edges
        return self._both(lower, upper)

    @cached_property
    def link_dst_port(self) -> IntArray:
        _, _, lower, upper = self._edges
        return self._both(upper, lower)

    def _tor_agg(self, tor: IntArray, agg: IntArray) -> IntArray:
        """Upward link from ToR index to the agg-th aggregation switch of its pod."""
        return 2 * (tor * self.half + agg)

    def _agg_core(self, pod: IntArray, core: IntArray) -> IntArray:
        """Upward link to ``core`` from the aggregation switch of ``pod`` that reaches it."""
        return self.n_edges + 2 * (pod * self.n_cores + core)

    @cached_property
    def link_subproblem(self) -> IntArray:
        """The pod each directed link belongs to (Canary, section III-E): int32[n_links]."""
        lower, _, _, _ = self._edges
        return np.repeat(self.switch_pod[lower], 2)

    # ---- paths -------------------------------------------------------------------------------

    def ecmp_paths(self, src_tor: IntArray, dst_tor: IntArray) -> IntArray:
        """Every equal-cost path between ToR pairs.

        Args:
            src_tor, dst_tor: ToR switch indices, int32[N].

        Returns:
            int32[N, k^2/4, 4] directed link ids, -1 padded: k^2/4 paths of 4 links between pods,
            k/2 of 2 links within a pod, and one of no link (all -1) within a rack, the unused path
            slots being -2.
        """
        src = np.asarray(src_tor, np.int32)[:, None]
        dst = np.asarray(dst_tor, np.int32)[:, None]
        core = np.arange(self.n_cores, dtype=np.int32)[None, :]
        agg = core // self.half
        src_pod, dst_pod = src // self.half, dst // self.half
        paths = np.stack(
            np.broadcast_arrays(
                self._tor_agg(src, agg),
                self._agg_core(src_pod, core),
                self._agg_core(dst_pod, core) + 1,
                self._tor_agg(dst, agg) + 1,
            ),
            axis=2,
        ).astype(np.int32)
        same_pod = (src_pod == dst_pod)[:, 0]
        if same_pod.any():
            nth = np.arange(self.n_cores, dtype=np.int32)[None, :]
            up = self._tor_agg(src[same_pod], nth)
            down = self._tor_agg(dst[same_pod], nth) + 1
            none = np.full_like(up, -1)
            local = np.stack((up, down, none, none), axis=2)
            local[:, self.half :, :] = -2
            paths[same_pod] = local
            same_tor = (src == dst)[:, 0]
            paths[same_tor, 0, :] = -1
            paths[same_tor, 1:, :] = -2
        return paths

    def path_sets(
        self, src_tor: npt.NDArray[np.integer], dst_tor: npt.NDArray[np.integer]
    ) -> PathSets:
        src, dst = self._checked_pairs(src_tor, dst_tor)
        within, rack = src // self.half == dst // self.half, src == dst
        width = self.path_counts(src, dst)
        hops = np.where(rack, 0, np.where(within, 2, 4)).astype(np.int64)
        ptr = np.concatenate(([0], np.cumsum(width)))
        path_ptr = np.concatenate(([0], np.cumsum(np.repeat(hops, width))))
        pair = np.repeat(np.arange(len(src)), width)
        turn = (np.arange(ptr[-1]) - ptr[pair]).astype(np.int32)  # aggregation or core switch
        links = np.empty(path_ptr[-1], np.int32)
        near = hops[pair] == 2
        at, nth = path_ptr[:-1][near], turn[near]
        links[at] = self._tor_agg(src[pair[near]], nth)
        links[at + 1] = self._tor_agg(dst[pair[near]], nth) + 1
        far = hops[pair] == 4
        at, core, pair = path_ptr[:-1][far], turn[far], pair[far]
        links[at] = self._tor_agg(src[pair], core // self.half)
        links[at + 1] = self._agg_core(src[pair] // self.half, core)
        links[at + 2] = self._agg_core(dst[pair] // self.half, core) + 1
        links[at + 3] = self._tor_agg(dst[pair], core // self.half) + 1
        return PathSets(ptr, Paths(path_ptr, links))

    def path_counts(
        self, src_tor: npt.NDArray[np.integer], dst_tor: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.int64]:
        src, dst = self._checked_pairs(src_tor, dst_tor)
        within = np.where(src // self.half == dst // self.half, self.half, self.n_cores)
        return np.where(src == dst, 1, within).astype(np.int64)

    def bounce_paths(self) -> IntArray:
        """NetBouncer's probe of each (ToR, core) pair, up and back (its section 4.3).

        Returns int32[n_tors, n_cores, 4]: ToR->agg, agg->core, core->agg, agg->ToR.
        """
        tor = np.arange(self.n_tors, dtype=np.int32)[:, None]
        core = np.arange(self.n_cores, dtype=np.int32)[None, :]
        up, upper = np.broadcast_arrays(
            self._tor_agg(tor, core // self.half), self._agg_core(tor // self.half, core)
        )
        return np.stack((up, upper, upper + 1, up + 1), axis=2).astype(np.int32)

    # ---- segments ----------------------------------------------------------------------------

    def segments(self, monitors: Monitors = "tor+core") -> Segments:
        """Every path segment between monitor switches.

        With ``"tor+core"`` each pod and its core links are one sub-problem (Canary, section
        III-E); with ``"tor"`` inter-pod segments have 5 hops and cross pods, so the whole network
        is one problem.
        """
        half = self.half
        each = np.arange(half, dtype=np.int32)
        pods = np.arange(0, self.n_tors, half, dtype=np.int32)
        pod, src, dst, nth = (a.ravel() for a in np.meshgrid(pods, each, each, each, indexing="ij"))
        apart = src != dst
        src, dst, nth = (pod + src)[apart], (pod + dst)[apart], nth[apart]
        agg = self.n_tors + src // half * half + nth
        within = (
            src,
            dst,
            np.stack((src, agg), axis=1),
            np.stack((self._tor_agg(src, nth), self._tor_agg(dst, nth) + 1), axis=1),
        )
        if monitors == "tor+core":
            between = self._core_segments()
        elif monitors == "tor":
            between = self._tor_to_tor_segments()
        else:
            raise TopologyError(f"MONITORS={monitors} is unknown: use tor or tor+core")
        upstream, downstream, switches, links = (
            np.concatenate((_pad(a, b), b)).astype(np.int32)
            for a, b in zip(within, between, strict=True)
        )
        paths = Paths.from_padded(links)
        if monitors == "tor":
            subproblem = np.zeros(len(upstream), np.int32)
        else:
            subproblem = self.link_subproblem[links[:, 0]]
        return Segments(upstream, downstream, switches, paths, subproblem)

    def _core_segments(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """ToR->agg->core and core->agg->ToR."""
        tor, core = (
            a.ravel().astype(np.int32)
            for a in np.meshgrid(np.arange(self.n_tors), np.arange(self.n_cores), indexing="ij")
        )
        pod, nth = tor // self.half, core // self.half
        agg = self.n_tors + pod * self.half + nth
        core_switch = self.n_tors + self.n_aggs + core
        up, upper = self._tor_agg(tor, nth), self._agg_core(pod, core)
        return (
            np.concatenate((tor, core_switch)),
            np.concatenate((core_switch, tor)),
            np.concatenate((np.stack((tor, agg), 1), np.stack((core_switch, agg), 1))),
            np.concatenate((np.stack((up, upper), 1), np.stack((upper + 1, up + 1), 1))),
        )

    def _tor_to_tor_segments(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """ToR->agg->core->agg->ToR between pods."""
        tor = np.arange(self.n_tors, dtype=np.int32)
        src, dst = (a.ravel() for a in np.meshgrid(tor, tor, indexing="ij"))
        apart = src // self.half != dst // self.half
        src, dst = src[apart], dst[apart]
        links = self.ecmp_paths(src, dst).reshape(-1, 4)
        src, dst = src.repeat(self.n_cores), dst.repeat(self.n_cores)
        core = np.tile(np.arange(self.n_cores, dtype=np.int32), len(src) // self.n_cores)
        up_agg = self.n_tors + src // self.half * self.half + core // self.half
        down_agg = self.n_tors + dst // self.half * self.half + core // self.half
        core_switch = self.n_tors + self.n_aggs + core
        return src, dst, np.stack((src, up_agg, core_switch, down_agg), 1), links


def _pad(a: IntArray, like: IntArray) -> IntArray:
    """Widen the rows of ``a`` with -1 to the width of ``like``."""
    if a.ndim == 1 or a.shape[1] == like.shape[1]:
        return a
    return np.pad(a, ((0, 0), (0, like.shape[1] - a.shape[1])), constant_values=-1)
