"""Flock's probabilistic model (its section 3.2) as arrays: components, path sets, likelihoods.

A flow takes one of w possible paths. Under a hypothesis (a set of failed components, links and
devices) b of them are bad, and equation 1 says

    P = (1 - b/w) pg^r (1-pg)^(t-r) + (b/w) pb^r (1-pb)^(t-r).

Relative to the no-failure hypothesis its logarithm is ln(1 - b/w + (b/w) e^s) with the flow's
score s = r ln(pb/pg) + (t-r) ln((1-pb)/(1-pg)), which does not overflow however many packets a
flow has. Flows with the same set of possible paths have the same b under every hypothesis: they are
one *group*, whose log-likelihood is a table over b, the exact sum of equation 1 over its flows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.telemetry import Flows, Probes
from testbed.fabric import Fabric
from testbed.pair_sets import PairSets
from testbed.paths import Paths, PathSets

__all__ = ["FlockModel", "build_model", "flow_table"]

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FlockModel:
    """Groups of flows over path sets over components.

    Group g's paths are ``group_ptr[g]:group_ptr[g + 1]``; path p consists of the components
    ``components[path_ptr[p]:path_ptr[p + 1]]``; component c occurs in the groups
    ``groups[component_ptr[c]:component_ptr[c + 1]]``. ``table[table_ptr[g] + b]`` is group g's
    log-likelihood with b bad paths, relative to none. ``prior`` float64[n_components] is the
    log-odds of a component's failure.
    """

    group_ptr: LongArray
    path_ptr: LongArray
    components: IntArray
    component_ptr: LongArray
    groups: IntArray
    table_ptr: LongArray
    table: FloatArray
    prior: FloatArray

    @property
    def n_components(self) -> int:
        return len(self.prior)

    @property
    def n_groups(self) -> int:
        return len(self.group_ptr) - 1

    @classmethod
    def of(
        cls,
        group_ptr: LongArray,
        path_ptr: LongArray,
        components: IntArray,
        table_ptr: LongArray,
        table: FloatArray,
        prior: FloatArray,
    ) -> FlockModel:
        """Complete the model with the groups of each component."""
        path_group = np.repeat(np.arange(len(group_ptr) - 1), np.diff(group_ptr))
        entry_group = np.repeat(path_group, np.diff(path_ptr))
        n_groups = max(len(group_ptr) - 1, 1)
        pair = np.unique(components.astype(np.int64) * n_groups + entry_group)
        per_component = np.bincount(pair // n_groups, minlength=len(prior))
        component_ptr = np.concatenate(([0], np.cumsum(per_component))).astype(np.int64)
        return cls(
            group_ptr,
            path_ptr,
            components,
            component_ptr,
            (pair % n_groups).astype(np.int32),
            table_ptr,
            table,
            prior,
        )


def flow_table(
    group: LongArray,
    width: LongArray,
    sent: LongArray,
    lost: LongArray,
    p_bad: FloatArray,
    p_good: FloatArray,
) -> tuple[LongArray, FloatArray]:
    """The log-likelihood table of each group: ``table_ptr`` int64[G + 1] and ``table``.

    Args:
        group: The group of each flow, int64[F].
        width: The number of possible paths of each group, int64[G].
        sent, lost: Packets of each flow, int64[F].
        p_bad, p_good: Loss on a bad and on a good path, in (0, 1), of each group, float64[G].
    """
    table_ptr = np.concatenate(([0], np.cumsum(width + 1))).astype(np.int64)
    table = np.zeros(int(table_ptr[-1]))
    # Equal flows of a group are counted, not repeated. All of a group share p_bad and p_good.
    distinct, times = np.unique(np.stack((group, sent, lost), axis=1), axis=0, return_counts=True)
    group, sent, lost = distinct.T
    per_lost, per_arrived = np.log(p_bad / p_good), np.log1p(-p_bad) - np.log1p(-p_good)
    score = lost * per_lost[group] + (sent - lost) * per_arrived[group]
    for bad in range(1, int(width.max(initial=0)) + 1):
        at = np.flatnonzero(width[group] >= bad)
        share = bad / width[group[at]]
        with np.errstate(divide="ignore"):
            value = np.logaddexp(np.log1p(-share), np.log(share) + score[at])
        np.add.at(table, table_ptr[group[at]] + bad, times[at] * value)
    return table_ptr, table


def build_model(
    topology: Fabric,
    flows: Flows | None,
    probes: Probes | None,
    *,
    passive_loss: tuple[float, float],
    probe_loss: tuple[float, float],
    link_prior: float,
    device_prior: float,
    undirected: bool,
) -> FlockModel:
    """The model of passive flows and probes together.

    Components are the directed links (or, ``undirected``, the links), then the switches. A
    passive flow has its path set; a probe's is its one path. ``passive_loss`` and
    ``probe_loss`` are the pairs (p_bad, p_good) of either kind.
    """
    shift = 1 if undirected else 0
    n_links = topology.n_links >> shift
    parts: list[PathSets] = []
    groups: list[LongArray] = []
    columns: list[tuple[LongArray, LongArray]] = []
    loss: list[npt.NDArray[np.float64]] = []
    n_groups = 0
    if flows is not None:
        listed = flows.sets.expanded() if isinstance(flows.sets, PairSets) else flows.sets
        on_fabric = listed.n_entries > 0
        used = np.flatnonzero((flows.sent > 0) & on_fabric[flows.path_set])
        distinct, group = np.unique(flows.path_set[used], return_inverse=True)
        parts.append(listed.take(distinct))
        groups.append(group)
        columns.append((flows.sent[used], flows.lost[used]))
        n_groups = len(distinct)
        loss.append(np.tile(passive_loss, (n_groups, 1)))
    if probes is not None:
        usable = np.flatnonzero((probes.sent > 0) & (probes.paths.length > 0))
        rows = probes.paths.take(usable).padded()
        distinct, group = np.unique(rows, axis=0, return_inverse=True)
        parts.append(PathSets.known(Paths.from_padded(distinct)))
        loss.append(np.tile(probe_loss, (len(distinct), 1)))
        groups.append(n_groups + group.reshape(-1))
        columns.append((probes.sent[usable], probes.lost[usable]))
    sets = PathSets.join(parts)
    components, path_ptr = _components(sets.paths, topology, n_links, shift)
    p_bad, p_good = np.concatenate([np.zeros((0, 2)), *loss]).T
    sent, lost = _join([c[0] for c in columns]), _join([c[1] for c in columns])
    table_ptr, table = flow_table(_join(groups), sets.width, sent, lost, p_bad, p_good)
    prior = np.concatenate(
        (np.full(n_links, link_prior), np.full(topology.n_switches, device_prior))
    )
    return FlockModel.of(sets.ptr, path_ptr, components, table_ptr, table, prior)


def _components(
    paths: Paths, topology: Fabric, n_links: int, shift: int
) -> tuple[IntArray, LongArray]:
    """Links and switches of every path, each once: the CSR arrays ``components``, ``path_ptr``."""
    n = n_links + topology.n_switches
    owner = paths.owner.astype(np.int64) * n
    both = (n_links + topology.link_src[paths.links], n_links + topology.link_dst[paths.links])
    pair = np.unique(np.concatenate([owner + c for c in (paths.links >> shift, *both)]))
    path_ptr = np.searchsorted(pair // n, np.arange(len(paths) + 1)).astype(np.int64)
    return (pair % n).astype(np.int32), path_ptr


def _join(parts: list[LongArray]) -> LongArray:
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
