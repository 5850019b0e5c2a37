"""Flock (CoNEXT 2023): maximum-likelihood components by greedy search with joint likelihoods.

Joint likelihood exploration (JLE) keeps, for every component c, the change of the log-likelihood
that flipping c would bring; after a flip only the groups of flows that meet the flipped component
are visited (theorem 3 of the paper). Greedy with JLE takes the same steps as plain greedy.

The search starts from no failure and adds the component that gains most until none gains
(algorithms 1 and 2). Links and switches are components alike; a path is bad if it has a failed one.

The telemetry is what there is: probes (A1), flows whose path was traced because they lost packets
(A2), flows with all their equal-cost paths (P), or flows with the path each took (INT).

The text leaves open:

- which direction of a link failed: with nothing but probes that bounce, components are undirected
  links; flows and one-way probes tell directions apart, and components are directed ones;
- ties of the greedy search: of components that gain the same but for rounding, less than a
  billionth, the first is taken, links before switches; what gains less than a millionth of a nat
  gains nothing;
- the prior of a device, "5x larger on log-scale" (3.2): five times the log-odds of a link;
- algorithm 2's GetLogLikelihood takes no logarithm, and ComputeInitialDelta no prior: equation 1
  and the prior of section 3.2 are taken.

What changes here beyond the paper is in `Flock.changes`, and `docs/why/analysis.md` has why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from analysis.methods.base import Change, Diagnosis, Method
from analysis.methods.constraints import Probability
from analysis.methods.flock.flow_values import Loss
from analysis.methods.flock.listed import Listed
from analysis.methods.flock.model import FlockModel, build_model
from analysis.methods.flock.search import Search, search_model
from analysis.telemetry.identifiability import Observations
from analysis.telemetry.telemetry import Flows, MissingTelemetry, Probes, Telemetry
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.record.measurements import Measurement

FLOW_RECORD_BYTES = 52
"""One IPFIX flow record (section 5.1); a probed path is a flow too."""

Inputs = Literal["probes+flows", "probes", "flows"]


class Flock(Method):
    """Localize faulty links and devices by Flock's model and search.

    Args:
        p_bad, p_good: Packet loss on a path with and without a failed component.
        link_prior: Log-odds of a link's failure, the paper's rho.
        device_factor: A device's log-odds are this times a link's (section 3.2). The links on one
            side of a device explain what the whole device does, so it is blamed only where they
            are more than this many: with the paper's 5, from K=6 on directed links and from K=12
            on undirected ones. With it greedy search takes a device for several links of it that
            lose much, and the default, as calibrated, is large.
        inputs: What to use. The default takes whichever of probes and flows were measured.
        slow_ms: Look for latency instead of loss, with ``inputs="flows"``: a flow is one
            observation, bad if its round-trip time is above this (per-flow analysis, section 3.2).
        refine: Take blamed components back where that raises the posterior, and try each one's
            release with what follows from it; where ToR pairs are more than 100,000 (a fat-tree's
            from K=26) the latter without their flows, as it would take minutes there, but these
            are then asked for the direction of each link.
        conditional: Score flows that were reported because they lost packets given that they did.
        severe_p_bad: A second, larger p_bad of flows with several possible paths, where any of
            these lost packets; of the two verdicts the likelier one is given.
        devices: Consider devices as components.

    Of two paths that share a link one loses 5 %:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Probes, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(3, 1)
    >>> paths = fabric.paths_over("leaf0->spine0->leaf1", "leaf0->spine0->leaf2")
    >>> probes = Probes(paths, sent=np.array([5000, 5000]), lost=np.array([250, 0]))
    >>> verdict = Flock().localize(Telemetry(fabric, "none", probes=probes))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['spine0->leaf1']
    """

    base = "flock"
    paper = "Flock, 3"
    changes = (
        Change(
            "refine",
            "refine",
            True,
            "3.3 and algorithm 1",
            "The search starts from no failure, and adds components until none gains.",
            "It starts from links alone and from all components, takes components back, tries each "
            "one's release, and each device in the place of its links.",
            "Where many links fail, greedy search blames devices first, after which the true links "
            "gain nothing.",
        ),
        Change(
            "conditional",
            "conditional",
            True,
            "3.2, equation 1",
            "A flow's likelihood is that of its losses.",
            "Where only flows that lost packets were reported (A2), it is that given some loss.",
            "Taken for a random sample, such flows speak against every link that they cross.",
        ),
        Change(
            "severe",
            "severe_p_bad",
            0.05,
            "3.2, equation 1",
            "One pair of loss rates, p_b and p_g, holds for all flows.",
            "For flows with several possible paths a larger p_b is tried, too, and the likelier "
            "verdict given.",
            "A p_b for faults of 0.1 to 1 % does not fit links that lose much: two bad paths "
            "explain their flows better than one.",
        ),
        Change(
            "links",
            "devices",
            False,
            "3.2",
            "Devices are components, too.",
            "Links alone are.",
            "What NetBouncer's and Canary's comparisons look for.",
        ),
    )

    def __init__(
        self,
        *,
        p_bad: Probability = 0.01,
        p_good: Probability = 2e-4,
        link_prior: float = -15.0,
        device_factor: float = 100_000.0,
        inputs: Inputs = "probes+flows",
        slow_ms: float | None = None,
        refine: bool = False,
        conditional: bool = False,
        severe_p_bad: Probability | None = None,
        devices: bool = True,
    ) -> None:
        if p_good >= p_bad:
            raise UserError(f"p_good < p_bad is needed, not {p_good} and {p_bad}")
        self.p_bad = p_bad
        self.p_good = p_good
        self.link_prior = link_prior
        self.device_factor = device_factor
        self.inputs = inputs
        self.slow_ms = slow_ms
        self.refine = refine
        self.conditional = conditional
        self.severe_p_bad = severe_p_bad
        self.devices = devices

    @classmethod
    def canary_table_iii(cls) -> Flock:
        """The parameters of the Canary paper's comparison (its table III), on probes.

        The table's p_b and p_g can only be read as 2.5e-4 and 1e-4 in the order that makes
        p_b > p_g; rho = 0.02. Its comparison is of links: devices are no components.
        """
        return cls(
            p_bad=2.5e-4,
            p_good=1e-4,
            link_prior=float(np.log(0.02 / 0.98)),
            inputs="probes",
            devices=False,
        )

    def data(self, telemetry: Telemetry) -> Telemetry:
        self._parts(telemetry)
        return telemetry

    def observations(self, data: Telemetry) -> Sequence[Observations]:
        flows, probes = self._parts(data)
        traced = flows is not None and data.connections is not None and _traced(flows)
        watched = data.connections.watched if traced and data.connections is not None else None
        return [part for part in (flows, probes, watched) if part is not None]

    def infer(self, telemetry: Telemetry, fabric: Fabric) -> Diagnosis:
        best, most, alone, groups = None, -math.inf, None, None
        for p_bad in reversed(self._hidden(telemetry)):  # the first is seldom outdone
            model = self.model(telemetry, p_bad, groups=groups)
            search = search_model(
                model, refine=self.refine, devices=self.devices, least=most, alone=alone
            )
            if (model.listed.values.width <= 1).all():  # p_bad is of hidden paths alone
                alone, groups = search.alone, model.listed
            if search.posterior() >= most:
                best, most = verdict(self, fabric, search), search.posterior()
            del search, model  # these take as much memory as the telemetry
        assert best is not None
        return best

    def _hidden(self, telemetry: Telemetry) -> list[float]:
        """What to try as loss on bad paths, of flows whose path is hidden."""
        flows, _ = self._parts(telemetry)
        if self.severe_p_bad is None or flows is None or not _hidden_losses(flows):
            return [self.p_bad]
        return [self.p_bad, max(self.p_bad, self.severe_p_bad)]

    def model(
        self,
        telemetry: Telemetry,
        hidden_p_bad: float | None = None,
        *,
        listed: bool = False,
        groups: Listed | None = None,
    ) -> FlockModel:
        """The model of the telemetry; see `analysis.methods.flock.model.build_model`.

        ``hidden_p_bad`` is that of flows with several possible paths, `p_bad` unless given.
        """
        flows, probes = self._parts(telemetry)
        if flows is not None and self.slow_ms is not None:
            flows = slow_flows(flows, self.slow_ms)
        undirected = (flows is None or not len(flows)) and (probes is None or probes.bounced)
        return build_model(
            telemetry.topology,
            flows,
            probes,
            loss=Loss((self.p_bad, self.p_good), (hidden_p_bad or self.p_bad, self.p_good)),
            link_prior=self.link_prior,
            device_prior=self.link_prior * self.device_factor,
            undirected=undirected,
            conditional=self.conditional,
            listed=listed,
            groups=groups,
        )

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        flows, probes = self._parts(telemetry)
        return FLOW_RECORD_BYTES * (
            (0 if flows is None else flows.records) + (0 if probes is None else probes.records)
        )

    def measurements(self, telemetry: Telemetry) -> Sequence[Measurement]:
        flows, probes = self._parts(telemetry)
        read: list[Measurement] = [] if probes is None else ["probes"]
        if flows is not None:
            traced = telemetry.connections is not None and _traced(flows)
            if traced:
                read.append("connections")
            read.append("flows")
        return read

    def probe_packets(self, telemetry: Telemetry) -> int:
        flows, probes = self._parts(telemetry)
        packets = 0 if probes is None else int(probes.sent.sum())
        if flows is not None and telemetry.connections is not None and _traced(flows):
            packets += telemetry.connections.traceroute_packets
        return packets

    def _parts(self, telemetry: Telemetry) -> tuple[Flows | None, Probes | None]:
        if self.inputs == "flows":
            return telemetry.need("flows", self.name), None
        if self.inputs == "probes":
            return None, telemetry.need("probes", self.name)
        if telemetry.flows is None and telemetry.probes is None:
            raise MissingTelemetry(
                f"{self.name} needs the telemetry part 'flows' or 'probes': both are missing"
            )
        return telemetry.flows, telemetry.probes


def _hidden_losses(flows: Flows) -> bool:
    """Whether flows with several possible paths lost packets."""
    nth = flows.path_set - (len(flows.sets) - len(flows.listed))
    hidden = (nth < 0) | (np.append(flows.listed.width, 0)[np.maximum(nth, -1)] > 1)
    return bool((hidden & (flows.lost > 0)).any())


def _traced(flows: Flows) -> bool:
    """Whether paths are known by tracing: then only those of flows that lost packets are (A2)."""
    nth = flows.path_set - (len(flows.sets) - len(flows.listed))
    known = nth >= 0
    known[known] = flows.listed.width[nth[known]] == 1
    return bool(known.any() and (flows.lost[known] > 0).all())


def slow_flows(flows: Flows, slow_ms: float) -> Flows:
    """Per-flow analysis (section 3.2): each flow is one packet, lost if its RTT is above slow_ms.

    Raises:
        MissingTelemetry: The flows' round-trip times were not measured.
    """
    if flows.rtt_ms is None:
        raise MissingTelemetry("per-flow analysis needs the flows' rtt_ms: it is missing")
    one = np.ones(len(flows), np.int64)
    return replace(flows, sent=one, lost=(flows.rtt_ms > slow_ms).astype(np.int64))


def verdict(method: Method, fabric: Fabric, search: Search) -> Diagnosis:
    """What the hypothesis that a search is at says of the fabric, as a method's verdict."""
    model = search.model
    blamed = np.flatnonzero(search.failed[: model.n_links])
    switches = np.flatnonzero(search.failed[model.n_links :])
    of_device = np.isin(fabric.link_src, switches) | np.isin(fabric.link_dst, switches)
    if model.undirected:
        of_device = of_device[::2]
    return method.diagnosis(
        fabric,
        np.concatenate((blamed, np.flatnonzero(of_device))),
        # Evidence for each link: what its release costs, or what blaming it would gain.
        score=search.evidence()[: model.n_links],
        undirected=model.undirected,
        devices=switches,
        remarks=search.remarks,
    )
