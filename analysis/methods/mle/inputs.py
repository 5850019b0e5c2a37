# SPDX-License-Identifier: Apache-2.0
"""The observations that mle explains: the chosen kinds of telemetry, with flows of known and of
hidden paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.methods.mle.black_holes import as_trials, connections_as_trials, die_whole
from analysis.methods.mle.hidden import GIVEN, HiddenFlows, PairFlows, sum_up
from analysis.methods.mle.problem import Observed, Units, observe, over_units
from analysis.methods.mle.round_trips import over_all_ways
from analysis.methods.mle.traced import Traces
from analysis.methods.netbouncer import PATH_PROBES
from analysis.telemetry.silence import Scarce
from analysis.telemetry.telemetry import Flows, MissingTelemetry, Probes, RoundTrips, Telemetry
from testbed.arrays import BoolArray, FloatArray, LongArray
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import PathSets

KINDS = ("segments", "A1", "A2", "P", "INT", "detector", "roundtrip")
"""Canary's segments, deTector's probes, and Flock's kinds (its section 6.2): A1, probes; A2, flows
that lost packets, with the path traced; P, all flows with their possible paths; INT, all flows with
the path each took; and pings there and back on hidden paths, which are read alone."""


VIEWS: Mapping[str, Sequence[str]] = {
    "segments": ("segments",),
    "A1": ("probes",),
    "A2": ("connections", "flows"),
    "P": ("flows",),
    "INT": ("flows",),
    "detector": ("detector",),
    "roundtrip": ("roundtrips",),
}
"""The parts of a telemetry that each kind reads."""


def chosen_kinds(kinds: str | None) -> frozenset[str] | None:
    """Return the kinds in a list such as ``A1+A2+P``; None stands for the default of
    `chosen_parts`.

    Raises:
        UserError: A kind is unknown.
    """
    if kinds is None:
        return None
    found = kinds.split("+")
    for kind in found:
        if kind not in KINDS:
            raise UserError(f"kind {kind!r} is unknown: use {', '.join(KINDS)}, joined by +")
    return frozenset(found)


@dataclass(frozen=True)
class Parts:
    """The parts of a run's telemetry that mle reads.

    Attributes:
        used: Kinds, of `KINDS`.
        known: Observations whose path is known.
        flows: The flow records, if they are read.
        parts: The parts that were read, by name, without segments.
        watched: The pairs of ToRs between which hosts watched connections, if known.
        share: Of round trips, the share of a row's packets that cross each link,
            float64[n_links]; None if others are read.
        scarce: Links that are silent in part, if they are evidence.
    """

    used: frozenset[str]
    known: list[Observed]
    flows: FlowParts | None
    parts: Mapping[str, Probes | Flows | RoundTrips]
    watched: PairSets | None
    share: FloatArray | None = None
    scarce: Scarce | None = None


def chosen_parts(telemetry: Telemetry, kinds: frozenset[str] | None, method: str) -> Parts:
    """Return the observations of some kinds. By default these are all that were measured over known
    paths: segments, probes, and flow records if each has its path. Flows with hidden paths take
    long and are read only if a kind asks for them.

    Segments and flow records count the same packets. If both are read, each has half its weight, so
    that no packet counts twice.

    Raises:
        MissingTelemetry: A kind was not measured, or nothing was.
    """

    def wanted(kind: str, name: str) -> bool:
        """Return True if the part ``name`` is to be read as this kind of telemetry. Raise
        MissingTelemetry if the kind is asked for and was not measured."""
        there = getattr(telemetry, name) is not None
        if kinds is None:
            return there
        if kind in kinds and not there:
            raise telemetry.lacks(name, method)
        return kind in kinds

    used, known, parts = set(), [], {}
    reads_flows = any(wanted(kind, "flows") for kind in ("A2", "P", "INT"))
    records, trials = _records(telemetry, kinds, method) if reads_flows else (None, False)
    for kind, name in (("A1", "probes"), ("detector", "detector")):
        if wanted(kind, name):
            parts[name] = part = getattr(telemetry, name)
            used.add(kind)
            known.append(_observed(part, trials))
    metered, flows = wanted("segments", "segments"), None
    if records is not None:
        weight = 0.5 if metered and len(records) else 1.0
        found = chosen_flows(telemetry.topology, records, kinds, weight, trials=trials)
        if found.kinds:
            flows, parts["flows"] = found, records
            used |= flows.kinds
            known.append(flows.known)
    if metered:
        used.add("segments")
        counts = telemetry.need("segments", method)
        weight = 1.0 if flows is None or not len(parts["flows"]) else 0.5
        sums = [weight * count.sum(axis=0) for count in (counts.sent, counts.lost)]
        known.append(Observed(counts.segments.paths, *sums))
    trips = kinds is not None and "roundtrip" in kinds
    if trips and used:
        raise MissingTelemetry(f"{method} reads the kind roundtrip alone: name no other beside it")
    if trips or (not used and kinds is None and telemetry.roundtrips is not None):
        pings = telemetry.need("roundtrips", method)
        observed, share = over_all_ways(pings, telemetry.topology)
        read = {"roundtrips": pings}
        return Parts(frozenset({"roundtrip"}), [observed], None, read, None, share)
    if not used:
        raise MissingTelemetry(
            f"{method} needs one of the telemetry parts 'segments', 'flows' with paths, 'probes', "
            "'detector' and 'roundtrips': all are missing"
        )
    watched = None if telemetry.connections is None else telemetry.connections.watched
    return Parts(frozenset(used), known, flows, parts, watched)


def _records(telemetry: Telemetry, kinds: frozenset[str] | None, method: str) -> tuple[Flows, bool]:
    """Return the flow records, and whether each flow is one trial because whole flows are lost."""
    records = telemetry.need("flows", method)
    chosen = (kinds or frozenset()) & {"A2", "P", "INT"}
    traced = telemetry.connections if "A2" in chosen else None
    if not chosen or "INT" in chosen or not die_whole(records, traced):
        return records, False
    if "P" in chosen:
        return as_trials(records, traced), True
    if traced is None:
        return records, False
    return connections_as_trials(telemetry.topology, traced), True


def _observed(probes: Probes, trials: bool) -> Observed:
    """Return the probes of each path: packet by packet or, with ``trials``, each hundred as one
    trial, of which the share fails that was lost."""
    sent, lost = probes.sent.astype(np.float64), probes.lost.astype(np.float64)
    if trials:
        number = np.where(sent > 0, np.maximum(np.rint(sent / PATH_PROBES), 1.0), 0.0)
        sent, lost = number, np.rint(number * lost / np.maximum(sent, 1.0))
    return Observed(probes.paths, sent, lost)


@dataclass(frozen=True)
class FlowParts:
    """Flow records in the form in which they are explained.

    Attributes:
        kinds: Of `analysis.methods.mle.inputs.KINDS`.
        known: The flows of a known path.
        pairs: Flows between pairs of ToRs, None if their paths are listed in ``sets``.
        sets: The sets of possible paths of the other flows.
        set_of: The set of each of these, int64[F].
        arrived, lost: Their packets, float64[F], see `HiddenFlows`.
        weight: Of each flow.
        trials: Whether each flow is read as one packet (`analysis.methods.mle.black_holes`).
    """

    kinds: frozenset[str]
    known: Observed
    pairs: PairFlows | None
    sets: PathSets
    set_of: LongArray
    arrived: FloatArray
    lost: FloatArray
    weight: float
    trials: bool

    @property
    def lossy(self) -> bool:
        """Return True if a flow with a hidden path lost packets."""
        return bool((self.lost > 0).any() or (self.pairs is not None and self.pairs.lost.any()))

    def used_sets(self) -> PathSets:
        """Return the path sets of flows with hidden paths that are listed, without ``pairs``."""
        return self.sets.take(np.flatnonzero(np.bincount(self.set_of)))

    def at_most(self, units: Units) -> tuple[FloatArray, FloatArray]:
        """Return for each unit, from the flows with hidden paths, all packets that may have been
        lost there, and (of ``pairs``) the packets that arrived over it if all paths were taken
        equally: float64[U] each."""
        lost, arrived = np.zeros(len(units.size)), np.zeros(len(units.size))
        observed = units.of_link >= 0
        if self.pairs is not None:
            over = np.bincount(
                units.of_link[observed], self.pairs.arrivals()[observed], len(arrived)
            )
            arrived += over / units.size
        number, set_of = np.unique(self.set_of, return_inverse=True)
        each = self.weight * np.bincount(
            set_of.reshape(-1), np.maximum(self.lost, 0.0), len(number)
        )
        lossy = np.flatnonzero(each)
        sets = self.sets.take(number[lossy])
        owner = sets.owner[sets.paths.owner].astype(np.int64)
        pair = np.unique(owner * len(units.size) + units.of_link[sets.paths.links])
        owner, unit = np.divmod(pair, max(len(units.size), 1))
        return lost + np.bincount(unit, each[lossy][owner], len(lost)), arrived

    def traces(self, fabric: Fabric, units: Units) -> Traces:
        """Return the flows with a known path, and what their traces needed to be answered."""
        one = np.full(len(self.known.lost), self.weight)
        into = np.zeros(len(units.size), np.int32)
        observed = np.flatnonzero(units.of_link >= 0)
        into[units.of_link[observed]] = fabric.link_dst[observed]
        reports = observe([Observed(self.known.paths, one, one)], units)
        return Traces(reports, units.other_direction(), into)


def chosen_flows(
    fabric: Fabric,
    flows: Flows,
    kinds: frozenset[str] | None,
    weight: float,
    *,
    trials: bool = False,
) -> FlowParts:
    """Return the flow records of some kinds; without kinds, all of them as they are.

    With P alone every flow may have taken any path between its ToRs. With A2, a flow that lost
    packets has the path that was traced. A lossy flow without a trace is left out, and the weight
    of loss-free flows is reduced by the same share, so that rates stay the same. If only flows that
    lost packets are reported, each is scored given that it lost some.

    Of ``trials`` (see `analysis.methods.mle.black_holes`) none is left out: where flows die whole
    so do their traces.

    Raises:
        MissingTelemetry: The records are not of these kinds.
    """
    sets, n_pairs = flows.listed, len(flows.sets) - len(flows.listed)
    some, one = np.ones((2, len(flows.sets)), np.bool_)
    some[n_pairs:], one[n_pairs:] = sets.n_entries > 0, sets.width == 1
    one[:n_pairs] = False
    if isinstance(flows.sets, PairSets):
        some[:n_pairs] = flows.sets.src_tor != flows.sets.dst_tor  # not within a rack
    row = np.flatnonzero((flows.sent > 0) & some[flows.path_set])
    set_of, sent, lost = flows.path_set[row].astype(np.int64), flows.sent[row], flows.lost[row]
    known, lossy = one[set_of], lost > 0
    kinds = _kinds(known, lossy) if kinds is None else kinds & {"A2", "P", "INT"}
    if "INT" in kinds and not known.all():
        raise MissingTelemetry("INT needs the path of every flow, but some flows have none")
    if "A2" in kinds and lossy.any() and not (known & lossy).any() and not trials:
        raise MissingTelemetry(
            "A2 needs traced paths of flows that lost packets, but there are none"
        )
    if len(lost) and lossy.all() and known.all() and kinds:
        kinds = frozenset({"A2"})
    hides = kinds == {"P"}  # even paths that were traced
    untraced = lossy & ~known & trials
    taken = np.flatnonzero(known & (lossy | ("INT" in kinds)) & bool(kinds) & (not hides))
    paths = sets.paths.take(sets.ptr[set_of[taken] - n_pairs])
    packets = [weight * count[taken].astype(np.float64) for count in (sent, lost)]
    observed = Observed(paths, *packets)
    only_lossy = kinds == {"A2"}
    hidden = ~lossy | hides | untraced
    hidden &= "P" in kinds and "INT" not in kinds
    rest = np.flatnonzero(lossy & (known | trials) if only_lossy else hidden)
    traced = weight
    if lossy.any() and not only_lossy and not hides and not trials:
        traced *= (known & lossy).sum() / lossy.sum()
    pairs = None
    if (
        isinstance(flows.sets, PairSets)
        and (set_of[rest] < n_pairs).any()
        and (ecmp := flows.sets.climbs()) is not None
    ):
        free = rest[set_of[rest] < n_pairs] if not only_lossy else rest[:0]
        rest = rest[set_of[rest] >= n_pairs]
        ends = flows.sets.src_tor, flows.sets.dst_tor
        got, gone = ((count[free]).astype(np.float64) for count in (sent - lost, lost))
        pairs = PairFlows(ecmp, *ends, set_of[free], got, gone, float(traced))
    counts = (sent - lost)[rest].astype(np.float64), lost[rest].astype(np.float64)
    sets, at = _by_pair(fabric, flows.sets, set_of[rest], only_lossy)
    if only_lossy:
        counts = sent[rest].astype(np.float64), np.full(len(rest), GIVEN)
        broken = np.flatnonzero(untraced)
        at = np.concatenate((at, len(sets) + np.arange(len(broken))))
        sets = PathSets.join([sets, flows.listed.take(set_of[broken] - n_pairs)])
        both = (np.zeros(len(broken)), lost[broken].astype(np.float64))
        counts = np.concatenate((counts[0], both[0])), np.concatenate((counts[1], both[1]))
    return FlowParts(kinds, observed, pairs, sets, at, *counts, float(traced), trials)


def _kinds(known: BoolArray, lossy: BoolArray) -> frozenset[str]:
    """Return the kinds that are read by default: INT if all flows have a known path, or none."""
    return frozenset({"INT"} if known.all() and not lossy.all() else ())


def _by_pair(
    fabric: Fabric, sets: PathSets | PairSets, path_set: LongArray, every_set: bool
) -> tuple[PathSets, LongArray]:
    """Return the sets that flows use, and the set of each flow among these. One of a single path,
    or ``every_set``, becomes that of all equal-cost paths of its two ends, where these are ToRs
    that it could be between. ``path_set`` is the set of each flow in ``sets``."""
    number, path_set = np.unique(path_set, return_inverse=True)
    path_set = path_set.reshape(-1).astype(np.int64)
    if isinstance(sets, PairSets):
        n_pairs = len(sets.src_tor)
        pair, listed = number[number < n_pairs], number[number >= n_pairs] - n_pairs
        pairs = fabric.path_sets(sets.src_tor[pair], sets.dst_tor[pair])
        sets = PathSets.join([pairs, sets.listed.take(listed)])
    else:
        sets = sets.take(number)
    single = np.flatnonzero((sets.width == 1) | (every_set & (sets.n_entries > 0)))
    path = sets.ptr[single]
    ptr, links = sets.paths.ptr, sets.paths.links
    src, dst = fabric.link_src[links[ptr[path]]], fabric.link_dst[links[ptr[path + 1] - 1]]
    ends = (src < fabric.n_tors) & (dst < fabric.n_tors) & (src != dst)
    single, path, src, dst = single[ends], path[ends], src[ends], dst[ends]
    pair, nth = np.unique(src.astype(np.int64) * fabric.n_tors + dst, return_inverse=True)
    src, dst = (end.astype(np.int32) for end in np.divmod(pair, fabric.n_tors))
    every = fabric.path_sets(src, dst)
    hops = np.append(every.paths.length, 0)[np.minimum(every.ptr[:-1], len(every.paths))]
    could = (every.width > 0)[nth] & (hops[nth] == (ptr[path + 1] - ptr[path]))
    new = np.arange(len(sets))
    new[single[could]] = len(sets) + nth.reshape(-1)[could]
    return PathSets.join([sets, every]), new[path_set]


def hidden_flows(parts: FlowParts, units: Units, candidate: BoolArray) -> HiddenFlows | None:
    """Return the flows with hidden paths over units, equal ones merged; None if there are none.

    Of ``parts.pairs`` only pairs are included with a path over a unit that may be blamed
    (``candidate``, bool[U]).
    """
    sets = parts.used_sets()
    _, set_of = np.unique(parts.set_of, return_inverse=True)
    set_of = set_of.reshape(-1).astype(np.int64)
    alike = sum_up(len(sets), set_of, parts.arrived, parts.lost, parts.weight)
    path_ptr, over = over_units(sets.paths, units)
    hops = np.bincount(sets.owner, sets.paths.length, len(sets)) / np.maximum(sets.width, 1)
    one = np.ones(len(sets.paths), np.float32)
    listed = HiddenFlows(sets.ptr, path_ptr.astype(np.int32), over, one, *alike, hops)
    return HiddenFlows.join(
        [listed] + ([] if parts.pairs is None else [parts.pairs.over(units, candidate)])
    )
