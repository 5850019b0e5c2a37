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
- The search starts twice, from greedy over all components and from greedy over links alone.

With probes alone the two directions of a link are one and the same, so the components are then
undirected links and the verdict says so; passive flows tell directions apart. With passive flows
alone a regular fat-tree is ambiguous by its symmetry (the uplinks of a ToR are equally likely, as
all of a group's paths are alike), and the one with the lowest id is named.

The defaults were calibrated as in section 5.2 on synthetic runs with 10 % of the links losing 0.1
to 100 %, K=4 and 8, 600 to 6000 flows; apart for probes, whose path is known, and passive flows.
"""

from __future__ import annotations

import time
from typing import Literal

import numba as nb
import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from analysis.diagnosis import Diagnosis, both_directions, sorted_links
from analysis.flock_model import FlockModel, build_model
from analysis.telemetry import Flows, MissingTelemetry, Probes, Telemetry

__all__ = ["FLOW_RECORD_BYTES", "Flock", "Search"]

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

FLOW_RECORD_BYTES = 52
"""One IPFIX flow record (section 5.1); a probed path is a flow too."""

Inputs = Literal["probes+flows", "probes", "flows"]


class Flock:
    """Localize faulty links and devices by Flock's model and search.

    Args:
        p_bad, p_good: Packet loss of a probe on a path with and without a failed component.
        passive_p_bad, passive_p_good: The same for passive flows, whose path is hidden.
        link_prior: Log-odds of a link's failure.
        device_factor: A device's log-odds are this times a link's (section 3.2). The links on one
            side of a device explain what the whole device does, so it is blamed only where they
            are more than this many: with the paper's 5, from K=6 on directed links and from K=12
            on undirected ones.
        inputs: What to use. The default takes whichever of probes and flows were measured.
        devices: Consider devices as components.
        refine: Take blamed components back where that raises the posterior.
    """

    name = "flock"

    def __init__(
        self,
        *,
        p_bad: float = 0.003,
        p_good: float = 2e-4,
        passive_p_bad: float = 0.05,
        passive_p_good: float = 1e-5,
        link_prior: float = -5.0,
        device_factor: float = 5.0,
        inputs: Inputs = "probes+flows",
        devices: bool = True,
        refine: bool = True,
    ) -> None:
        for bad, good in ((p_bad, p_good), (passive_p_bad, passive_p_good)):
            if not 0 < good < bad < 1:
                raise ValueError(f"0 < p_good < p_bad < 1 is needed, not {good} and {bad}")
        if inputs not in ("probes+flows", "probes", "flows"):
            raise ValueError(f"inputs={inputs!r} is none of probes+flows, probes, flows")
        self.p_bad = p_bad
        self.p_good = p_good
        self.passive_p_bad = passive_p_bad
        self.passive_p_good = passive_p_good
        self.link_prior = link_prior
        self.device_factor = device_factor
        self.inputs = inputs
        self.devices = devices
        self.refine = refine

    @classmethod
    def canary_table_iii(cls) -> Flock:
        """The parameters of the Canary paper's comparison (its table III), on probes.

        The table's p_b and p_g can only be read as 2.5e-4 and 1e-4 in the order that makes
        p_b > p_g; rho = 0.02.
        """
        return cls(
            p_bad=2.5e-4, p_good=1e-4, link_prior=float(np.log(0.02 / 0.98)), inputs="probes"
        )

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        flows, probes = self._parts(telemetry)
        topology = telemetry.topology
        begin = time.perf_counter()
        undirected = flows is None or len(flows) == 0
        model = build_model(
            topology,
            flows,
            probes,
            probe_loss=(self.p_bad, self.p_good),
            passive_loss=(self.passive_p_bad, self.passive_p_good),
            link_prior=self.link_prior,
            device_prior=self.link_prior * self.device_factor,
            undirected=undirected,
        )
        n_links = topology.n_links >> undirected
        is_link = np.arange(model.n_components) < n_links
        search = Search(model)
        best = search.run(is_link, refine=self.refine, devices=self.devices)

        blamed = np.flatnonzero(best[:n_links])
        blamed = both_directions(blamed) if undirected else blamed
        switches = np.flatnonzero(best[n_links:])
        of_device = np.isin(topology.link_src, switches) | np.isin(topology.link_dst, switches)
        flagged = sorted_links(np.concatenate((blamed, np.flatnonzero(of_device))))
        # Evidence for each link: what its release costs, or what blaming it would gain.
        evidence = search.evidence(best)[:n_links]
        return Diagnosis(
            method=self.name,
            native="undirected" if undirected else "directed",
            flagged=flagged,
            success=np.full(topology.n_links, np.nan),
            score=np.repeat(evidence, 2) if undirected else evidence,
            seconds=time.perf_counter() - begin,
        )

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        flows, probes = self._parts(telemetry)
        return FLOW_RECORD_BYTES * (
            (0 if flows is None else len(flows)) + (0 if probes is None else len(probes))
        )

    def probe_packets(self, telemetry: Telemetry) -> int:
        _, probes = self._parts(telemetry)
        return 0 if probes is None else int(probes.sent.sum())

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


class Search:
    """A hypothesis over a model's components, with every neighbour's gain kept up to date."""

    def __init__(self, model: FlockModel) -> None:
        self.model = model
        self.failed = np.zeros(model.n_components, np.bool_)
        self._count = np.zeros(len(model.path_ptr) - 1, np.int32)
        self._bad = np.zeros(model.n_groups, np.int32)
        self._delta = np.zeros(model.n_components)
        self._scratch = np.zeros(model.n_components, np.int32)
        _accumulate_all(*self._arrays())

    def posterior_gain(self) -> FloatArray:
        """What flipping each component adds to the log posterior: float64[n_components]."""
        sign = np.where(self.failed, -1.0, 1.0)
        return self._delta + sign * self.model.prior

    def posterior(self) -> float:
        """Log posterior relative to the hypothesis that nothing failed."""
        likelihood = self.model.table[self.model.table_ptr[:-1] + self._bad].sum()
        return float(likelihood + self.model.prior[self.failed].sum())

    def flip(self, component: int) -> None:
        _flip(component, *self._arrays())

    def greedy(self, allowed: BoolArray, *, remove: bool = False) -> None:
        """Flip the component that gains most until none gains; only add, unless ``remove``."""
        while True:
            gain = self.posterior_gain()
            can = allowed if remove else allowed & ~self.failed
            gain[~can] = -np.inf
            pick = int(np.argmax(gain)) if len(gain) else -1
            if pick < 0 or gain[pick] <= 1e-6:
                return
            self.flip(pick)

    def run(self, is_link: BoolArray, *, refine: bool, devices: bool) -> BoolArray:
        """The best hypothesis found: bool[n_components]."""
        everything = is_link | devices
        if not refine:
            self.greedy(everything)
            return self.failed.copy()
        starts = [is_link] if not devices else [is_link, everything]
        best, value = self.failed.copy(), 0.0
        for start in starts:
            self.move_to(np.zeros_like(self.failed))
            self.greedy(start)
            self.greedy(everything, remove=True)
            self._refine(everything, is_link)
            if self.posterior() > value + 1e-6:
                best, value = self.failed.copy(), self.posterior()
        self.move_to(best)
        return best

    def evidence(self, hypothesis: BoolArray) -> FloatArray:
        """Nats in favour of each component's failure, given the rest of the hypothesis."""
        self.move_to(hypothesis)
        return np.where(self.failed, -self.posterior_gain(), self.posterior_gain())

    def move_to(self, hypothesis: BoolArray) -> None:
        for component in np.flatnonzero(self.failed != hypothesis):
            self.flip(int(component))

    def _refine(self, allowed: BoolArray, is_link: BoolArray, rounds: int = 4) -> None:
        covers = self._covers(allowed & ~is_link, is_link)
        for _ in range(rounds):
            improved = False
            # Devices first: theirs are the mistakes that hide others.
            for component in np.flatnonzero(self.failed)[::-1]:
                if self.failed[component]:
                    improved |= self._attempt(int(component), allowed)
            for device in np.flatnonzero(allowed & ~is_link & ~self.failed):
                # A link the device covers adds nothing beside it, so its prior is saved.
                saved = -self.model.prior[covers[int(device)] & self.failed].sum()
                if saved > 0 and self.posterior_gain()[device] + saved > 0:
                    improved |= self._attempt(int(device), allowed)
            if not improved:
                return

    def _attempt(self, component: int, allowed: BoolArray) -> bool:
        """Flip a component for good, let the rest settle, and go back if that is no better."""
        before, value = self.failed.copy(), self.posterior()
        self.flip(component)
        others = allowed.copy()
        others[component] = False
        self.greedy(others, remove=True)
        if self.posterior() > value + 1e-6:
            return True
        self.move_to(before)
        return False

    def _covers(self, devices: BoolArray, is_link: BoolArray) -> dict[int, BoolArray]:
        """For each device the links that no path uses without crossing it."""
        model, n = self.model, self.model.n_components
        owner = np.repeat(np.arange(len(model.path_ptr) - 1), np.diff(model.path_ptr))
        ones = np.ones(len(owner), np.int32)
        on_path = csr_array((ones, (owner, model.components)), shape=(len(model.path_ptr) - 1, n))
        uses = on_path.sum(axis=0)
        device = np.flatnonzero(devices)
        together = (on_path[:, device].T @ on_path).toarray()
        always = (together == uses) & (uses > 0) & is_link
        return dict(zip(device.tolist(), always, strict=True))

    def _arrays(self) -> tuple[npt.NDArray, ...]:
        m = self.model
        return (
            m.group_ptr,
            m.path_ptr,
            m.components,
            m.component_ptr,
            m.groups,
            m.table_ptr,
            m.table,
            self.failed,
            self._count,
            self._bad,
            self._delta,
            self._scratch,
        )


@nb.njit(cache=True, nogil=True)
def _accumulate(
    g, sign, group_ptr, path_ptr, components, table_ptr, table,
    failed, count, bad, delta, scratch,
):  # fmt: skip  # pragma: no cover - compiled
    """Add group g's share of every component's delta, ``sign`` times.

    Failing a component turns its paths that have no failed one bad; releasing it turns those good
    where it is the only one.
    """
    now = table_ptr[g] + bad[g]
    first, last = path_ptr[group_ptr[g]], path_ptr[group_ptr[g + 1]]
    for p in range(group_ptr[g], group_ptr[g + 1]):
        for e in range(path_ptr[p], path_ptr[p + 1]):
            c = components[e]
            if count[p] == (1 if failed[c] else 0):
                scratch[c] += 1
    for e in range(first, last):
        c = components[e]
        if scratch[c]:
            then = now - scratch[c] if failed[c] else now + scratch[c]
            delta[c] += sign * (table[then] - table[now])
            scratch[c] = 0


@nb.njit(cache=True, nogil=True)
def _accumulate_all(
    group_ptr, path_ptr, components, component_ptr, groups, table_ptr, table,
    failed, count, bad, delta, scratch,
):  # fmt: skip  # pragma: no cover - compiled
    for g in range(len(group_ptr) - 1):
        _accumulate(
            g, 1.0, group_ptr, path_ptr, components, table_ptr, table,
            failed, count, bad, delta, scratch,
        )  # fmt: skip


@nb.njit(cache=True, nogil=True)
def _flip(
    component, group_ptr, path_ptr, components, component_ptr, groups, table_ptr, table,
    failed, count, bad, delta, scratch,
):  # fmt: skip  # pragma: no cover - compiled
    step = -1 if failed[component] else 1
    for at in range(component_ptr[component], component_ptr[component + 1]):
        g = groups[at]
        _accumulate(
            g, -1.0, group_ptr, path_ptr, components, table_ptr, table,
            failed, count, bad, delta, scratch,
        )  # fmt: skip
        for p in range(group_ptr[g], group_ptr[g + 1]):
            for e in range(path_ptr[p], path_ptr[p + 1]):
                if components[e] == component:
                    if step == 1 and count[p] == 0:
                        bad[g] += 1
                    elif step == -1 and count[p] == 1:
                        bad[g] -= 1
                    count[p] += step
        failed[component] = step == 1
        _accumulate(
            g, 1.0, group_ptr, path_ptr, components, table_ptr, table,
            failed, count, bad, delta, scratch,
        )  # fmt: skip
        failed[component] = step == -1
    failed[component] = step == 1
