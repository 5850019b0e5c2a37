"""Flock (CoNEXT 2023): maximum-likelihood components by greedy search with joint likelihoods.

Joint likelihood exploration (JLE) keeps, for every component c, the change of the log-likelihood
that flipping c would bring; after a flip only the groups of flows that meet the flipped component
are visited (theorem 3 of the paper). Greedy with JLE takes the same steps as plain greedy.

Two things go beyond the paper's search, never below it, as each is kept only if the posterior
rises:

- A component may be taken back. With many lossy links, greedy blames devices first, and after that
  the true links gain nothing; adding alone never recovers. So each blamed component in turn is
  forbidden and the search regrown without it, and each device with two blamed links is tried in
  their place.
- The search starts twice, from greedy over links alone and from greedy over all components.

The telemetry is what there is: probes (A1), flows whose path was traced because they lost packets
(A2), flows with all their equal-cost paths (P), or flows with the path each took (INT). Which links
it cannot tell apart is part of the verdict. With nothing but probes that bounce, the two directions
of a link are one and the same, so the components are then undirected links; flows and one-way
probes tell directions apart. With passive flows alone a regular fat-tree is ambiguous by its
symmetry (the uplinks of a ToR are equally likely): what is blamed is then all of the tie, as any
choice among them would be a guess; left-out links break it.

The authors' code ships a pair of rates for each kind of telemetry. Here one setting is for all: a
pair where paths are known, and another loss on bad paths for lossy flows of hidden path. That does
not suit links that lose much: for them a third is tried, and the likelier of the two verdicts is
given. See `analysis/DECISIONS.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from analysis.methods.base import Diagnosis, Method
from analysis.methods.flock.flow_values import Loss
from analysis.methods.flock.listed import Listed
from analysis.methods.flock.model import FlockModel, build_model
from analysis.methods.flock.search import Search, search_model
from analysis.telemetry.telemetry import Flows, MissingTelemetry, Probes, Telemetry
from testbed.fabric.clos import Fabric
from testbed.record.measurements import Measurement

__all__ = ["Flock", "slow_flows", "verdict"]


FLOW_RECORD_BYTES = 52
"""One IPFIX flow record (section 5.1); a probed path is a flow too."""

Inputs = Literal["probes+flows", "probes", "flows"]
Rates = tuple[float, float]


class Flock(Method):
    """Localize faulty links and devices by Flock's model and search.

    Args:
        p_bad, p_good: Packet loss on a path with and without a failed component, for probes and
            flows whose path is known.
        passive_p_bad, passive_p_good: The same for flows with several possible paths, unless none
            of these lost packets: then p_bad and p_good hold. A small rate lets two bad paths
            explain a lossy flow better than one, as flows without loss hardly object, so these have
            a larger one; it counts if it is above p_bad.
        severe_p_bad: So for links that lose much this is tried too, and of the two verdicts the
            likelier one is given. None: it is not.
        link_prior: Log-odds of a link's failure, the paper's rho. Default: ``fabric_prior`` less
            the logarithm of the number of links and switches.
        fabric_prior: Log-odds that anything failed, spread over all that may have: the more there
            are, the likelier it is that one of them looks bad by chance.
        device_factor: A device's log-odds are this times a link's (section 3.2). The links on one
            side of a device explain what the whole device does, so it is blamed only where they
            are more than this many: with the paper's 5, from K=6 on directed links and from K=12
            on undirected ones.
        inputs: What to use. The default takes whichever of probes and flows were measured.
        devices: Consider devices as components.
        refine: Take blamed components back where that raises the posterior, and try each one's
            release with what follows from it; where ToR pairs are more than 100,000 (a fat-tree's
            from K=26) the latter without their flows, as it would take minutes there, but these
            are then asked for the direction of each link.
        slow_ms: Look for latency instead of loss, with ``inputs="flows"``: a flow is one
            observation, bad if its round-trip time is above this (per-flow analysis).
    """

    name = "flock"

    def __init__(
        self,
        *,
        p_bad: float = 0.003,
        p_good: float = 1e-4,
        passive_p_bad: float = 0.005,
        passive_p_good: float = 2e-4,
        severe_p_bad: float | None = 0.05,
        link_prior: float | None = None,
        fabric_prior: float = 0.0,
        device_factor: float = 5.0,
        inputs: Inputs = "probes+flows",
        devices: bool = True,
        refine: bool = True,
        slow_ms: float | None = None,
    ) -> None:
        hidden = max(p_bad, passive_p_bad)
        for bad, good in ((p_bad, p_good), (hidden, passive_p_good)):
            if not 0 < good < bad < 1:
                raise ValueError(f"0 < p_good < p_bad < 1 is needed, not {good} and {bad}")
        if severe_p_bad is not None and not 0 < severe_p_bad < 1:
            raise ValueError(f"severe_p_bad={severe_p_bad} is not between 0 and 1")
        if inputs not in ("probes+flows", "probes", "flows"):
            raise ValueError(f"inputs={inputs!r} is none of probes+flows, probes, flows")
        self.p_bad = p_bad
        self.p_good = p_good
        self.passive_p_bad = passive_p_bad
        self.passive_p_good = passive_p_good
        self.severe_p_bad = severe_p_bad
        self.link_prior = link_prior
        self.fabric_prior = fabric_prior
        self.device_factor = device_factor
        self.inputs = inputs
        self.devices = devices
        self.refine = refine
        self.slow_ms = slow_ms

    @classmethod
    def canary_table_iii(cls) -> Flock:
        """The parameters of the Canary paper's comparison (its table III), on probes.

        The table's p_b and p_g can only be read as 2.5e-4 and 1e-4 in the order that makes
        p_b > p_g; rho = 0.02.
        """
        return cls(
            p_bad=2.5e-4, p_good=1e-4, link_prior=float(np.log(0.02 / 0.98)), inputs="probes"
        )

    def data(self, telemetry: Telemetry) -> Telemetry:
        self._parts(telemetry)
        return telemetry

    def infer(self, telemetry: Telemetry, fabric: Fabric) -> Diagnosis:
        best, most, alone, groups = None, -math.inf, None, None
        for rates in reversed(self._hidden(telemetry)):  # the first is seldom outdone
            model = self.model(telemetry, rates, groups=groups)
            search = search_model(
                model, refine=self.refine, devices=self.devices, least=most, alone=alone
            )
            if (model.listed.values.width <= 1).all():  # the rates are of hidden paths alone
                alone, groups = search.alone, model.listed
            if search.posterior() >= most:
                best, most = verdict(self, fabric, search), search.posterior()
            del search, model  # these take as much memory as the telemetry
        assert best is not None
        return best

    def _hidden(self, telemetry: Telemetry) -> list[Rates]:
        """What to try as loss on bad and good paths, of flows whose path is hidden."""
        flows, _ = self._parts(telemetry)
        if flows is None or not _hidden_losses(flows):
            return [(self.p_bad, self.p_good)]
        bad = max(self.p_bad, self.passive_p_bad)
        severe = [] if self.severe_p_bad is None else [max(bad, self.severe_p_bad)]
        return [(rate, self.passive_p_good) for rate in (bad, *severe)]

    def model(
        self,
        telemetry: Telemetry,
        hidden: Rates | None = None,
        *,
        listed: bool = False,
        groups: Listed | None = None,
    ) -> FlockModel:
        """The model of the telemetry; see `analysis.methods.flock.model.build_model`."""
        hidden = hidden or self._hidden(telemetry)[0]
        flows, probes = self._parts(telemetry)
        if flows is not None and self.slow_ms is not None:
            flows = slow_flows(flows, self.slow_ms)
        undirected = (flows is None or not len(flows)) and (probes is None or probes.bounced)
        fabric, prior = telemetry.topology, self.link_prior
        if prior is None:
            links = fabric.n_edges if undirected else fabric.n_links
            prior = self.fabric_prior - math.log(links + fabric.n_switches)
        return build_model(
            fabric,
            flows,
            probes,
            loss=Loss((self.p_bad, self.p_good), hidden),
            link_prior=prior,
            device_prior=prior * self.device_factor,
            undirected=undirected,
            listed=listed,
            groups=groups,
        )

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        flows, probes = self._parts(telemetry)
        return FLOW_RECORD_BYTES * (
            (0 if flows is None else len(flows)) + (0 if probes is None else len(probes))
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
    alike = model.indistinguishable()
    failed = np.isin(alike, alike[search.failed])
    blamed = np.flatnonzero(failed[: model.n_links])
    switches = np.flatnonzero(failed[model.n_links :])
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
        equivalent=alike[: model.n_links],
        remarks=search.remarks,
    )
