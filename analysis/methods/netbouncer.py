"""NetBouncer (NSDI 2019): active probes, device detection, regularised coordinate descent.

A probe bounces off a core switch and comes back over the same links, so what is seen are undirected
links: x_i is the chance to pass link i both ways. Probes from elsewhere that go one way tell the
directions apart, and then links are directed ones. First the devices without a single good path are
taken out (figure 3): their links have no unique solution (theorem 1), and all are blamed. Then
coordinate descent (figure 5) fits the rest, and links below the threshold are blamed. A switch
whose links all are is a faulty device as well.

`NetBouncerStage` does so in five rounds, the links found so far removed with the paths through them
(Canary, section IV-D).
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from analysis.methods.base import Diagnosis, Method
from analysis.solvers.coordinate_descent import coordinate_descent
from analysis.solvers.incidence import Incidence
from analysis.solvers.log_least_squares import log_least_squares
from analysis.solvers.stages import GROUPS, Mapping, PathRates, solve_stages
from analysis.telemetry.telemetry import Probes
from testbed.fabric.clos import Fabric
from testbed.fabric.compiled import kernel

__all__ = ["NetBouncer", "NetBouncerStage", "bad_devices", "good_paths"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
LongArray = npt.NDArray[np.int64]

LOG_FLOOR = 1e-8
"""What the convex representation takes a dead path's success probability for (section 6.4)."""

USUAL_PATHS = 24
"""Paths over a link in the paper's figure 6, where lambda = 1 suits."""

Model = Literal["specialised", "l1", "convex"]


class NetBouncer(Method):
    """Localize faulty links and devices from probes; undirected links where these bounce.

    A link is blamed when its paths together miss more than half of ``penalty`` beyond what other
    links explain, so the penalty counts in paths: with n on a link, ``penalty / 2n`` is the least
    loss that shows. It should lie between what healthy links lose on a path and the least loss
    looked for. The estimates' errors in the paper's figure 6 are those of some 24 paths a link,
    where 1 means 0.02; all paths of its 27,648 servers are 576 a link, where 1 means 0.0009, less
    than its healthy paths lose, and 8 is in between. With 4 paths a link 1 would mean 0.125, and a
    single path could never convict.

    Args:
        penalty: lambda, the weight of the regulariser; the paper's is 1. None: 1, or less in
            proportion where the median link is on fewer than `USUAL_PATHS`, so that the least loss
            that shows stays 0.02.
        link_threshold: A link at or below this success probability is blamed (section 6.1: good
            above 0.999).
        device_detection: Take out devices without a good path first.
        lucky_share: A device is taken out too if no more than this share of its paths are good: of
            the many paths through a failed one, some may let all packets through. 0 is the paper's
            rule.
        model: The objective: the paper's, the same with an L1 regulariser, or its convex
            representation (section 6.4).
        tolerance: epsilon, the decrease of the objective at which to stop (figure 7).
    """

    name = "netbouncer"
    reads = "probes"
    rounds = 1

    def __init__(
        self,
        *,
        penalty: float | None = 0.1,
        link_threshold: float = 0.999,
        device_detection: bool = True,
        lucky_share: float = 0.2,
        model: Model = "specialised",
        tolerance: float = 1e-4,
    ) -> None:
        if penalty is not None and penalty < 0:
            raise ValueError(f"penalty={penalty} is negative")
        if not 0 < link_threshold < 1:
            raise ValueError(f"link_threshold={link_threshold} is not between 0 and 1")
        if not 0 <= lucky_share < 1:
            raise ValueError(f"lucky_share={lucky_share} is not a share below 1")
        if model not in ("specialised", "l1", "convex"):
            raise ValueError(f"model={model!r} is none of specialised, l1, convex")
        self.penalty = penalty
        self.link_threshold = link_threshold
        self.device_detection = device_detection
        self.lucky_share = lucky_share
        self.model: Model = model
        self.tolerance = tolerance

    def infer(self, probes: Probes, fabric: Fabric) -> Diagnosis:
        shift = int(probes.bounced)  # a number of a link here, shifted, is that of a directed one
        n_links = fabric.n_links >> shift
        incidence = Incidence.of(probes.distinct, undirected=probes.bounced, row_ptr=probes.row_ptr)
        y = 1 - probes.lost / np.maximum(probes.sent, 1)
        present = probes.sent > 0
        success = np.where(incidence.links_on(present), 1.0, np.nan)
        when = np.full(incidence.n_links, self.rounds)
        round_of_link = np.full(n_links, self.rounds)

        devices = np.zeros(0, np.int64)
        if self.device_detection:
            good = good_paths(incidence, probes, self.link_threshold)
            devices = np.flatnonzero(
                bad_devices(incidence, present, good, fabric, self.lucky_share, shift)
            )
            of_device = np.isin(fabric.link_src, devices) | np.isin(fabric.link_dst, devices)
            of_device = of_device[:: 1 << shift]
            round_of_link[of_device] = 0
            taken = of_device[incidence.link_ids]
            when[taken] = 0
            # No unique solution: what the best of a link's paths lets through is the bound.
            success[taken] = 0.0
            _best_path(incidence, np.where(present, y, 0.0), taken, success)
            present &= ~incidence.rows_with(taken)

        if (present & (probes.lost > 0)).any():
            fitted = incidence.links_on(present)
            x, blamed = self._rounds(incidence, y, np.where(present, probes.sent, 0))
            success[fitted], when[fitted] = x[fitted], blamed[fitted]
        round_of_link[incidence.link_ids] = when
        if self.device_detection:
            # A path has one link only of a switch that bounces it, so that among many one may let
            # everything through by chance: there all links must tell.
            of_all = _all_blamed(incidence.link_ids << shift, when < self.rounds, fabric)
            devices = np.union1d(devices, of_all)

        link_success = np.full(n_links, np.nan)
        link_success[incidence.link_ids] = success
        stages = range(self.rounds) if self.rounds > 1 else ()
        return self.diagnosis(
            fabric,
            np.flatnonzero(round_of_link < self.rounds),
            success=link_success,
            undirected=probes.bounced,
            stages=[np.flatnonzero(round_of_link <= now) for now in stages],
            devices=devices,
        )

    def _rounds(
        self, incidence: Incidence, y: FloatArray, sent: npt.NDArray[np.int64]
    ) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """Success of each local link and the round it was blamed in (``rounds`` = never)."""
        present = sent > 0
        penalty = self._weight(incidence, present)
        success = np.ones(incidence.n_links)
        when = np.full(incidence.n_links, self.rounds)
        for now in range(self.rounds):
            x = self._fit(incidence, y, sent, present, penalty)
            bad = (x <= self.link_threshold) & (when == self.rounds)
            still = when == self.rounds
            success[still], when[bad] = x[still], now
            present = present & ~incidence.rows_with(bad)
        return success, when

    def _weight(self, incidence: Incidence, present: BoolArray) -> float:
        """lambda, for these paths."""
        if self.penalty is not None:
            return self.penalty
        over = incidence.rows_on(present)
        return min(1.0, float(np.median(over[over > 0])) / USUAL_PATHS)

    def _fit(
        self,
        incidence: Incidence,
        y: FloatArray,
        sent: npt.NDArray[np.int64],
        present: BoolArray,
        penalty: float,
    ) -> FloatArray:
        if self.model == "convex":
            return log_least_squares(
                incidence,
                np.maximum(y, LOG_FLOOR),
                omega=penalty,
                tolerance=self.tolerance,
                used=present,
            )
        return coordinate_descent(
            incidence,
            y,
            sent,
            penalty=penalty,
            regulariser=self.model,
            tolerance=self.tolerance,
            used=present,
        ).success


class NetBouncerStage(NetBouncer):
    """NetBouncer in five rounds, the links found removed after each (Canary, section IV-D).

    The text names the removal alone, but that cannot find more: a link is blamed when
    sum c (c - y) > lambda / 2 over its paths, and removing paths only takes terms away. So
    that the comparison does not rest on a weaker reading, each round looks by default at one loss
    range, mapped by equation 4, as in Canary's own stages: K=8, 26 faulty links, 100 packets a path
    give 25 found and 1 wrong (the paper's figure 8: 22 and 1; removal alone: 16 and 0).

    Args:
        mapped: Use Canary's loss ranges and mapping in the rounds; False removes only.
        mapping: Which mapping, as `Canary` has it.
    """

    name = "netbouncer-stage"
    rounds = len(GROUPS) - 1

    def __init__(
        self,
        *,
        penalty: float | None = 8.0,
        link_threshold: float = 0.999,
        device_detection: bool = True,
        mapped: bool = True,
        mapping: Mapping = "logarithmic",
    ) -> None:
        super().__init__(
            penalty=penalty,
            link_threshold=link_threshold,
            device_detection=device_detection,
            lucky_share=0.001,
        )
        if mapping not in get_args(Mapping):
            raise ValueError(f"mapping={mapping!r} is none of {', '.join(get_args(Mapping))}")
        self.mapped = mapped
        self.mapping: Mapping = mapping

    def _rounds(
        self, incidence: Incidence, y: FloatArray, sent: npt.NDArray[np.int64]
    ) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        if not self.mapped:
            return super()._rounds(incidence, y, sent)
        rates = PathRates(y, sent, (y < 1) & (sent > 0))
        penalty = self._weight(incidence, sent > 0)
        return solve_stages(incidence, rates, penalty=penalty, mapping=self.mapping)


def good_paths(incidence: Incidence, probes: Probes, link_threshold: float = 0.999) -> BoolArray:
    """The probed paths that lose no more than good links may: bool[n_rows].

    With the paper's 100 packets over 3 links above 0.999 that means no packet (figure 3: Y = 1).
    With many more packets noise alone leaves no path without loss, and asking for one would make
    every device a suspect.
    """
    allowed = 1 - link_threshold ** np.diff(incidence.path_ptr)
    allowed = allowed.repeat(np.diff(incidence.row_ptr))
    return (probes.sent > 0) & (probes.lost <= allowed * probes.sent)


def bad_devices(
    incidence: Incidence,
    present: BoolArray,
    good: BoolArray,
    topology: Fabric,
    lucky_share: float = 0.001,
    shift: int = 1,
) -> BoolArray:
    """Switches that paths cross without more of them being good than luck explains (figure 3).

    Args:
        incidence: Paths and links of ``topology``.
        present, good: What was probed of paths and what of that is good, bool[n_rows].
        lucky_share: The share of a switch's paths that may be good by luck.
        shift: 1 if the links are undirected ones, 0 if directed.

    Returns bool[n_switches]. A switch that no path crosses is not suspected.
    """
    crossed, fine = np.zeros((2, topology.n_switches))
    for end in (topology.link_src, topology.link_dst):
        of_link = end[incidence.link_ids << shift]
        crossed += np.bincount(of_link, incidence.rows_on(present), topology.n_switches)
        fine += np.bincount(of_link, incidence.rows_on(good), topology.n_switches)
    return (crossed > 0) & (fine <= lucky_share * crossed)


def _all_blamed(links: npt.NDArray[np.int32], blamed: BoolArray, topology: Fabric) -> LongArray:
    """Switches with two and more of ``links``, all blamed."""
    ends = np.stack((topology.link_src[links], topology.link_dst[links]))
    seen = np.bincount(ends.ravel(), minlength=topology.n_switches)
    bad = np.bincount(ends[:, blamed].ravel(), minlength=topology.n_switches)
    return np.flatnonzero((seen > 1) & (bad == seen))


@kernel
def _best_path(incidence, y, wanted, best):
    """Raise ``best`` of each wanted link to the highest y of its paths."""
    for i in range(len(wanted)):
        if wanted[i]:
            for e in range(incidence.link_ptr[i], incidence.link_ptr[i + 1]):
                j = incidence.paths[e]
                for row in range(incidence.row_ptr[j], incidence.row_ptr[j + 1]):
                    best[i] = max(best[i], y[row])
