# SPDX-License-Identifier: Apache-2.0
"""Calibration of a method's parameters on training data, by one of two rules.

The settings of a grid are tried on telemetry whose faults are known. `best` takes the settings that
blame the fewest links where nothing is faulty, since a method with false alarms is not used, and of
these the one with the highest mean F1, the figure that comparisons report. It departs from the
grid's first values only for a clear improvement of more than one standard error (Breiman and
others, 1984, section 3.4.3). `choose` is the rule of Flock's section 5.2: of the settings whose
mean precision is at least P, it takes the one with the highest recall. P is 98 % at first; if no
setting reaches it, or recall stays below 25 %, P falls by 5 %. Both rules apply to any method with
parameters. In a comparison all methods should be calibrated by the same rule.

`GRIDS` has what a calibration tries: of every method with parameters, the values of each that
matters. The first value of each parameter is where the search begins, and what stays where nothing
is clearly better: the paper's or, of what the papers leave open, this project's. It does not depend
on the constructors' defaults, so a calibration whose outcome became the default ends where it did
before. Left out are what says what a method reads (``inputs``, ``kinds``), what the user says of a
fault (``fault_rate``, ``link_threshold``), which of several algorithms it is (``groups``, and the
changes of `analysis.methods.variants`, but for the numbers of those that a variant has on); what
only trades time for accuracy (``tolerance``, ``threads``); and what a paper prints as a part of its
algorithm: Canary's lambda, 1 (table III), and the prior of Flock's devices, five times a link's
(3.2). What fits one fabric alone, such as 007's share of all votes, is a rule of what the method
knows, and the rule's constants are calibrated. Variants that are not here have the grid of their
method. So `mle` and `canary-mle` have nothing to calibrate: their rates are estimated from the run,
and their penalty follows from the size of fabric and telemetry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.evaluation.metrics import score
from analysis.methods.base import Localizer, decide
from analysis.methods.diagnosis import Diagnosis
from analysis.telemetry.telemetry import Telemetry
from testbed.errors import UserError

FIRST_PRECISION, STEP, LEAST_RECALL = 0.98, 0.05, 0.25


@dataclass(frozen=True)
class Case:
    """Telemetry with its true faults: the ids of failed directed links, including those of failed
    switches, and the ids of failed switches."""

    telemetry: Telemetry
    links: npt.NDArray[np.integer]
    devices: npt.NDArray[np.integer] = field(default_factory=lambda: np.zeros(0, np.int32))


@dataclass(frozen=True)
class Setting:
    """Parameters, with their mean precision and recall over the training data, see `accuracy`.

    ``f1_of`` is the F1 of each case, on directed or undirected links as the method tells them
    apart, and ``false_alarms`` how many links are blamed in the cases without a fault.
    """

    parameters: Mapping[str, Any]
    precision: float
    recall: float
    f1_of: tuple[float, ...] = ()
    false_alarms: int = 0

    @property
    def f1(self) -> float:
        """Return the harmonic mean, 0 to 1, of the mean precision and the mean recall over the
        cases."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    @property
    def mean_f1(self) -> float:
        """Return the mean, 0 to 1, of the F1 of all cases."""
        return float(np.mean(self.f1_of))


def accuracy(diagnosis: Diagnosis, case: Case) -> tuple[float, float]:
    """Return precision and recall of blamed links and devices by the definition of Flock's appendix
    A.1.

    Links count as undirected, since not all telemetry tells directions apart. Blaming a faulty
    device or any of its links is right. A faulty device is found if it is blamed; otherwise the
    share of its failed links that are blamed counts. Precision is 1 if nothing is blamed, and
    recall is 1 if nothing is faulty.
    """
    fabric = case.telemetry.topology
    ends = np.stack((fabric.link_src[::2], fabric.link_dst[::2]))
    of_blamed = np.isin(ends, diagnosis.devices).any(axis=0)
    of_faulty = np.isin(ends, case.devices).any(axis=0)
    flagged, faulty = np.zeros((2, fabric.n_edges), np.bool_)
    flagged[diagnosis.flagged >> 1] = True
    faulty[case.links >> 1] = True
    alone = flagged & ~of_blamed
    right = int(
        (alone & (faulty | of_faulty)).sum() + np.isin(diagnosis.devices, case.devices).sum()
    )
    blamed = int(alone.sum()) + len(diagnosis.devices)
    single = faulty & ~of_faulty
    found = float((single & flagged).sum())
    for device in case.devices:
        failed = (ends == device).any(axis=0) & faulty
        found += 1.0 if device in diagnosis.devices else flagged[failed].mean()
    there = int(single.sum()) + len(case.devices)
    return right / blamed if blamed else 1.0, found / there if there else 1.0


def calibrate(
    make: Callable[..., Localizer], grid: Mapping[str, Sequence[Any]], cases: Sequence[Case]
) -> list[Setting]:
    """Try every setting of the grid on all cases; return the results in the order of the grid.

    Settings for which the constructor raises ValueError, such as p_good above p_bad, are left out.

    Raises:
        ValueError: There is no training data, or no setting that the method accepts.
    """
    every = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    return _some([_tried(make, parameters, cases) for parameters in every])


def search(
    make: Callable[..., Localizer],
    grid: Mapping[str, Sequence[Any]],
    cases: Sequence[Case],
    progress: Callable[[float], None] = lambda share: None,
    *,
    rule: Callable[[Sequence[Setting]], Setting] | None = None,
    draws: int = 8,
    sweeps: int = 2,
    whole: int = 100,
) -> list[Setting]:
    """Try all settings of a grid of up to ``whole`` settings, or a part of a larger grid; return
    the settings that were tried. ``progress`` receives the share of the work that is done, 0 to 1.

    In a larger grid the search begins with the best of two kinds of settings: that of the first
    values of all parameters, and ``draws`` random ones in which all values of a parameter occur
    about equally often (a Latin hypercube). Then one parameter after the other takes each of its
    values, with the others at the best found so far; this is repeated ``sweeps`` times, or until it
    changes nothing. ``rule`` says which setting is best; default: `best`. Equal arguments give
    equal settings in equal order.

    Raises:
        ValueError: See `calibrate`.
    """
    rule = rule or best
    tried: dict[tuple[Any, ...], Setting | None] = {}
    small = math.prod(len(values) for values in grid.values())
    part = 1 + draws + sweeps * sum(len(values) - 1 for values in grid.values())
    expected = small if small <= whole else part

    def attempt(values: tuple[Any, ...]) -> None:
        """Score the setting with these values, unless it was tried before, and report the progress,
        0 to 1."""
        if values not in tried:
            tried[values] = _tried(make, dict(zip(grid, values, strict=True)), cases)
            progress(min(len(tried) / expected, 1.0))

    if small <= whole:
        for values in product(*grid.values()):
            attempt(values)
        return _some(tried.values())
    rng = np.random.default_rng(0)
    columns = [_spread(values, draws, rng) for values in grid.values()]
    for values in (tuple(v[0] for v in grid.values()), *zip(*columns, strict=True)):
        attempt(values)
    for _ in range(sweeps):
        before = len(tried)
        for at, values in enumerate(grid.values()):
            held = tuple(rule(_some(tried.values())).parameters.values())
            for value in values:
                attempt((*held[:at], value, *held[at + 1 :]))
        if len(tried) == before:
            break
    return _some(tried.values())


def _spread(values: Sequence[Any], n: int, rng: np.random.Generator) -> list[Any]:
    """Return ``n`` of the values in random order, each as often as the others or once more."""
    order = np.resize(rng.permutation(len(values)), n)
    return [values[i] for i in rng.permutation(order)]


def _tried(
    make: Callable[..., Localizer], parameters: Mapping[str, Any], cases: Sequence[Case]
) -> Setting | None:
    """Return the scores of a setting on the cases; None if the method does not accept it."""
    if not cases:
        raise UserError("calibration needs at least one case with its truth")
    try:
        method = make(**parameters)
    except ValueError:
        return None
    each = [(decide(method, case.telemetry), case) for case in cases]
    precision, recall = np.mean([accuracy(*one) for one in each], axis=0)
    alarms = sum(len(diagnosis.flagged) for diagnosis, case in each if not len(case.links))
    f1_of = tuple(_f1(*one) for one in each)
    return Setting(parameters, float(precision), float(recall), f1_of, alarms)


def _f1(diagnosis: Diagnosis, case: Case) -> float:
    return score(diagnosis.flagged, case.links, case.telemetry.topology)[diagnosis.native].f1


def _some(settings: Iterable[Setting | None]) -> list[Setting]:
    found = [setting for setting in settings if setting is not None]
    if not found:
        raise UserError("the method accepts no setting of the grid")
    return found


def best(settings: Sequence[Setting]) -> Setting:
    """Return the setting that is closest to the first one, of those as good as the setting with the
    highest mean F1; only settings with the fewest false alarms count.

    A setting is as good if its difference over the cases is at most one standard error of the mean
    difference. The closest one has the fewest other values; of equals, the one with the higher F1
    is taken, then the one with the higher precision, then the first.
    """
    start, fewest = settings[0].parameters, min(setting.false_alarms for setting in settings)
    quiet = [setting for setting in settings if setting.false_alarms == fewest]
    highest = max(quiet, key=lambda s: s.mean_f1)
    good = [setting for setting in quiet if _as_good(setting, highest)]

    def others(setting: Setting) -> int:
        """Return the number of parameters whose value differs from that of the first setting."""
        return sum(value != start[name] for name, value in setting.parameters.items())

    return min(good, key=lambda s: (others(s), -s.mean_f1, -s.precision))


def _as_good(setting: Setting, highest: Setting) -> bool:
    less = np.subtract(highest.f1_of, setting.f1_of)
    return less.mean() <= less.std() / math.sqrt(max(len(less) - 1, 1))


def choose(settings: Sequence[Setting]) -> Setting:
    """Return the setting that the rule of Flock's section 5.2 chooses; of equals, the one with the
    higher precision, then the first."""
    least = FIRST_PRECISION
    while True:
        good = [setting for setting in settings if setting.precision >= least]
        most = max(good, key=lambda s: (s.recall, s.precision), default=None)
        if most is not None and (most.recall >= LEAST_RECALL or least <= 0):
            return most
        least -= STEP


RULES: Mapping[str, Callable[[Sequence[Setting]], Setting]] = {"f1": best, "precision": choose}
"""The rules by their names in `canary calibrate`."""


Grid = Mapping[str, Sequence[Any]]

GRIDS: Mapping[str, Grid] = {
    "canary": {
        "healthy_loss": (1e-4, 1e-5, 3e-5, 5e-5, 7e-5),
        "alarms": (0.1, 1e-3, 1e-2, 1.0),
    },
    "canary+acquit": {
        "healthy_loss": (1e-4, 1e-5, 3e-5, 5e-5, 7e-5),
        "alarms": (0.1, 1e-3, 1e-2, 1.0),
        "own_share": (1.0, 0.25, 0.5, 0.75),
    },
    "netbouncer": {
        "scale": (0.2, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.14, 0.3, 0.5, 1.0),
    },
    "netbouncer-stage": {
        "scale": (0.2, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.14, 0.3, 0.5, 1.0),
    },
    "flock": {
        "p_bad": (3e-3, 1e-3, 2e-3, 5e-3, 1e-2, 3e-2),
        "p_good": (2e-4, 1e-4, 3e-4, 1e-3),
        "link_prior": (-15.0, -5.0, -7.0, -10.0, -20.0, -35.0),
    },
    "flock+links": {
        "p_bad": (3e-3, 1e-3, 2e-3, 5e-3, 1e-2, 3e-2),
        "p_good": (2e-4, 1e-4, 3e-4, 1e-3),
        "link_prior": (-15.0, -5.0, -7.0, -10.0, -20.0, -35.0),
    },
    "flock+refine+conditional+severe": {
        "p_bad": (3e-3, 1e-3, 2e-3, 5e-3, 1e-2),
        "p_good": (2e-4, 1e-4, 3e-4),
        "link_prior": (-15.0, -5.0, -7.0, -10.0, -20.0),
        "severe_p_bad": (0.05, 0.02, 0.1, 0.2),
    },
    "007": {
        "spread": (1.5, 0.75, 1.0, 1.25, 2.0, 3.0),
        "alarms": (0.1, 1e-3, 1e-2, 1.0),
    },
    "detector": {
        "hit_ratio": (0.6, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.8, 0.9),
        "noise": (1e-5, 1e-6, 5e-5, 1e-4, 2e-4, 5e-4),
        "significance": (0.01, 1e-4, 1e-3, 0.05, 0.1),
    },
    "netscope": {
        "omega": (1.0, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 2.0, 4.0, 10.0),
    },
    "kdd14": {
        "noise": (1e-3, 1e-6, 1e-5, 5e-5, 1e-4, 2e-4, 5e-4, 2e-3),
        "significance": (0.01, 1e-6, 1e-5, 1e-4, 1e-3, 0.05, 0.1),
    },
}
"""The grids by method or variant: the values to try for each parameter."""
