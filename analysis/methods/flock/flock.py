# SPDX-License-Identifier: Apache-2.0
"""Flock (CoNEXT 2023): maximum-likelihood components by greedy search with joint likelihoods.

Joint likelihood exploration (JLE) keeps, for every component c, the change of the log-likelihood
that flipping c would bring; after a flip only the groups of flows that meet the flipped component
are visited (theorem 3 of the paper). Greedy with JLE takes the same steps as plain greedy.

The search starts from no failure and adds the component that raises the posterior most, until none
does (algorithms 1 and 2). Links and switches are components; a path is bad if it has a failed one.

The method reads whichever telemetry was measured: probes (A1), flows whose path was traced because
they lost packets (A2), flows with all their equal-cost paths (P), or flows with the path that each
took (INT).

The paper leaves open:

- The direction of a failed link. With nothing but probes that bounce, components are undirected
  links; flows and one-way probes tell directions apart, and components are directed links.
- Ties of the greedy search. Of components with equal gains, up to a relative rounding error of a
  billionth, the first is taken, links before switches. A gain below a millionth of a nat counts as
  none.
- The prior of a device, "5x larger on log-scale" (3.2): five times the log-odds of a link.
- Algorithm 2's GetLogLikelihood takes no logarithm, and ComputeInitialDelta has no prior; here
  equation 1 and the prior of section 3.2 are used.

`Flock.changes` lists the variants that go beyond the paper; `docs/why/analysis.md` gives reasons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from analysis.methods.base import Method
from analysis.methods.constraints import Probability
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.domain import SPRAYED_FLOWS, Domain
from analysis.methods.flock.flow_values import Loss
from analysis.methods.flock.listed import Listed
from analysis.methods.flock.model import FlockModel, build_model
from analysis.methods.flock.search import Search, search_model
from analysis.methods.variants import Change
from analysis.telemetry.identifiability import Observations
from analysis.telemetry.telemetry import Flows, MissingTelemetry, Probes, Telemetry
from testbed.errors import UserError
from testbed.fabric.clos import Fabric

FLOW_RECORD_BYTES = 52
"""One IPFIX flow record (section 5.1); a probed path is a flow too."""

Inputs = Literal["probes+flows", "probes", "flows", "int"]


class Flock(Method):
    """Localize faulty links and devices by Flock's model and search.

    Args:
        p_bad, p_good: Packet loss rate on a path with and without a failed component.
        link_prior: Log-odds of a link's failure, the paper's rho.
        device_factor: A device's log-odds are a link's times this (section 3.2). The links on one
            side of a device explain the losses of the whole device, so it is blamed only if they
            are more than this many: with the paper's 5, from K=6 on for directed links and from
            K=12 on for undirected ones. With 5, greedy search blames a device in place of several
            of its links that lose much (`flock+links` does not).
        inputs: Which telemetry to use; by default whichever of probes and flows were measured.
            ``int``: the flows with the path that their packets carried, and the probes if they were
            measured (INT).
        slow_ms: With ``inputs="flows"``, look for latency instead of loss: a flow is one
            observation, bad if its round-trip time in milliseconds is above this (per-flow
            analysis, section 3.2).
        refine: Remove blamed components where that raises the posterior, and try the release of
            each one followed by a new search. With more than 100,000 pairs of ToRs (fat-trees from
            K=26 on) these releases are tried without the flows of pairs, since they would take
            minutes; the flows then decide only the direction of each link.
        conditional: For flows that were reported because they lost packets, use the likelihood
            given that they lost some.
        severe_p_bad: A second, larger p_bad, which is tried if a flow with several possible paths
            lost packets and applies to such flows; the likelier of the two diagnoses is returned.
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
    sprayed = SPRAYED_FLOWS
    domain = Domain(
        "Flock, 6.3 and 7.1",
        faulty=0.02,
        healthy_loss=1e-4,
        devices=True,
        many_faulty="many faulty links look like failed devices to its prior; see flock+links",
    )
    changes = (
        Change(
            "refine",
            "refine",
            True,
            "3.3 and algorithm 1",
            "The search starts from no failure, and adds components until none gains.",
            "It starts once from links alone and once from all components. It can remove "
            "components again, and tries a device in place of its links.",
            "If many links fail, greedy search blames devices first, and then the true links "
            "gain nothing.",
        ),
        Change(
            "conditional",
            "conditional",
            True,
            "3.2, equation 1",
            "A flow's likelihood is that of its losses.",
            "If only flows that lost packets were reported (A2), the likelihood is conditional "
            "on a loss.",
            "Treated as a random sample, such flows are evidence against every link that they "
            "cross.",
        ),
        Change(
            "severe",
            "severe_p_bad",
            0.05,
            "3.2, equation 1",
            "One pair of loss rates, p_b and p_g, holds for all flows.",
            "For flows with several possible paths a larger p_b is tried, too, and the likelier "
            "verdict is used.",
            "A p_b for faults of 0.1 to 1 % does not fit links that lose much: two bad paths "
            "then explain a flow better than one.",
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
        p_bad: Probability = 0.03,
        p_good: Probability = 1e-4,
        link_prior: float = -15.0,
        device_factor: float = 5.0,
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
        """Return Flock with the parameters of the Canary paper's comparison (its table III), on
        probes.

        The table's p_b and p_g are taken as 2.5e-4 and 1e-4, the only order with p_b > p_g; rho is
        0.02. The comparison is of links, so devices are not components.
        """
        return cls(
            p_bad=2.5e-4,
            p_good=1e-4,
            link_prior=float(np.log(0.02 / 0.98)),
            inputs="probes",
            devices=False,
        )

    def data(self, telemetry: Telemetry) -> Telemetry:
        """Return the telemetry, after the check that a part which ``inputs`` names was measured."""
        self._parts(telemetry)
        return telemetry

    def observations(self, data: Telemetry) -> Sequence[Observations]:
        """Return the flows and probes that are read, and, if only flows that lost packets have a
        known path, the pairs of ToRs whose connections were watched."""
        flows, probes = self._parts(data)
        traced = flows is not None and data.connections is not None and _traced(flows)
        watched = data.connections.watched if traced and data.connections is not None else None
        return [part for part in (flows, probes, watched) if part is not None]

    def infer(self, telemetry: Telemetry, fabric: Fabric) -> Diagnosis:
        """Return the diagnosis of the hypothesis with the highest posterior that the search found;
        a link's score is the evidence for its failure in nats."""
        best, most, alone, groups = None, -math.inf, None, None
        for p_bad in reversed(self._hidden(telemetry)):  # the larger is usually the likelier
            model = self.model(telemetry, p_bad, groups=groups)
            search = search_model(
                model, refine=self.refine, devices=self.devices, least=most, alone=alone
            )
            if (model.listed.values.width <= 1).all():  # then this p_bad affects no listed group
                alone, groups = search.alone, model.listed
            if search.posterior() >= most:
                best, most = verdict(self, fabric, search), search.posterior()
            del search, model  # these take as much memory as the telemetry
        assert best is not None
        return best

    def _hidden(self, telemetry: Telemetry) -> list[float]:
        """Return the values of p_bad to try for flows with several possible paths, ascending."""
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
        """Return the model of the telemetry; see `analysis.methods.flock.model.build_model`.

        Args:
            telemetry: Flows, probes or both.
            hidden_p_bad: The p_bad of flows with several possible paths; default: ``p_bad``.
            listed: List the paths of pairs of ToRs, too.
            groups: The listed groups of an earlier model of the same telemetry, to be reused.
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
        """Return the bytes of all flow records; a probed path counts as one."""
        flows, probes = self._parts(telemetry)
        return FLOW_RECORD_BYTES * (
            (0 if flows is None else flows.records) + (0 if probes is None else probes.records)
        )

    @property
    def views(self) -> Sequence[str]:
        """Return the names of the parts that ``inputs`` names; traces tell the paths of flows."""
        if self.inputs == "int":
            return "probes", "int"
        probes = ("probes",) if "probes" in self.inputs else ()
        return (*probes, *(("connections", "flows") if "flows" in self.inputs else ()))

    def measurements(self, telemetry: Telemetry) -> Sequence[str]:
        """Return the names of the parts that are read; traced flows need the connections, too."""
        flows, probes = self._parts(telemetry)
        read: list[str] = [] if probes is None else ["probes"]
        if self.inputs == "int":
            read.append("int")
        elif flows is not None:
            traced = telemetry.connections is not None and _traced(flows)
            if traced:
                read.append("connections")
            read.append("flows")
        return read

    def probe_packets(self, telemetry: Telemetry) -> int:
        """Return how many probes were sent, and traceroute packets if flows were traced."""
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
        if self.inputs == "int":
            return telemetry.need("int", self.name), telemetry.probes
        if telemetry.flows is None and telemetry.probes is None:
            raise MissingTelemetry(
                f"{self.name} needs the telemetry part 'flows' or 'probes': both are missing"
            )
        return telemetry.flows, telemetry.probes


def _hidden_losses(flows: Flows) -> bool:
    """Return whether a flow with several possible paths lost packets."""
    nth = flows.path_set - (len(flows.sets) - len(flows.listed))
    hidden = (nth < 0) | (np.append(flows.listed.width, 0)[np.maximum(nth, -1)] > 1)
    return bool((hidden & (flows.lost > 0)).any())


def _traced(flows: Flows) -> bool:
    """Return whether paths are known by traceroute (A2): all flows with a known path lost
    packets."""
    nth = flows.path_set - (len(flows.sets) - len(flows.listed))
    known = nth >= 0
    known[known] = flows.listed.width[nth[known]] == 1
    return bool(known.any() and (flows.lost[known] > 0).all())


def slow_flows(flows: Flows, slow_ms: float) -> Flows:
    """Return each flow as one packet, which is lost if the flow's round-trip time is above
    ``slow_ms`` milliseconds (per-flow analysis, section 3.2).

    Raises:
        MissingTelemetry: The flows' round-trip times were not measured.
    """
    if flows.rtt_ms is None:
        raise MissingTelemetry("per-flow analysis needs the flows' rtt_ms: it is missing")
    one = np.ones(len(flows), np.int64)
    return replace(flows, sent=one, lost=(flows.rtt_ms > slow_ms).astype(np.int64))


def verdict(method: Method, fabric: Fabric, search: Search) -> Diagnosis:
    """Return the current hypothesis of a search as a method's diagnosis. All links of a failed
    device are blamed."""
    model = search.model
    blamed = np.flatnonzero(search.failed[: model.n_links])
    switches = np.flatnonzero(search.failed[model.n_links :])
    of_device = np.isin(fabric.link_src, switches) | np.isin(fabric.link_dst, switches)
    if model.undirected:
        of_device = of_device[::2]
    return method.diagnosis(
        fabric,
        np.concatenate((blamed, np.flatnonzero(of_device))),
        # The log posterior that a link's release would lose, or that blaming it would gain.
        score=search.evidence()[: model.n_links],
        undirected=model.undirected,
        devices=switches,
        remarks=search.remarks,
    )
