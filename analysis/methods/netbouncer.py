# SPDX-License-Identifier: Apache-2.0
"""NetBouncer (NSDI 2019): active probes, device detection, regularised coordinate descent.

A probe bounces off a core switch and returns over the same links. It observes undirected links: x_i
is the probability that a packet passes link i in both directions. Imported probes that go in one
direction tell the directions apart, and then x_i is of a directed link. First, devices without a
single good path are removed (figure 3): their links have no unique solution (theorem 1), and all
are blamed (section 6.3). Then coordinate descent (figure 5, algorithm 1) fits the other links, and
links at or below the threshold are blamed.

In the paper a path begins at a server and has `PATH_PROBES` probes. Here paths begin at ToRs: all
servers of a rack have the same path, and their probes are added up. A path of n probes therefore
counts as n / 100 of the paper's paths in the sum of squared errors, which equals the paper's but
for a constant. It is good if it lost fewer than n / 100 probes, because a hundred of its probes
then lost none, however they are divided among servers. So neither depends on how probes are
reported.

The paper leaves two points open. A device that no probed path crosses would be bad by the letter of
figure 3; here it is not, as the paper's plan crosses all devices. A link at exactly the threshold
of 0.999 is bad here (figure 5: a link is bad if x_i <= threshold; section 6.1 calls it good if it
is "greater than 0.999").

`NetBouncerStage` runs five rounds and removes the blamed links with the paths through them after
each (Canary, section IV-D, which calls it the paper's own extension of NetBouncer). Bad devices are
detected once, before the rounds.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from analysis.methods.base import Method
from analysis.methods.constraints import NotNegative, Probability, Rate
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.domain import Domain
from analysis.methods.variants import Change
from analysis.solvers.coordinate_descent import EPSILON, coordinate_descent
from analysis.solvers.incidence import Incidence
from analysis.solvers.log_least_squares import log_least_squares
from analysis.telemetry.telemetry import Probes
from testbed.arrays import BoolArray, FloatArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)

PATH_PROBES = 100
"""Probes over each path of the paper (section 6.1), in which its lambda counts."""

LOG_FLOOR = 1e-8
"""The success probability that the convex representation uses for a path that lost all packets
(section 6.4)."""

Model = Literal["specialised", "l1", "convex"]


class NetBouncer(Method):
    """Localize faulty links and devices from probes; undirected links if the probes bounce.

    A link on n paths of `PATH_PROBES` probes is blamed if its paths lose, on average, more than
    ``penalty / 2n`` that other links do not explain. This value should lie between the loss rate of
    a healthy path and the lowest loss rate of a fault. The estimation errors in the paper's figure
    6 fit about 24 paths a link, where a penalty of 1 means a loss of 0.02. All paths of its 27,648
    servers are 576 a link, where 1 means 0.0009, less than the paper's healthy paths lose, and 8
    lies in between. With 4 paths a link, 1 would mean 0.125, and no single lossy path could get a
    link blamed. By default lambda therefore follows the number of paths over a link (section 6.4:
    it balances fitting error and false discoveries): `penalty_for` has the rule.

    Args:
        penalty: lambda, the weight of the regulariser; the paper's is 1. None: by the rule.
        scale: The factor of the rule.
        link_threshold: A link at or below this success probability is blamed (section 6.1: good
            above 0.999).
        tolerance: epsilon, the decrease of the objective at which to stop (figure 7).
        lucky_share: A device is bad if no more than this share of its paths are good.
        path_noise: A path is good if it lost no more than its links may at the threshold.
        device_detection: Take out bad devices first.
        model: The objective: that of the paper (``specialised``), the same with an L1 regulariser
            (``l1``), or its convex representation (``convex``).

    Of four probed paths, up and back, one loses 20 %; such probes do not tell directions apart:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Probes, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(2, 2)
    >>> over = [(leaf, spine) for leaf in ("leaf0", "leaf1") for spine in ("spine0", "spine1")]
    >>> paths = fabric.paths_over(*(f"{leaf}->{spine}->{leaf}" for leaf, spine in over))
    >>> probes = Probes(paths, sent=np.full(4, 1000), lost=np.array([200, 0, 0, 0]))
    >>> verdict = NetBouncer().localize(Telemetry(fabric, "none", probes=probes))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['leaf0->spine0', 'spine0->leaf0']
    """

    base = "netbouncer"
    paper = "NetBouncer, 4.4 and 5"
    domain = Domain(
        "NetBouncer, 6.1 to 6.3", faulty=0.1, healthy_loss=1e-3, devices=True, packets=100
    )
    reads = "probes"
    rounds = 1
    changes = (
        Change(
            "lucky",
            "lucky_share",
            0.2,
            "4.4 and figure 3",
            "A device is bad if no path through it is good.",
            "It is bad if no more than a fifth of the paths through it are good.",
            "Some of the many paths through a failed device may lose nothing.",
        ),
        Change(
            "noise",
            "path_noise",
            True,
            "figure 3, line 14",
            "A path is good if its success probability is 1.",
            "It is good if it lost no more than healthy links may lose (the link threshold).",
            "With many packets per path, background loss hits every path, and every device would "
            "be bad.",
        ),
        Change(
            "links",
            "device_detection",
            False,
            "6.3",
            "Bad devices are found first, and paths through them left out.",
            "They are not looked for (figure 6: w/o DFD).",
            "The paper compares with it.",
            "the paper",
        ),
        Change(
            "l1",
            "model",
            "l1",
            "6.4",
            "The regulariser is x (1 - x).",
            "It is -x.",
            "The paper compares with it.",
            "the paper",
        ),
        Change(
            "convex",
            "model",
            "convex",
            "5.2 and 6.4",
            "The squared error of path success is minimised.",
            "That of its logarithm is, a convex problem.",
            "The paper compares with it.",
            "the paper",
        ),
    )

    def __init__(
        self,
        *,
        penalty: NotNegative | None = None,
        scale: NotNegative = 0.06,
        link_threshold: Probability = 0.999,
        tolerance: NotNegative = EPSILON,
        lucky_share: Rate = 0.0,
        path_noise: bool = False,
        device_detection: bool = True,
        model: Model = "specialised",
    ) -> None:
        self.penalty = penalty
        self.scale = scale
        self.link_threshold = link_threshold
        self.tolerance = tolerance
        self.lucky_share = lucky_share
        self.path_noise = path_noise
        self.device_detection = device_detection
        self.model: Model = model

    def infer(self, probes: Probes, fabric: Fabric) -> Diagnosis:
        """Return the diagnosis of links and devices; with more than one round, the links blamed up
        to each round are its stages."""
        shift = int(probes.bounced)  # local numbers are directed ids >> shift
        n_links = fabric.n_links >> shift
        incidence = Incidence.of(probes.paths, undirected=probes.bounced)
        y = 1 - probes.lost / np.maximum(probes.sent, 1)
        present = probes.sent > 0
        success = np.where(incidence.links_on(present), 1.0, np.nan)
        when = np.full(incidence.n_links, self.rounds)
        round_of_link = np.full(n_links, self.rounds)

        devices = np.zeros(0, np.int64)
        if self.device_detection:
            good = good_paths(incidence, probes, self.link_threshold if self.path_noise else 1.0)
            devices = np.flatnonzero(
                bad_devices(incidence, present, good, fabric, self.lucky_share, shift)
            )
            of_device = np.isin(fabric.link_src, devices) | np.isin(fabric.link_dst, devices)
            of_device = of_device[:: 1 << shift]
            round_of_link[of_device] = 0
            taken = of_device[incidence.link_ids]
            when[taken] = 0
            # These links have no unique solution; the success of a link's best path is a bound.
            success[taken] = 0.0
            best = np.where(present, y, 0.0)
            _KERNELS.find_best_path(incidence=incidence, y=best, wanted=taken, best=success)
            present &= ~incidence.paths_with(taken)

        if (present & (probes.lost > 0)).any():
            fitted = incidence.links_on(present)
            x, blamed = self._rounds(incidence, y, np.where(present, probes.sent, 0))
            success[fitted], when[fitted] = x[fitted], blamed[fitted]
        round_of_link[incidence.link_ids] = when
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
        self, incidence: Incidence, y: FloatArray, sent: LongArray
    ) -> tuple[FloatArray, LongArray]:
        """Return the success of each local link, float64[n_links], and the round in which it was
        blamed, int64[n_links]; ``rounds`` means never."""
        present = sent > 0
        success = np.ones(incidence.n_links)
        when = np.full(incidence.n_links, self.rounds)
        for now in range(self.rounds):
            x = self._fit(incidence, y, sent, present)
            bad = (x <= self.link_threshold) & (when == self.rounds)
            still = when == self.rounds
            success[still], when[bad] = x[still], now
            present = present & ~incidence.paths_with(bad)
        return success, when

    def _fit(
        self,
        incidence: Incidence,
        y: FloatArray,
        sent: LongArray,
        present: BoolArray,
    ) -> FloatArray:
        times = sent / PATH_PROBES
        penalty = self.penalty
        if penalty is None:
            penalty = penalty_for(incidence, times, self.scale)
        if self.model == "convex":
            return log_least_squares(
                incidence,
                np.maximum(y, LOG_FLOOR),
                times,
                omega=penalty,
                tolerance=self.tolerance,
                used=present,
            )
        return coordinate_descent(
            incidence,
            y,
            sent,
            times,
            penalty=penalty,
            regulariser=self.model,
            tolerance=self.tolerance,
            used=present,
        ).success


class NetBouncerStage(NetBouncer):
    """NetBouncer in five rounds; each removes the links that it blames (Canary, section IV-D).

    The paths through a removed link are removed with it, since their other links would otherwise be
    blamed for its losses. Later rounds cannot find more than the first: a link is blamed if the sum
    of c (c - y) over its paths is above lambda / 2, and removing paths only removes terms. In the
    Canary paper's figure 8 one round finds 15 of 26 links and five find 22; here both find the
    same.

    Of four probed paths, up and back, one loses 20 %; such probes do not tell directions apart:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Probes, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(2, 2)
    >>> over = [(leaf, spine) for leaf in ("leaf0", "leaf1") for spine in ("spine0", "spine1")]
    >>> paths = fabric.paths_over(*(f"{leaf}->{spine}->{leaf}" for leaf, spine in over))
    >>> probes = Probes(paths, sent=np.full(4, 1000), lost=np.array([200, 0, 0, 0]))
    >>> verdict = NetBouncerStage().localize(Telemetry(fabric, "none", probes=probes))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['leaf0->spine0', 'spine0->leaf0']
    """

    base = "netbouncer-stage"
    paper = "Canary, IV-D"
    rounds = 5


def penalty_for(incidence: Incidence, times: FloatArray, scale: float) -> float:
    """Return lambda for the number n of the paper's paths over a link: ``scale * n ** 0.25``.

    A link is blamed if its paths lose lambda / 2 together that other links do not explain. A
    healthy link shares some sqrt(n) paths with a faulty one next to it. What these lose, measured
    in the paper's paths of `PATH_PROBES` probes, has a standard deviation of up to 0.05 times the
    fourth root of n. Lambda is therefore proportional to that root; the calibration chooses the
    scale, and begins with 0.2, the paper's lambda of 1 at the 576 paths a link of its 27,648
    servers.

    Args:
        incidence: Paths and links.
        times: How many of the paper's paths each path counts as, float64[n_paths].
        scale: The factor.
    """
    of_link = incidence.sum_on(times)
    crossed = of_link[of_link > 0]
    return scale * float(np.median(crossed)) ** 0.25 if len(crossed) else scale


def good_paths(incidence: Incidence, probes: Probes, link_threshold: float = 1.0) -> BoolArray:
    """Return which probed paths lose no more than if all their links were at the threshold:
    bool[n_paths].

    With a threshold of 1 these are the paths that lost fewer than one in `PATH_PROBES` probes, so
    that some `PATH_PROBES` of them (all, if there are fewer) lost none (figure 3: Y = 1).
    """
    if link_threshold == 1:
        good = probes.lost * PATH_PROBES < np.maximum(probes.sent, 1)
    else:
        good = probes.lost <= (1 - link_threshold ** np.diff(incidence.path_ptr)) * probes.sent
    return (probes.sent > 0) & good


def bad_devices(
    incidence: Incidence,
    present: BoolArray,
    good: BoolArray,
    topology: Fabric,
    lucky_share: float = 0.0,
    shift: int = 1,
) -> BoolArray:
    """Return which switches are bad, bool[n_switches]: those of whose paths at most ``lucky_share``
    are good (figure 3: none). A switch that no path crosses is not bad.

    Args:
        incidence: Paths and links of ``topology``.
        present, good: Which paths were probed, and which of them are good, bool[n_paths].
        topology: The fabric.
        lucky_share: The share of a bad switch's paths that may be good by luck.
        shift: 1 if the links are undirected ones, 0 if directed.
    """
    crossed, fine = np.zeros((2, topology.n_switches))
    for end in (topology.link_src, topology.link_dst):
        of_link = end[incidence.link_ids << shift]
        crossed += np.bincount(of_link, incidence.sum_on(present.astype(int)), topology.n_switches)
        fine += np.bincount(of_link, incidence.sum_on(good.astype(int)), topology.n_switches)
    return (crossed > 0) & (fine <= lucky_share * crossed)
