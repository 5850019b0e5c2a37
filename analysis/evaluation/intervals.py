# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals of scores over seeds, of paired differences, and of values of any unit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval; the bounds are nan for fewer than two values."""

    mean: float
    low: float
    high: float


def interval(scores: npt.ArrayLike) -> Interval:
    """Return the mean of scores, 0 to 1, and an interval that holds the true mean in at least 93 of
    100 cases, also of few seeds that look alike; ``tests/analysis/evaluation/test_intervals.py``
    counts it.

    If a score is 0 or 1, as those of good methods often are, the interval is Clopper and Pearson's
    (Biometrika 26, 1934) for the mean as a share of the seeds. It is exact for scores of 0 and 1
    alone, and wider than need be for others. So three seeds with an F1 of 1 give 0.29 to 1. Else it
    is Student's, at 96.5 %, because scores are skewed.
    """
    from scipy.stats import beta, t  # takes a third of a second to import, and few pages need it

    sample = np.asarray(scores, np.float64)
    n, mean = len(sample), float(sample.mean()) if len(sample) else np.nan
    if n < 2:
        return Interval(mean, np.nan, np.nan)
    if sample.min() > 0 and sample.max() < 1 and sample.std() > 0:
        half = float(t.ppf(0.9825, n - 1) * sample.std(ddof=1) / math.sqrt(n))
        return Interval(mean, max(mean - half, 0.0), min(mean + half, 1.0))
    hits = n * mean
    low = float(beta.ppf(0.025, hits, n - hits + 1)) if hits > 0 else 0.0
    high = float(beta.ppf(0.975, hits + 1, n - hits)) if hits < n else 1.0
    return Interval(mean, min(low, mean), max(high, mean))


def paired(differences: npt.ArrayLike) -> Interval:
    """Return the mean difference of two methods over the same seeds, and Student's 95 % interval.
    The bounds are nan for fewer than two seeds, or if all differences are equal."""
    from scipy.stats import t

    sample = np.asarray(differences, np.float64)
    n, mean = len(sample), float(sample.mean()) if len(sample) else np.nan
    if n < 2 or sample.std() == 0:
        return Interval(mean, np.nan, np.nan)
    half = float(t.ppf(0.975, n - 1) * sample.std(ddof=1) / math.sqrt(n))
    return Interval(mean, mean - half, mean + half)


def bootstrap_interval(values: npt.ArrayLike, level: float = 0.95) -> Interval:
    """Return the mean of values of any unit and its percentile-bootstrap interval (10,000 resamples
    with a fixed seed). ``level`` is the share of the resamples in the interval, 0 to 1."""
    from scipy.stats import bootstrap

    sample = np.asarray(values, np.float64)
    if len(sample) < 2:
        return Interval(float(sample.mean()) if len(sample) else np.nan, np.nan, np.nan)
    bounds = bootstrap(
        (sample,),
        np.mean,
        confidence_level=level,
        n_resamples=10_000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Interval(float(sample.mean()), float(bounds.low), float(bounds.high))
