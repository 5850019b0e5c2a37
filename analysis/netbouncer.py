"""NetBouncer (NSDI 2019): active probes, device detection, regularised coordinate descent.

A probe bounces off a core switch and comes back over the same links, so what is seen are undirected
links: x_i is the chance to pass link i both ways. First the devices without a single good path are
taken out (figure 3): their links have no unique solution (theorem 1), and all are blamed. Then
coordinate descent (appendix B, lambda = 1) fits the rest, and links below the threshold are blamed.

`NetBouncerStage` does so in five rounds, the links found so far removed with the paths through them
(Canary, section IV-D).
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from analysis.canary.aggregate import SegmentRates
from analysis.canary.cd import coordinate_descent
from analysis.canary.multistage import GROUPS, solve_stages
from analysis.diagnosis import Diagnosis, both_directions
from analysis.incidence import Incidence
from analysis.telemetry import Probes, Telemetry
from testbed.fabric import Fabric
from testbed.paths import Paths

__all__ = ["PROBE_RECORD_BYTES", "NetBouncer", "NetBouncerStage", "bad_devices"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

PROBE_RECORD_BYTES = 16
"""A path's record: prober and bouncing switch (4 bytes each), sent and lost (4 bytes each). The
paths themselves are the static probing plan."""


class NetBouncer:
    """Localize faulty undirected links and devices from bounced probes.

    Args:
        penalty: lambda, the weight of the regulariser.
        link_threshold: A link at or below this success probability is blamed (section 6.1: good
            above 0.999).
        device_detection: Take out devices without a good path first.
    """

    name = "netbouncer"
    rounds = 1

    def __init__(
        self,
        *,
        penalty: float = 1.0,
        link_threshold: float = 0.999,
        device_detection: bool = True,
    ) -> None:
        self.penalty = penalty
        self.link_threshold = link_threshold
        self.device_detection = device_detection

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        probes = telemetry.need("probes", self.name)
        topology = telemetry.topology
        begin = time.perf_counter()
        edge_success = np.full(topology.n_edges, np.nan)
        edge_round = np.full(topology.n_edges, self.rounds)

        incidence = Incidence.of(Paths(probes.paths.ptr, probes.paths.links >> 1))
        edge = incidence.link_ids
        y = 1 - probes.lost / np.maximum(probes.sent, 1)
        present = probes.sent > 0
        edge_success[edge[np.unique(incidence.links[present[_owner(incidence)]])]] = 1.0

        if self.device_detection:
            switches = np.flatnonzero(bad_devices(probes, topology))
            if len(switches):
                of_device = np.isin(topology.link_src, switches)
                of_device |= np.isin(topology.link_dst, switches)
                bad_edge = np.zeros(topology.n_edges, np.bool_)
                bad_edge[np.flatnonzero(of_device) >> 1] = True
                edge_round[bad_edge] = 0
                # No unique solution: what the best of a link's paths lets through is the bound.
                best = np.zeros(incidence.n_links)
                np.maximum.at(best, incidence.links, np.where(present, y, 0.0)[_owner(incidence)])
                seen = bad_edge[edge]
                edge_success[edge[seen]] = best[seen]
                present = present & ~incidence.paths_with(seen)

        if (present & (probes.lost > 0)).any():
            x, when = self._infer(incidence, y, np.where(present, probes.sent, 0))
            bad = (when < self.rounds) & (edge_round[edge] == self.rounds)
            edge_success[edge[bad]] = x[bad]
            edge_round[edge[bad]] = when[bad]

        success = np.repeat(edge_success, 2)
        return Diagnosis(
            method=self.name,
            native="undirected",
            flagged=both_directions(np.flatnonzero(edge_round < self.rounds)),
            success=success,
            score=np.nan_to_num(1 - success),
            seconds=time.perf_counter() - begin,
            stages=tuple(
                both_directions(np.flatnonzero(edge_round <= now)) for now in range(self.rounds)
            )
            if self.rounds > 1
            else (),
        )

    def _infer(
        self, incidence: Incidence, y: FloatArray, sent: npt.NDArray[np.int64]
    ) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """Success of each local link and the round it was blamed in (``rounds`` = never)."""
        weight, present = sent.astype(np.float64), sent > 0
        success = np.ones(incidence.n_links)
        when = np.full(incidence.n_links, self.rounds)
        for now in range(self.rounds):
            x = coordinate_descent(incidence, y, weight, penalty=self.penalty, used=present).success
            bad = (x <= self.link_threshold) & (when == self.rounds)
            success[bad], when[bad] = x[bad], now
            present = present & ~incidence.paths_with(bad)
        return success, when

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        return PROBE_RECORD_BYTES * len(telemetry.need("probes", self.name))

    def probe_packets(self, telemetry: Telemetry) -> int:
        return int(telemetry.need("probes", self.name).sent.sum())


class NetBouncerStage(NetBouncer):
    """NetBouncer in five rounds, the links found removed after each (Canary, section IV-D).

    The text names the removal alone, but that cannot find more: a link is blamed when
    sum c (c - y) > lambda / 2 over its paths, and removing paths only takes terms away. So
    that the comparison does not rest on a weaker reading, each round looks by default at one loss
    range, mapped by equation 4, as in Canary's own stages: K=8, 26 faulty links, 100 packets a path
    give 25 found and 1 wrong (the paper's figure 8: 22 and 1; removal alone: 16 and 0).

    Args:
        mapped: Use Canary's loss ranges and mapping in the rounds; False removes only.
    """

    name = "netbouncer-stage"
    rounds = len(GROUPS) - 1

    def __init__(
        self,
        *,
        penalty: float = 1.0,
        link_threshold: float = 0.999,
        device_detection: bool = True,
        mapped: bool = True,
    ) -> None:
        super().__init__(
            penalty=penalty, link_threshold=link_threshold, device_detection=device_detection
        )
        self.mapped = mapped

    def _infer(
        self, incidence: Incidence, y: FloatArray, sent: npt.NDArray[np.int64]
    ) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        if not self.mapped:
            return super()._infer(incidence, y, sent)
        rates = SegmentRates(y, sent, (y < 1) & (sent > 0))
        return solve_stages(incidence, rates, penalty=self.penalty)


def bad_devices(probes: Probes, topology: Fabric) -> BoolArray:
    """Switches that probes cross without one of their paths being loss-free (figure 3).

    Returns bool[n_switches]. A switch that no path crosses is not suspected.
    """
    owner, link = probes.paths.owner, probes.paths.links
    used = (probes.sent > 0)[owner]
    clean = ((probes.sent > 0) & (probes.lost == 0))[owner]
    crossed, good = np.zeros(topology.n_switches, np.bool_), np.zeros(topology.n_switches, np.bool_)
    for end in (topology.link_src, topology.link_dst):
        crossed[end[link[used]]] = True
        good[end[link[clean]]] = True
    return crossed & ~good


def _owner(incidence: Incidence) -> npt.NDArray[np.int64]:
    return np.repeat(np.arange(incidence.n_paths), np.diff(incidence.path_ptr))
