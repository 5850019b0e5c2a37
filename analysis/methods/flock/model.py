"""Flock's probabilistic model (its section 3.2) as arrays: components, path sets, likelihoods.

A flow takes one of w possible paths. Under a hypothesis (a set of failed components, links and
devices) b of them are bad, and equation 1 says

    P = (1 - b/w) pg^r (1-pg)^(t-r) + (b/w) pb^r (1-pb)^(t-r).

Relative to the no-failure hypothesis its logarithm is ln(1 - b/w + (b/w) e^s) with the flow's
score s = r ln(pb/pg) + (t-r) ln((1-pb)/(1-pg)), which does not overflow however many packets a
flow has. Flows with the same set of possible paths have the same b under every hypothesis: they are
one *group* (`analysis.methods.flock.likelihood` has the two kinds).

Where all flows lost packets, only such flows were reported (telemetry A2), and a ``conditional``
model scores those of a known path given that they did: s less ln((1 - (1-pb)^t) / (1 - (1-pg)^t)).
The paper leaves that out and makes up for it with a small prior, which has to suit the number of
flows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.methods.flock.flow_values import Counts, Loss, flow_values
from analysis.methods.flock.likelihood import accumulate
from analysis.methods.flock.listed import Listed
from analysis.methods.flock.pair_groups import no_pairs, pair_groups
from analysis.methods.flock.pairs import Pairs
from analysis.methods.flock.path_groups import Components, listed_groups, make_listed
from analysis.telemetry.telemetry import Flows, Probes
from testbed.arrays import FloatArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import PathSets


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
        return replace(self, pairs=no_pairs(self.n_components))

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
        counts = Counts(sent, lost, np.zeros(len(sent), np.bool_))
        values = flow_values(path_set, sets.width, counts, loss)
        listed = make_listed(sets.ptr, sets.paths, values, len(prior))
        ends = np.zeros((0, 2), np.int32)
        return cls(listed, no_pairs(len(prior)), prior, len(prior), ends)

    def indistinguishable(self) -> IntArray:
        """The class of each component: int32[n_components].

        Two links, or two switches, are alike when in every group equally many paths use the one and
        the other: then no loss whatever could tell them apart. (Flipping them is compared on random
        likelihoods.)
        """
        failed = np.zeros(self.n_components, np.bool_)
        bits = 52 - self.n_groups.bit_length()  # so that sums are exact
        is_link = np.arange(self.n_components) < self.n_links
        sums = [is_link.astype(np.float64)]
        for seed in (1, 2):
            listed = self.listed._replace(values=self.listed.values._replace(seed=seed, bits=bits))
            pairs = self.pairs._replace(values=self.pairs.values._replace(seed=seed, bits=bits))
            sums.append(accumulate(listed, pairs, failed))
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
    conditional: bool = False,
    listed: bool = False,
    groups: Listed | None = None,
) -> FlockModel:
    """The model of passive flows and probes together; a probe's path is known.

    ``conditional`` is as above. With ``listed`` the paths of pairs of ToRs are listed too, as some
    searches need it. ``groups`` are the listed ones, where they are known already.

    Raises:
        ValueError: A flow is between ToRs that no path joins.
    """
    components = Components.of(topology, undirected=undirected)
    prior = np.repeat((link_prior, device_prior), (components.n_links, topology.n_switches))
    ecmp = None
    if flows is not None and isinstance(flows.sets, PairSets):
        ecmp = None if listed else flows.sets.climbs()
    if flows is not None and isinstance(flows.sets, PairSets) and ecmp is None:
        flows = Flows(flows.sets.expanded(), flows.path_set, flows.sent, flows.lost)
    if groups is None:
        groups = listed_groups(flows, probes, components, len(prior), loss, conditional)
    pairs = no_pairs(len(prior))
    if flows is not None and ecmp is not None:
        pairs = pair_groups(ecmp, flows, components, len(prior), loss)
    up = np.arange(0, topology.n_links, 1 << components.shift)
    ends = np.stack((topology.link_src[up], topology.link_dst[up]), axis=1) + components.n_links
    return FlockModel(groups, pairs, prior, components.n_links, ends.astype(np.int32), undirected)
