"""Flock's probabilistic model (its section 3.2) as arrays: components, path sets, likelihoods.

A flow takes one of w possible paths. Under a hypothesis (a set of failed components, links and
devices) b of them are bad, and equation 1 says

    P = (1 - b/w) pg^r (1-pg)^(t-r) + (b/w) pb^r (1-pb)^(t-r).

Relative to the no-failure hypothesis its logarithm is ln(1 - b/w + (b/w) e^s) with the flow's
score s = r ln(pb/pg) + (t-r) ln((1-pb)/(1-pg)), which does not overflow however many packets a
flow has. Flows with the same set of possible paths have the same b under every hypothesis: they are
one *group* (`analysis.methods.flock.likelihood` has the two kinds).

Where all flows lost packets, only such flows were reported (telemetry A2), and those of a known
path are scored given that they did: s less ln((1 - (1-pb)^t) / (1 - (1-pg)^t)). The paper leaves
that out and makes up for it with a small prior, which has to suit the number of flows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from analysis.methods.flock.likelihood import FlowValues, Listed, Pairs, accumulate
from analysis.solvers.parts import in_parts
from analysis.telemetry.telemetry import Flows, Probes
from testbed.fabric.clos import Fabric, TopologyError
from testbed.fabric.compiled import njit
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import Paths, PathSets

__all__ = ["FlockModel", "Loss", "build_model"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

MEMO_SLOTS = 1 << 26
"""Values remembered of all groups with more than one path, at least 16 of each: up to 800 MB."""


@dataclass(frozen=True)
class Loss:
    """Loss on a bad and on a good path, in (0, 1): of flows whose path is known, and of others."""

    known: tuple[float, float]
    hidden: tuple[float, float]


@dataclass(frozen=True)
class FlockModel:
    """Groups of flows over components: links (directed or not), then switches.

    Attributes:
        listed, pairs: The groups, in the state of no failure.
        prior: Log-odds of each component's failure, float64[n_components].
        n_links: How many components are links; the others are switches.
        ends: The components of each link's two switches, int32[n_links, 2]; of no rows where
            switches are no components.
        undirected: A link stands for both its directions.
    """

    listed: Listed
    pairs: Pairs
    prior: FloatArray
    n_links: int
    ends: IntArray
    undirected: bool = False

    @property
    def n_components(self) -> int:
        return len(self.prior)

    @property
    def n_groups(self) -> int:
        return len(self.listed.bad) + len(self.pairs.bad)

    def without_pairs(self) -> FlockModel:
        """The same model of the listed groups alone."""
        return replace(self, pairs=_no_pairs(self.n_components))

    @classmethod
    def of(
        cls,
        sets: PathSets,
        path_set: LongArray,
        sent: LongArray,
        lost: LongArray,
        loss: Loss,
        prior: FloatArray,
    ) -> FlockModel:
        """A model over any components: ``sets`` are paths of components, each once in a path.

        ``path_set``, ``sent`` and ``lost`` are int64[F], one of each flow.
        """
        values = _flow_values(path_set, sets.width, sent, lost, loss)
        listed = _listed(sets.ptr, sets.paths.ptr, sets.paths.links, values, len(prior))
        ends = np.zeros((0, 2), np.int32)
        return cls(listed, _no_pairs(len(prior)), prior, len(prior), ends)

    def indistinguishable(self) -> IntArray:
        """The class of each link: int32[n_links].

        Two links are alike when in every group equally many paths use the one and the other: then
        no loss whatever could tell them apart. (Flipping them is compared on random likelihoods.)
        """
        failed = np.zeros(self.n_components, np.bool_)
        bits = 52 - self.n_groups.bit_length()  # so that sums are exact
        sums = []
        for seed in (1, 2):
            listed = self.listed._replace(values=self.listed.values._replace(seed=seed, bits=bits))
            pairs = self.pairs._replace(values=self.pairs.values._replace(seed=seed, bits=bits))
            sums.append(accumulate(listed, pairs, failed)[: self.n_links])
        _, number = np.unique(np.stack(sums), axis=1, return_inverse=True)
        return number.reshape(-1).astype(np.int32)


def build_model(
    topology: Fabric,
    flows: Flows | None,
    probes: Probes | None,
    *,
    loss: Loss,
    link_prior: float,
    device_prior: float,
    undirected: bool,
    listed: bool = False,
) -> FlockModel:
    """The model of passive flows and probes together; a probe's path is known.

    With ``listed`` the paths of pairs of ToRs are listed too, as some searches need it.

    Raises:
        ValueError: A flow is between ToRs that no path joins.
    """
    shift = 1 if undirected else 0
    n_links = topology.n_links >> shift
    prior = np.concatenate(
        (np.full(n_links, link_prior), np.full(topology.n_switches, device_prior))
    )
    ecmp = None if listed else _ecmp(flows)
    if flows is not None and isinstance(flows.sets, PairSets) and ecmp is None:
        flows = Flows(flows.sets.expanded(), flows.path_set, flows.sent, flows.lost)
    sets, path_set, counts, given_loss = _listed_flows(flows, probes)
    group, first = _equal_sets(sets)
    if len(first) < len(sets):
        sets = sets.take(first)
    path_ptr, components = _path_components(topology, sets.paths, shift, n_links)
    values = _flow_values(group[path_set], sets.width, *counts, loss, given_loss)
    groups = _listed(sets.ptr, path_ptr, components, values, len(prior))
    pairs = _no_pairs(len(prior))
    if flows is not None and ecmp is not None:
        pairs = _pairs(ecmp, flows, shift, n_links, loss)
    up = np.arange(0, topology.n_links, 1 << shift)
    ends = np.stack((topology.link_src[up], topology.link_dst[up]), axis=1) + n_links
    return FlockModel(groups, pairs, prior, n_links, ends.astype(np.int32), undirected)


# ---- listed groups ---------------------------------------------------------------------------


def _ecmp(flows: Flows | None) -> Ecmp | None:
    """The climbs of the flows' fabric, if they are what `Pairs` is made for: one to each top."""
    if flows is None or not isinstance(flows.sets, PairSets):
        return None
    try:
        ecmp = Ecmp(flows.sets.fabric)
    except TopologyError:  # a link skips a tier, or there are ToRs that no path joins
        return None
    return ecmp if ecmp.count.max(initial=0) <= 1 else None


def _listed_flows(
    flows: Flows | None, probes: Probes | None
) -> tuple[PathSets, LongArray, tuple[LongArray, LongArray], BoolArray]:
    """The sets in use of flows and probes, and of each flow its set, packets sent and lost.

    Also whether it was reported because it lost packets, bool[F].
    """
    sets: list[PathSets] = []
    path_set: list[LongArray] = []
    counts: list[tuple[LongArray, LongArray]] = []
    if flows is not None:
        nth = flows.path_set.astype(np.int64) - (len(flows.sets) - len(flows.listed))
        some = (flows.sent > 0) & (nth >= 0)
        some[some] = flows.listed.n_entries[nth[some]] > 0
        flow = np.flatnonzero(some)
        part, number = _used(flows.listed, nth[flow])
        sets.append(part)
        path_set.append(number)
        counts.append((flows.sent[flow], flows.lost[flow]))
    if probes is not None:
        probe = np.flatnonzero((probes.sent > 0) & (probes.paths.length > 0))
        path_set.append(np.arange(len(probe)) + sum(len(part) for part in sets))
        sets.append(PathSets.known(probes.paths.take(probe)))
        counts.append((probes.sent[probe], probes.lost[probe]))
    sent, lost = (_join([column[i] for column in counts]) for i in (0, 1))
    given_loss = np.zeros(len(sent), np.bool_)
    if flows is not None and (flows.lost > 0).all():
        given_loss[: len(path_set[0])] = True
    sets = sets if len(sets) == 1 else [PathSets.join(sets)]
    return sets[0], _join(path_set), (sent, lost), given_loss


def _used(sets: PathSets, path_set: LongArray) -> tuple[PathSets, LongArray]:
    """The sets in use only, and the number of each flow's among them."""
    used = np.zeros(len(sets), np.bool_)
    used[path_set] = True
    if used.all():
        return sets, path_set
    return sets.take(np.flatnonzero(used)), (np.cumsum(used) - 1)[path_set]


def _listed(
    group_ptr: LongArray,
    path_ptr: LongArray,
    components: IntArray,
    values: FlowValues,
    n_components: int,
) -> Listed:
    component_ptr, groups = _where(group_ptr, path_ptr, components, n_components)
    return Listed(
        group_ptr,
        path_ptr,
        components,
        component_ptr,
        groups,
        values,
        np.zeros(len(path_ptr) - 1, np.int32),
        np.zeros(len(group_ptr) - 1, np.int32),
    )


@njit
def _hashes(part, parts, set_ptr, path_ptr, links, out):  # pragma: no cover - compiled
    for s in range(part * len(out) // parts, (part + 1) * len(out) // parts):
        x = np.uint64(0xCBF29CE484222325)
        for p in range(set_ptr[s], set_ptr[s + 1]):
            for e in range(path_ptr[p], path_ptr[p + 1]):
                x = (x ^ np.uint64(links[e])) * np.uint64(0x9E3779B97F4A7C15)
                x ^= x >> np.uint64(29)
            x = (x ^ np.uint64(0xFFFFFFFF)) * np.uint64(0xBF58476D1CE4E5B9)
        out[s] = x ^ (x >> np.uint64(32))


@njit
def _same(a, b, set_ptr, path_ptr, links):  # pragma: no cover - compiled
    if set_ptr[a + 1] - set_ptr[a] != set_ptr[b + 1] - set_ptr[b]:
        return False
    for i in range(set_ptr[a + 1] - set_ptr[a]):
        p, q = set_ptr[a] + i, set_ptr[b] + i
        if path_ptr[p + 1] - path_ptr[p] != path_ptr[q + 1] - path_ptr[q]:
            return False
        for j in range(path_ptr[p + 1] - path_ptr[p]):
            if links[path_ptr[p] + j] != links[path_ptr[q] + j]:
                return False
    return True


def _equal_sets(sets: PathSets) -> tuple[IntArray, IntArray]:
    """The group of each set, equal sets being one, and the first set of each group."""
    hashes = np.empty(len(sets), np.uint64)
    in_parts(len(sets), _hashes, sets.ptr, sets.paths.ptr, sets.paths.links, hashes)
    return _distinct(hashes, sets.ptr, sets.paths.ptr, sets.paths.links)


@njit
def _distinct(hashes, set_ptr, path_ptr, links):  # pragma: no cover - compiled
    n = len(set_ptr) - 1
    size = 16
    while size < 2 * n:
        size *= 2
    slots = np.full(size, -1, np.int32)
    group, first = np.empty(n, np.int32), np.empty(n, np.int32)
    n_groups = 0
    for s in range(n):
        at = np.int64(hashes[s] & np.uint64(size - 1))
        while slots[at] >= 0:
            other = first[slots[at]]
            if hashes[other] == hashes[s] and _same(other, s, set_ptr, path_ptr, links):
                break
            at = (at + 1) & (size - 1)
        if slots[at] < 0:
            slots[at] = n_groups
            first[n_groups] = s
            n_groups += 1
        group[s] = slots[at]
    return group, first[:n_groups]


@njit
def _collect(p, path_ptr, links, shift, src, dst, n_links, out):  # pragma: no cover - compiled
    """Write path p's components, each once; returns how many there are."""
    n = 0
    for e in range(path_ptr[p], path_ptr[p + 1]):
        link = links[e]
        for c in (link >> shift, n_links + src[link], n_links + dst[link]):
            for i in range(n):
                if out[i] == c:
                    break
            else:
                out[n] = c
                n += 1
    return n


@njit
def _collect_part(
    part, parts, path_ptr, links, shift, src, dst, n_links, count
):  # pragma: no cover - compiled
    """The components of a part of the paths, one after another, and the ``count`` of each path."""
    n = len(path_ptr) - 1
    first, last = part * n // parts, (part + 1) * n // parts
    out = np.empty(3 * (path_ptr[last] - path_ptr[first]), np.int32)
    at = 0
    for p in range(first, last):
        count[p] = _collect(p, path_ptr, links, shift, src, dst, n_links, out[at:])
        at += count[p]
    return out[:at]


def _path_components(
    topology: Fabric, paths: Paths, shift: int, n_links: int
) -> tuple[LongArray, IntArray]:
    """Links and switches of every path: the CSR arrays ``path_ptr`` and ``components``."""
    count = np.zeros(len(paths), np.int64)
    ends = topology.link_src, topology.link_dst
    parts = in_parts(
        len(paths), _collect_part, paths.ptr, paths.links, shift, *ends, n_links, count
    )
    return _pointers(count), np.concatenate(parts)


@njit
def _where(outer_ptr, inner_ptr, components, n_components):  # pragma: no cover - compiled
    """The groups (or lists) that each component occurs in, as CSR arrays."""
    ptr = np.zeros(n_components + 1, np.int64)
    last = np.full(n_components, -1, np.int32)
    for g in range(len(outer_ptr) - 1):
        for e in range(inner_ptr[outer_ptr[g]], inner_ptr[outer_ptr[g + 1]]):
            if last[components[e]] != g:
                last[components[e]] = g
                ptr[components[e] + 1] += 1
    ptr = np.cumsum(ptr)
    groups = np.empty(ptr[n_components], np.int32)
    free = ptr[:-1].copy()
    last[:] = -1
    for g in range(len(outer_ptr) - 1):
        for e in range(inner_ptr[outer_ptr[g]], inner_ptr[outer_ptr[g + 1]]):
            c = components[e]
            if last[c] != g:
                last[c] = g
                groups[free[c]] = g
                free[c] += 1
    return ptr, groups


# ---- flows -----------------------------------------------------------------------------------


def _flow_values(
    group: npt.NDArray[np.integer],
    width: LongArray,
    sent: LongArray,
    lost: LongArray,
    loss: Loss,
    given_loss: BoolArray | None = None,
) -> FlowValues:
    """The flows of each group with their scores; equal ones are counted, not repeated.

    Args:
        group: The group of each flow, int[F].
        width: The number of possible paths of each group, int64[G].
        sent, lost: Packets of each flow, int64[F].
        given_loss: Flows that would not have been reported without loss, bool[F].
    """
    if given_loss is None:
        given_loss = np.zeros(len(sent), np.bool_)
    per_lost, per_arrived = (
        np.array([f(*pair) for pair in (loss.known, loss.hidden)])
        for f in (lambda bad, good: np.log(bad / good), _log_survival_ratio)
    )
    score, ptr = _scores(group, width, sent, lost, per_lost, per_arrived, given_loss, *loss.known)
    count = np.zeros(len(width), np.int64)
    merged = in_parts(len(score), _merge, ptr, score, width, count)
    score, times = (np.concatenate([part[i] for part in merged]) for i in (0, 1))
    ptr = _pointers(count)
    bent = np.where(score > 0, np.exp(-np.abs(score)), np.expm1(np.minimum(score, 0)))
    most = max(16, MEMO_SLOTS >> int((width > 1).sum()).bit_length())
    slots = np.exp2(np.ceil(np.log2(np.minimum(width + 1, most)))).astype(np.int64)
    memo_ptr = _pointers(np.where(width > 1, slots, 0))
    memo_of = np.full(memo_ptr[-1], -1, np.int32)
    memo = np.empty(memo_ptr[-1])
    return FlowValues(
        ptr, score, bent, times, width.astype(np.int64), memo_ptr, memo_of, memo, 0, 0
    )


def _log_survival_ratio(bad: float, good: float) -> float:
    return np.log1p(-bad) - np.log1p(-good)


@njit
def _scores(
    group, width, sent, lost, per_lost, per_arrived, given_loss, p_bad, p_good
):  # pragma: no cover - compiled
    """The scores of all flows, sorted by group, and where each group's begin."""
    ptr = np.zeros(len(width) + 1, np.int64)
    for g in group:
        ptr[g + 1] += 1
    ptr = np.cumsum(ptr)
    free = ptr[:-1].copy()
    score = np.empty(len(group))
    for f in range(len(group)):
        g = group[f]
        hidden = 1 if width[g] > 1 else 0
        score[free[g]] = lost[f] * per_lost[hidden] + (sent[f] - lost[f]) * per_arrived[hidden]
        if given_loss[f] and not hidden:
            bad, good = np.expm1(sent[f] * np.log1p(-p_bad)), np.expm1(sent[f] * np.log1p(-p_good))
            score[free[g]] -= np.log(bad / good)
        free[g] += 1
    return score, ptr


@njit
def _merge(part, parts, ptr, score, width, count):  # pragma: no cover - compiled
    """Equal flows of a group become one; with a known path all do, as their scores add up.

    Of a part of the groups: the scores that are left and how often each occurs, one group after
    another, and the ``count`` of each group.
    """
    n = len(width)
    begin, end = part * n // parts, (part + 1) * n // parts
    left = np.empty(ptr[end] - ptr[begin])
    times = np.empty(len(left))
    at = 0
    for g in range(begin, end):
        flows = score[ptr[g] : ptr[g + 1]]
        start = at
        if width[g] == 1 and len(flows):
            left[at], times[at] = flows.sum(), 1.0
            at += 1
        else:
            flows.sort()
            for f in range(len(flows)):
                if f > 0 and flows[f] == flows[f - 1]:
                    times[at - 1] += 1.0
                else:
                    left[at], times[at] = flows[f], 1.0
                    at += 1
        count[g] = at - start
    return left[:at], times[:at]


# ---- pairs of ToRs ---------------------------------------------------------------------------


def _pairs(ecmp: Ecmp, flows: Flows, shift: int, n_links: int, loss: Loss) -> Pairs:
    """The groups of the flows whose sets are pairs of ToRs."""
    topology = ecmp.fabric
    n_components = n_links + topology.n_switches
    assert isinstance(flows.sets, PairSets)
    src, dst = flows.sets.src_tor, flows.sets.dst_tor
    of_pair = (flows.sent > 0) & (flows.path_set < len(src))
    of_pair[of_pair] = (src != dst)[flows.path_set[of_pair]]
    flow = np.flatnonzero(of_pair)
    cell = (src.astype(np.int64) * topology.n_tors + dst)[flows.path_set[flow]]
    used = np.zeros(topology.n_tors**2, np.bool_)
    used[cell] = True
    group = (np.cumsum(used) - 1)[cell]
    src, dst = np.divmod(np.flatnonzero(used), topology.n_tors)
    turn = ecmp.turn[src, dst].astype(np.int64)
    lists, climbs = _climbs(ecmp, shift, n_links)
    up, down = (turn - 1) * topology.n_tors + src, (turn - 1) * topology.n_tors + dst
    down += ecmp.top * topology.n_tors
    n_lists = 2 * ecmp.top * topology.n_tors
    both = np.concatenate((up, down))
    order = np.argsort(both, kind="stable")
    component_ptr, where = _where(
        climbs["list_ptr"], climbs["climb_ptr"], climbs["components"], n_components
    )
    pairs = _no_pairs(n_components)._replace(
        **climbs,
        **lists,
        component_ptr=component_ptr,
        lists=where,
        up=up.astype(np.int32),
        down=down.astype(np.int32),
        group_ptr=np.searchsorted(both[order], np.arange(n_lists + 1)).astype(np.int64),
        groups=(order % max(len(up), 1)).astype(np.int32),
        others=np.concatenate((down, up))[order].astype(np.int32),
        bad=np.zeros(len(up), np.int32),
    )
    width = ecmp.width[src, dst].astype(np.int64)
    values = _flow_values(group, width, flows.sent[flow], flows.lost[flow], loss)
    return pairs._replace(values=values)


def _climbs(
    ecmp: Ecmp, shift: int, n_links: int
) -> tuple[dict[str, npt.NDArray], dict[str, npt.NDArray]]:
    """The climbs to every tier, as the way up and as the way down; no two lead to one top.

    List ``(way * ecmp.top + tier - 1) * n_tors + tor``. The top belongs to the way up.
    """
    fabric = ecmp.fabric
    parts, lengths, tops = [], [], []
    for down, tier in product((0, 1), range(1, ecmp.top + 1)):
        low, high = ecmp.ptr[:, tier], ecmp.ptr[:, tier + 1]
        row = np.concatenate([np.zeros(0, np.int64), *map(np.arange, low, high)])
        links = ecmp.climbs.take(row).links.reshape(len(row), tier)
        over = n_links + fabric.link_dst[links]
        tor = n_links + ecmp.tor[row][:, None]
        over = over[:, : tier - down]
        parts.append(np.concatenate(((links ^ down) >> shift, tor, over), axis=1))
        nth = np.cumsum(fabric.tier == tier) - 1
        tops.append(nth[ecmp.end[row]])
        lengths.append(high - low)
    length = np.concatenate([np.zeros(0, np.int64), *lengths])
    top = np.concatenate([np.zeros(0, np.int64), *tops])
    size = np.concatenate([np.full(len(part), part.shape[1]) for part in parts])
    list_ptr, climb_ptr = (
        np.concatenate(([0], np.cumsum(n))).astype(np.int64) for n in (length, size)
    )
    first, last = np.zeros(len(length), np.int64), np.full(len(length), -1)
    some = length > 0
    first[some] = top[list_ptr[:-1][some]] // 64
    last[some] = top[list_ptr[1:][some] - 1] // 64
    word_ptr = _pointers(last - first + 1)
    of_list = np.repeat(np.arange(len(length)), length)
    word = word_ptr[of_list] + top // 64 - first[of_list]
    climb_at = np.full((int(word_ptr[-1]), 64), -1, np.int32)
    climb_at[word, top % 64] = np.arange(len(top))
    good = np.zeros(len(climb_at), np.uint64)
    np.bitwise_or.at(good, word, np.uint64(1) << (top % 64).astype(np.uint64))
    climbs = {
        "list_ptr": list_ptr,
        "climb_ptr": climb_ptr,
        "components": np.concatenate([part.reshape(-1) for part in parts]).astype(np.int32),
        "top": top.astype(np.int32),
        "failures": np.zeros(len(top), np.int32),
    }
    words = {
        "word_ptr": word_ptr,
        "first_word": first.astype(np.int32),
        "climb_at": climb_at,
        "good": good,
        "single": np.zeros_like(good),
    }
    return words, climbs


def _no_pairs(n_components: int) -> Pairs:
    nothing, none = np.zeros(0, np.int32), np.zeros(1, np.int64)
    bits = np.zeros(0, np.uint64)
    empty = np.zeros(0)
    values = FlowValues(
        none, empty, empty, empty, np.zeros(0, np.int64), none, nothing, empty, 0, 0
    )
    return Pairs(
        list_ptr=none,
        climb_ptr=none,
        components=nothing,
        word_ptr=none,
        first_word=nothing,
        climb_at=np.zeros((0, 64), np.int32),
        top=nothing,
        component_ptr=np.zeros(n_components + 1, np.int64),
        lists=nothing,
        up=nothing,
        down=nothing,
        group_ptr=none,
        groups=nothing,
        others=nothing,
        values=values,
        failures=nothing,
        good=bits,
        single=bits,
        bad=nothing,
    )


def _pointers(length: LongArray) -> LongArray:
    return np.concatenate(([0], np.cumsum(length))).astype(np.int64)


def _join(parts: list[LongArray]) -> LongArray:
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
