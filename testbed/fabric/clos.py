# SPDX-License-Identifier: Apache-2.0
"""A Clos fabric of any shape as pure data: switches in tiers, links between them, paths.

The fat-tree of `testbed.fabric.fat_tree` is one, which also has ports, hosts and addresses. Others
are made here: leaf-spine, three layers with oversubscription, and either with links left out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray
from testbed.errors import UserError
from testbed.fabric.climbs import Climbs
from testbed.fabric.components import components
from testbed.fabric.paths import Paths, PathSets, pointers


class TopologyError(UserError):
    """The topology asked for cannot exist, or a name in it is unknown."""


class Fabric:
    """Switches in tiers and the directed links between them.

    Paths begin and end at ToRs, which come first: tier 0 and, where so many are given, the next.
    A directed link is numbered ``2 * edge`` upwards and ``2 * edge + 1`` downwards, so ``link ^ 1``
    is the opposite direction and ``link >> 1`` the undirected link. Two links may join the same two
    switches.

    Attributes:
        switch_names: The name of each switch.
        tier: int8[n_switches].
        link_src, link_dst: The switches of each directed link, int32[n_links].
        n_switches, n_tors, n_edges, n_links: Counts; ``n_links = 2 * n_edges`` is directed.
        hosts_per_tor, n_hosts: How many hosts share a ToR, and how many there are, host ``h`` at
            ToR ``h // hosts_per_tor``; their links are not part of the fabric.
        title: What it is, for messages: ``"a K=4 fat-tree"``.

    Args:
        switch_names: Distinct names, those of tier 0 first.
        tier: int[n_switches].
        lower, upper: The ends of each undirected link, int[n_edges]; the upper's tier is higher.
        n_tors: How many switches are ToRs; by default those of tier 0.

    Raises:
        TopologyError: The arguments do not fit together.

    >>> fabric = Fabric(["a", "b", "top"], np.array([0, 0, 1]), np.array([0, 1]), np.array([2, 2]))
    >>> fabric.link_names
    ['a->top', 'top->a', 'b->top', 'top->b']
    >>> fabric.path_sets(np.array([0]), np.array([1]))[0].links.tolist()
    [0, 3]
    """

    def __init__(
        self,
        switch_names: Sequence[str],
        tier: npt.NDArray[np.integer],
        lower: npt.NDArray[np.integer],
        upper: npt.NDArray[np.integer],
        *,
        hosts_per_tor: int = 1,
        n_tors: int | None = None,
        title: str | None = None,
    ) -> None:
        self.switch_names = list(switch_names)
        self.tier = np.asarray(tier, np.int8)
        self.n_switches = len(self.switch_names)
        self.n_tors = int((self.tier == 0).sum()) if n_tors is None else n_tors
        self.n_edges = len(lower)
        self.n_links = 2 * self.n_edges
        self.hosts_per_tor = hosts_per_tor
        self.n_hosts = self.n_tors * hosts_per_tor
        self.title = title or f"a fabric of {self.n_switches} switches and {self.n_edges} links"
        self.link_src = _interleave(lower, upper)
        self.link_dst = _interleave(upper, lower)
        self._check()

    def _check(self) -> None:
        if len(self.tier) != self.n_switches or len(self.link_src) != len(self.link_dst):
            raise TopologyError(f"{self.title}: names, tiers or ends of links differ in number")
        lowest = int((self.tier == 0).sum())
        if (self.tier < 0).any() or (self.tier[:lowest] != 0).any() or self.n_tors < lowest:
            raise TopologyError(
                f"{self.title}: tiers must start at 0, and switches of tier 0 come first"
            )
        if len(set(self.switch_names)) != self.n_switches:
            raise TopologyError(f"{self.title}: two switches have the same name")
        ends = np.concatenate((self.link_src, self.link_dst))
        if len(ends) and (ends.min() < 0 or ends.max() >= self.n_switches):
            raise TopologyError(f"{self.title}: a link ends at an unknown switch")
        flat = self.tier[self.link_src[::2]] >= self.tier[self.link_dst[::2]]
        if flat.any():
            link = 2 * int(np.flatnonzero(flat)[0])
            low, high = (self.switch_names[end[link]] for end in (self.link_src, self.link_dst))
            raise TopologyError(
                f"{self.title}: the link from {low} to {high} does not go up a tier"
            )

    # ---- names -------------------------------------------------------------------------------

    @cached_property
    def link_names(self) -> list[str]:
        """Return the name of every directed link: ``"tor0_0->agg0_1"``, with ``#2`` for a second
        link between the same switches.
        """
        name = self.switch_names
        pairs = zip(self.link_src.tolist(), self.link_dst.tolist(), strict=True)
        names = [f"{name[s]}->{name[d]}" for s, d in pairs]
        for link in np.flatnonzero(self._parallel > 1).tolist():
            names[link] += f"#{self._parallel[link]}"
        return names

    @cached_property
    def _parallel(self) -> npt.NDArray[np.int64]:
        """Return 1 for the first link between two switches, 2 for the next, ..., int64[n_links]."""
        pair = self.link_src.astype(np.int64) * self.n_switches + self.link_dst
        order = np.argsort(pair, kind="stable")
        first_of_pair = np.concatenate(([True], np.diff(pair[order]) != 0))[: len(order)]
        start = np.maximum.accumulate(np.where(first_of_pair, np.arange(len(order)), 0))
        nth = np.empty(len(order), np.int64)
        nth[order] = np.arange(len(order)) - start + 1
        return nth

    @cached_property
    def host_names(self) -> list[str]:
        """Return the name of each host: ``h3_0`` is the first one of ``leaf3``.

        Where the ToRs' names do not end in different numbers, the ToRs are counted instead.
        """
        numbers = [_NUMBER.fullmatch(name) for name in self.switch_names[: self.n_tors]]
        racks = [each[1] if each else "" for each in numbers]
        if "" in racks or len(set(racks)) < len(racks):
            racks = [str(tor) for tor in range(self.n_tors)]
        names = [f"h{rack}_{host}" for rack in racks for host in range(self.hosts_per_tor)]
        taken = not set(names).isdisjoint(self.switch_names)
        return [f"host{name[1:]}" for name in names] if taken else names

    @cached_property
    def _switch_index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.switch_names)}

    @cached_property
    def _link_index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.link_names)}

    def switch(self, name: str) -> int:
        """Return the index, from 0, of the switch ``name``. Raises TopologyError if unknown."""
        if name not in self._switch_index:
            _, first = np.unique(self.tier, return_index=True)
            known = ", ".join(self.switch_names[i] for i in first)
            raise TopologyError(f"no switch {name!r} in {self.title} (names: {known}, ...)")
        return self._switch_index[name]

    def link(self, name: str) -> int:
        """Return the index of the directed link ``name`` (``src->dst``), or raise TopologyError."""
        if name in self._link_index:
            return self._link_index[name]
        for end in name.split("->"):
            self.switch(end.strip())
        raise TopologyError(f"no link {name!r} in {self.title}: these are not neighbours")

    def paths_over(self, *paths: str) -> Paths:
        """Return the paths that are given by the names of their switches.

        Args:
            paths: Each as ``a->b->c``; of several links between two switches the first is taken.

        Raises:
            TopologyError: A switch is unknown, or two of them are not neighbours.

        >>> leaf_spine(2, 1).paths_over("leaf0->spine0->leaf1")[0].tolist()
        [0, 3]
        """
        ends = [path.split("->") for path in paths]
        hops = [[f"{a}->{b}" for a, b in itertools.pairwise(path)] for path in ends]
        links = [self.link(hop) for path in hops for hop in path]
        return Paths(pointers([len(path) for path in hops]), np.array(links, np.int32))

    # ---- structure ---------------------------------------------------------------------------

    def links_of(self, switch: int) -> IntArray:
        """Return the directed links that begin or end at a switch, ascending, int32[]."""
        at = (self.link_src == switch) | (self.link_dst == switch)
        return np.flatnonzero(at).astype(np.int32)

    @cached_property
    def n_ports(self) -> int:
        """Return the most ports that a switch has, those of hosts included."""
        ports = np.bincount(self.link_src, minlength=self.n_switches)
        ports[: self.n_tors] += self.hosts_per_tor
        return int(ports.max())

    @cached_property
    def pod(self) -> IntArray:
        """Return the pod of each switch, int32[n_switches].

        A pod is a connected component of the fabric without its highest tier; pods are numbered in
        the order of their first ToR. -1 marks the highest tier and switches connected to no ToR.
        """
        inside = self.tier[self.link_dst] < self.tier.max()
        inside &= self.tier[self.link_src] < self.tier.max()
        label = components(self.link_src[inside], self.link_dst[inside], self.n_switches)
        found, first = np.unique(label[: self.n_tors], return_index=True)
        number = np.full(int(label.max()) + 1, -1, np.int32)
        number[found[np.argsort(first)]] = np.arange(len(found))
        return np.where(self.tier < self.tier.max(), number[label], -1).astype(np.int32)

    def without(self, edges: npt.ArrayLike) -> Fabric:
        """Return this fabric without the given undirected links (``link >> 1``).

        The remaining links are renumbered; all switches stay, even those without a link.

        Raises:
            TopologyError: An edge does not exist.
        """
        gone = np.asarray(edges, np.int64).reshape(-1)
        if len(gone) and (gone.min() < 0 or gone.max() >= self.n_edges):
            raise TopologyError(f"{self.title} has links 0 to {self.n_edges - 1} to leave out")
        keep = np.ones(self.n_edges, np.bool_)
        keep[gone] = False
        return Fabric(
            self.switch_names,
            self.tier,
            self.link_src[::2][keep],
            self.link_dst[::2][keep],
            hosts_per_tor=self.hosts_per_tor,
            n_tors=self.n_tors,
            title=f"{self.title} without {self.n_edges - int(keep.sum())} links",
        )

    # ---- paths -------------------------------------------------------------------------------

    @cached_property
    def climbs(self) -> Climbs:
        """Return all upward paths from the ToRs."""
        tors = np.arange(self.n_tors, dtype=np.int32)
        return Climbs.of(tors, np.ones(self.n_switches, np.bool_), self.link_src, self.link_dst)

    def path_sets(
        self, src_tor: npt.NDArray[np.integer], dst_tor: npt.NDArray[np.integer]
    ) -> PathSets:
        """Return the equal-cost paths of each pair of ToRs: the shortest that go up, then down.

        Args:
            src_tor, dst_tor: int[N]. Repeated pairs get repeated sets.

        Returns:
            N sets; within a rack a set is one path without links, and it is empty where there is
            no path. The paths of a set are sorted by the switch where they turn. The result for
            all pairs of a large fabric may exceed the memory: ask for the pairs in use, in parts.

        Raises:
            TopologyError: An index is no ToR.
        """
        src, dst = self._checked_pairs(src_tor, dst_tor)
        return self.climbs.path_sets(src, dst)

    def path_counts(
        self, src_tor: npt.NDArray[np.integer], dst_tor: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.int64]:
        """Return the number of equal-cost paths of each pair of ToRs (int[N] each), int64[N].

        Raises:
            TopologyError: An index is no ToR.
        """
        src, dst = self._checked_pairs(src_tor, dst_tor)
        return self.climbs.path_counts(src, dst)

    def _checked_pairs(
        self, src_tor: npt.NDArray[np.integer], dst_tor: npt.NDArray[np.integer]
    ) -> tuple[IntArray, IntArray]:
        src, dst = np.asarray(src_tor), np.asarray(dst_tor)
        if src.shape != dst.shape or src.ndim != 1:
            raise TopologyError("src_tor and dst_tor must be arrays of one dimension and length")
        for tor in (src, dst):
            if len(tor) and (tor.min() < 0 or tor.max() >= self.n_tors):
                raise TopologyError(f"{self.title} has ToRs 0 to {self.n_tors - 1}")
        return src.astype(np.int32), dst.astype(np.int32)


_NUMBER = re.compile(r"[A-Za-z]+([0-9]+(?:_[0-9]+)*)")


def leaf_spine(leaves: int, spines: int, *, oversubscription: float = 1.0) -> Fabric:
    """Return a fabric of two tiers in which every leaf is linked to every spine.

    Args:
        oversubscription: Hosts of a leaf for each of its uplinks.

    Raises:
        TopologyError: A number makes no sense.

    >>> fabric = leaf_spine(4, 2, oversubscription=3)
    >>> fabric.n_switches, fabric.n_links, fabric.n_hosts
    (6, 16, 24)
    >>> [path.tolist() for path in fabric.path_sets(np.array([0]), np.array([1])).paths]
    [[0, 5], [2, 7]]
    """
    _at_least_one(leaves=leaves, spines=spines)
    leaf, spine = _product(leaves, spines)
    return Fabric(
        [f"leaf{i}" for i in range(leaves)] + [f"spine{i}" for i in range(spines)],
        np.repeat([0, 1], [leaves, spines]),
        leaf,
        leaves + spine,
        hosts_per_tor=_hosts(spines, oversubscription),
        title=f"a leaf-spine of {leaves} leaves and {spines} spines",
    )


def clos(
    pods: int,
    tors: int,
    aggs: int,
    cores: int,
    *,
    oversubscription: float = 1.0,
    wiring: Literal["planes", "complete"] = "planes",
) -> Fabric:
    """Return a fabric of three tiers: pods of ToRs and aggregation switches, and core switches.

    In a pod, every ToR is linked to every aggregation switch.

    Args:
        pods: The number of pods.
        tors, aggs: Switches of a pod. ``clos(k, k // 2, k // 2, k**2 // 4)`` is the fat-tree.
        cores: Core switches in all.
        oversubscription: Hosts of a ToR for each of its uplinks.
        wiring: With ``"planes"`` the i-th aggregation switch of each pod is linked to the i-th
            ``cores / aggs`` core switches (Al-Fares et al.); with ``"complete"`` to all of them
            (007, appendix C).

    Raises:
        TopologyError: A number makes no sense, or ``cores`` is no multiple of ``aggs``.

    >>> fabric = clos(pods=4, tors=2, aggs=2, cores=4)  # the fat-tree of K=4
    >>> fabric.n_switches, fabric.n_links, fabric.n_hosts
    (20, 64, 16)
    >>> fabric.path_counts(np.array([0, 0]), np.array([1, 7])).tolist()  # in a pod, between pods
    [2, 4]
    """
    _at_least_one(pods=pods, tors=tors, aggs=aggs, cores=cores)
    if wiring not in ("planes", "complete"):
        raise TopologyError(f"wiring={wiring!r} is unknown: use planes or complete")
    if wiring == "planes" and cores % aggs:
        raise TopologyError(
            f"cores={cores} is not a multiple of aggs={aggs}: every plane needs as many core "
            "switches"
        )
    n_tors, n_aggs = pods * tors, pods * aggs
    tor, nth = _product(n_tors, aggs)
    agg, core = _product(n_aggs, cores if wiring == "complete" else cores // aggs)
    if wiring == "planes":
        core += agg % aggs * (cores // aggs)
    return Fabric(
        [f"tor{p}_{i}" for p in range(pods) for i in range(tors)]
        + [f"agg{p}_{i}" for p in range(pods) for i in range(aggs)]
        + [f"core{c}" for c in range(cores)],
        np.repeat([0, 1, 2], [n_tors, n_aggs, cores]),
        np.concatenate((tor, n_tors + agg)),
        np.concatenate((n_tors + tor // tors * aggs + nth, n_tors + n_aggs + core)),
        hosts_per_tor=_hosts(aggs, oversubscription),
        title=f"a Clos of {pods} pods ({tors} ToRs, {aggs} aggregation switches), {cores} cores",
    )


def _hosts(uplinks: int, oversubscription: float) -> int:
    if not 0 < oversubscription <= 1000:
        raise TopologyError(f"oversubscription={oversubscription} is out of range: use 1, 3, ...")
    return max(1, round(oversubscription * uplinks))


def _at_least_one(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise TopologyError(f"{name}={number}: at least 1 is needed")


def _product(n: int, m: int) -> tuple[IntArray, IntArray]:
    """Return all pairs of 0..n-1 and 0..m-1, int32[n * m] each; the second varies fastest."""
    first, second = np.divmod(np.arange(n * m, dtype=np.int32), np.int32(m))
    return first, second


def _interleave(up: npt.NDArray[np.integer], down: npt.NDArray[np.integer]) -> IntArray:
    return np.stack((up, down), axis=1).reshape(-1).astype(np.int32)
