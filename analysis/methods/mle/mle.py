# SPDX-License-Identifier: Apache-2.0
"""mle: the sparse maximum-likelihood explanation of any telemetry (this project's own method).

Link i loses packets at a rate x_i = -ln(success). An observation over a known path is binomial in
its packets, with success exp(-sum of x); so the log-likelihood is concave in x, and the rates of
given links are found exactly. The rate of a healthy link follows a law whose mean is estimated
(`analysis.methods.mle.likelihood`), cut off at the loss rate from which on the user calls a link
faulty. The rate of a blamed link is free, but blaming it costs a penalty: for the choice among all
links, which is cheaper the more links are faulty, and 1.2 nats for its rate. So a link is blamed if
its rate does not fit the law and exceeds that of a fault.

If the losses of a blamed link are correlated, as in a black hole, its observations get less weight
and are explained again; flows with hidden paths that lose all packets or none count as one trial
each (`analysis.methods.mle.black_holes`). The links of a switch may be blamed by one statement
about it (`analysis.methods.mle.devices`).

No observation is filtered out, and no loss ranges are needed. Links that no observation tells apart
are explained and blamed as one. If all classes are the two directions of links, as with probes that
bounce, the diagnosis is undirected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.methods.base import Method
from analysis.methods.constraints import Probability
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.domain import SPRAYED_FLOWS, SPRAYED_SEGMENTS
from analysis.methods.mle.black_holes import correlated, weigh_until_settled
from analysis.methods.mle.devices import Failed, failed_devices
from analysis.methods.mle.hidden import HiddenFlows, explain_loss_free
from analysis.methods.mle.inputs import (
    VIEWS,
    FlowParts,
    Parts,
    chosen_kinds,
    chosen_parts,
    hidden_flows,
)
from analysis.methods.mle.likelihood import Problem
from analysis.methods.mle.mixture import start_from
from analysis.methods.mle.mixture_search import Found, explain_hidden
from analysis.methods.mle.problem import Observed, Rows, Units, marks, observe
from analysis.methods.mle.round_trips import per_link
from analysis.methods.mle.search import explain, penalty_of, suspects
from analysis.methods.mle.traced import explain_traced
from analysis.telemetry.identifiability import Observations
from analysis.telemetry.silence import scarce_links
from analysis.telemetry.telemetry import Telemetry
from testbed.arrays import BoolArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import PathSets
from testbed.measurements.registry import UNSEEN

SOME_LIVE = 2.0
"""A link that loses whole flows at a rate below this clearly lets other flows pass."""

RECORD_BYTES = {"probes": 16, "detector": 12, "flows": 52, "roundtrips": 16}
"""Bytes of one record: of a probed path, of a path of deTector's plan, of an IPFIX flow record
(Flock, section 5.1), and of the pings between two ToRs."""


class Mle(Method):
    """Localize faulty links as the sparsest likely explanation of all observations.

    Args:
        kinds: Kinds of telemetry to read, such as ``segments+A1`` or ``A1+A2+P``, see
            `analysis.methods.mle.inputs`; default: all that was measured over known paths.
        fault_rate: The least loss rate of a faulty link, in (0, 1).
        penalty: The log-likelihood in nats that a blamed link must gain; default:
            ``ln((links - blamed) / (blamed + 1)) + 1.2``.

    Raises:
        ValueError: A kind is unknown, or the rate is not in (0, 1).

    Of two paths that share a link one loses 5 %:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Probes, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(3, 1)
    >>> paths = fabric.paths_over("leaf0->spine0->leaf1", "leaf0->spine0->leaf2")
    >>> probes = Probes(paths, sent=np.array([5000, 5000]), lost=np.array([250, 0]))
    >>> verdict = Mle().localize(Telemetry(fabric, "none", probes=probes))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['spine0->leaf1']
    """

    base = "mle"
    sprayed = f"{SPRAYED_SEGMENTS}; {SPRAYED_FLOWS}"

    def __init__(
        self,
        *,
        kinds: str | None = None,
        fault_rate: Probability = 1e-3,
        penalty: float | None = None,
    ) -> None:
        chosen_kinds(kinds)
        self.kinds = kinds
        self.fault_rate = fault_rate
        self.penalty = penalty

    def data(self, telemetry: Telemetry) -> Parts:
        """Return the observations of the method's kinds.

        Raises:
            MissingTelemetry: A kind was not measured, or none was.
        """
        return chosen_parts(telemetry, chosen_kinds(self.kinds), self.name)

    def observations(self, data: Parts) -> Iterable[Observations]:
        """Yield the paths of all observations, and the pairs of ToRs whose flows were watched."""
        for part in data.known:
            yield PathSets.known(Observed.join([part]).paths)
        if (flows := data.flows) is not None:
            yield flows.used_sets()
            if flows.pairs is not None:
                yield flows.pairs.used()
            if "A2" in flows.kinds and data.watched is not None:
                yield data.watched

    def infer(self, parts: Parts, fabric: Fabric) -> Diagnosis:
        """Return the diagnosis of the explanation; a link's score is, in nats, what its release
        would cost, or what blaming it would gain."""
        known, flows = [Observed.join([part]) for part in parts.known], parts.flows
        paths = [part.paths for part in known]
        paths += [] if flows is None else [flows.used_sets().paths]
        same = marks(paths, fabric.n_links)
        if flows is not None and flows.pairs is not None:
            flows.pairs.mark(same)
        units = Units.of(same)
        if flows is not None and flows.lossy:  # no device or correlation is asked for there
            probed = [part for part in parts.known if part is not flows.known]
            found = self._mixture(known, probed, flows, units)
            none = Failed(np.zeros(0, np.int32), np.zeros(0, np.int32))
            in_flows = found.blamed & (found.x < SOME_LIVE) & flows.trials
            return verdict_of(self, fabric, units, found, none, in_flows)
        # Flows that are reported because they lost packets do not show how losses are correlated.
        informative = [
            flows is None or part is not flows.known or "INT" in flows.kinds for part in parts.known
        ]
        weighable = [part for part, useful in zip(known, informative, strict=True) if useful]
        others = [part for part, useful in zip(known, informative, strict=True) if not useful]

        least = self.fault_rate * (1.0 if parts.share is None else float(parts.share.min()))

        def explain_parts(observed: list[Observed]) -> Problem:
            """Return the explanation of observations over known paths and of the hidden flows."""
            return self._explanation(observed, flows, fabric, units, least)

        def explain_again(found: Problem) -> tuple[BoolArray, Problem | None]:
            """Return the units that lose whole flows, bool[U], and the explanation of the
            observations weighted by the correlation of their losses; None if every weight is 1."""
            weighed = correlated(weighable, units, found)
            if not weighed.any:
                return weighed.in_flows, None
            return weighed.in_flows, explain_parts(weighed.parts + others)

        explained = explain_parts(known)
        found, in_flows = weigh_until_settled(explained, explain_again)
        counted = None
        if flows is not None and flows.kinds == {"A2"}:
            counted = observe(known, units).arrived
        failed = failed_devices(found, fabric, units, penalty=self.penalty, counted=counted)
        in_flows &= found.blamed
        verdict = verdict_of(self, fabric, units, found, failed, in_flows)
        return verdict if parts.share is None else per_link(verdict, parts.share)

    def _explanation(
        self,
        known: list[Observed],
        flows: FlowParts | None,
        fabric: Fabric,
        units: Units,
        fault_rate: float,
    ) -> Problem:
        """Return the rates and blamed units that explain observations over known paths and
        loss-free flows with hidden paths."""
        rows, candidate, hidden, options = self._observed(known, flows, units, fault_rate)
        if hidden is None:
            return explain(rows, units.size, candidate, **options)
        if flows is not None and flows.kinds == {"A2"}:
            traces = flows.traces(fabric, units)
            return explain_traced(rows, units.size, candidate, hidden, traces, **options)
        return explain_loss_free(rows, units.size, candidate, hidden, **options)

    def _mixture(
        self, known: list[Observed], probed: list[Observed], flows: FlowParts, units: Units
    ) -> Problem | Found:
        """Return the explanation if flows with hidden paths lost packets. The search starts from
        what ``probed``, the observations over known paths without flows, explain alone."""
        rows, candidate, hidden, options = self._observed(known, flows, units, self.fault_rate)
        if hidden is None:
            return explain(rows, units.size, candidate, **options)
        start = start_from(probed, units, **options)
        if self.penalty is None:  # which of its paths a flow took is picked, too
            choices = 0.5 * math.log(max(len(hidden.times), 1))
            options["penalty"] = penalty_of(len(units.size)) + choices
        return explain_hidden(rows, units.size, candidate, hidden, start, **options)

    def _observed(
        self, known: list[Observed], flows: FlowParts | None, units: Units, fault_rate: float
    ) -> tuple[Rows, BoolArray, HiddenFlows | None, dict[str, Any]]:
        """Return the rows of known paths, the units that may be blamed, the flows with hidden
        paths, and the options ``fault_rate`` and ``penalty``."""
        rows = observe(known, units)
        lost, arrived = rows.lost_over(), rows.arrived
        hidden = None
        if flows is None:
            candidate = suspects(lost, arrived, fault_rate)
        else:
            more_lost, more_arrived = flows.at_most(units)
            candidate = suspects(lost + more_lost, arrived + more_arrived, fault_rate)
            candidate |= flows.lossy
            # One by one where it matters, to first order elsewhere.
            rows = rows._replace(arrived=arrived + np.where(candidate, 0.0, more_arrived))
            hidden = hidden_flows(flows, units, candidate)
        options = {"fault_rate": fault_rate, "penalty": self.penalty}
        return rows, candidate, hidden, options

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        """Return the bytes of all records of the kinds that are read."""
        data = self.data(telemetry)
        each = [RECORD_BYTES[name] * part.records for name, part in data.parts.items()]
        return sum(each) + ("segments" in data.used) * telemetry.canary_bytes

    @property
    def views(self) -> Sequence[str]:
        """Return the names of the parts of the kinds; by default those that may have known
        paths."""
        kinds = chosen_kinds(self.kinds) or {"segments", "A1", "detector", "INT"}
        return sorted({view for kind in kinds for view in VIEWS[kind]})

    def measurements(self, telemetry: Telemetry) -> Sequence[str]:
        """Return the names of the measurements of the kinds that are read."""
        data = self.data(telemetry)
        read = {"segments"} & data.used | set(data.parts)
        if "A2" in data.used and telemetry.connections is not None:
            read.add("connections")
        return [name for name in UNSEEN if name in read]

    def probe_packets(self, telemetry: Telemetry) -> int:
        """Return how many probes were sent, and traceroute packets with the kind A2."""
        data = self.data(telemetry)
        sent = ("probes", "detector", "roundtrips")
        probes = (data.parts[name] for name in sent if name in data.parts)
        packets = sum(int(part.sent.sum()) for part in probes)
        if "A2" in data.used and telemetry.connections is not None:
            packets += telemetry.connections.traceroute_packets
        return packets


class CanaryMle(Mle):
    """Localize faulty links as `Mle` does, from Canary's segments alone.

    Links that are silent in part (`analysis.telemetry.silence`) are blamed, too: flows that a black
    hole takes from the start are never selected, so no packet of theirs is counted as lost.

    Args:
        fault_rate, penalty: See `Mle`.

    One link loses 5 % of the packets that its segments count:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import SegmentCounts, Telemetry
    >>> from testbed.fabric.fat_tree import FatTree
    >>> fabric = FatTree(4)
    >>> segments = fabric.segments("tor+core")
    >>> sent = np.full((1, len(segments)), 10_000)  # of one epoch
    >>> over = segments.paths.links == fabric.link("tor0_0->agg0_1")
    >>> lost = np.zeros_like(sent)
    >>> lost[0, segments.paths.owner[over]] = 500
    >>> counts = SegmentCounts(segments, sent, lost)
    >>> verdict = CanaryMle().localize(Telemetry(fabric, "tor+core", segments=counts))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['tor0_0->agg0_1']
    """

    base = "canary-mle"
    sprayed = SPRAYED_SEGMENTS
    reads = "segments"

    def __init__(self, *, fault_rate: Probability = 1e-3, penalty: float | None = None) -> None:
        super().__init__(kinds="segments", fault_rate=fault_rate, penalty=penalty)

    def data(self, telemetry: Telemetry) -> Parts:
        """Return the segments, and the links that are silent in part."""
        counts = telemetry.need("segments", self.name)
        return replace(super().data(telemetry), scarce=scarce_links(counts, telemetry.topology))

    def infer(self, parts: Parts, fabric: Fabric) -> Diagnosis:
        """Return the diagnosis; the score of a link that is silent in part is the evidence of its
        flows, if that is more than that of the packets."""
        found, scarce = super().infer(parts, fabric), parts.scarce
        if scarce is None or not len(scarce.links):
            return found
        score, success = found.score.copy(), found.success.copy()
        score[scarce.links] = np.maximum(score[scarce.links], scarce.evidence)
        success[scarce.links] = np.fmin(success[scarce.links], scarce.share)
        flagged = np.union1d(found.flagged, scarce.links).astype(np.int32)
        return replace(found, flagged=flagged, score=score, success=success)


def verdict_of(
    method: Method,
    fabric: Fabric,
    units: Units,
    found: Problem | Found,
    failed: Failed,
    in_flows: BoolArray,
) -> Diagnosis:
    """Return the explanation of units as a diagnosis of links.

    Args:
        method: The method, which the diagnosis names.
        fabric: The fabric.
        units: The classes of links that were explained.
        found: Their explanation.
        failed: Failed switches.
        in_flows: Blamed units that lose whole flows, bool[U]; a remark names their links.
    """
    n = fabric.n_links
    observed = units.of_link >= 0
    of_link = units.of_link[observed]
    success, score = np.full(n, np.nan), np.zeros(n)
    blamed = np.zeros(n, np.bool_)
    mean = found.mean if isinstance(found, Found) else found.law[0]
    healthy = math.exp(-mean)
    success[observed] = np.where(found.blamed, np.exp(-found.x), healthy)[of_link]
    score[observed] = found.gains[of_link]
    blamed[observed] = found.blamed[of_link]
    blamed |= np.isin(fabric.link_src, failed.whole) | np.isin(fabric.link_dst, failed.whole)
    diagnosis = method.diagnosis(
        fabric,
        np.flatnonzero(blamed),
        success=success,
        score=score,
        devices=failed.devices,
    )
    both = units.of_link[::2] == units.of_link[1::2]
    dying = np.flatnonzero(observed)[in_flows[of_link]]
    if len(dying):
        names = ", ".join(fabric.link_names[link] for link in dying)
        remark = f"some flows lose every packet and others none, as in a black hole: {names}"
        diagnosis = replace(diagnosis, remarks=(remark,))
    if observed.any() and both[observed[::2] | observed[1::2]].all():
        return replace(diagnosis, native="undirected")
    return diagnosis
