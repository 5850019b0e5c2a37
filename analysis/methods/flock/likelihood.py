"""The compiled core of Flock: log-likelihoods under a hypothesis, and what a flip changes.

Joint likelihood exploration (section 3.3) keeps ``delta[c]``, what flipping component c would add
to the log-likelihood, for every c. Flows with the same possible paths are one *group*. There are
two kinds of groups.

*Listed* groups name their paths; one of a known path is the simple case. After a flip only the
groups that meet the flipped component are visited (theorem 3).

*Pairs* are flows between two ToRs over all equal-cost paths, which are not listed: a path is a
climb of the source and a climb of the destination (backwards) to the same top switch. A list holds
the climbs of one ToR in one direction to the switches of one tier, with a bit for each top that a
climb without failed component reaches; a pair's good paths are the bits its two lists share. How
many good paths of a pair cross a component of the source's climbs is then the same for all its
destinations, but for those that miss a top; so a list's contribution is summed once over all its
pairs, with a correction for each missing top. It takes no time that grows with the paths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.methods.flock.flow_values import value
from analysis.methods.flock.listed import Listed, accumulate_listed, flip_listed, step
from analysis.methods.flock.pairs import (
    Pairs,
    accumulate_pairs,
    flip_pairs,
    place_pairs,
    step_pairs,
)
from analysis.solvers.parts import in_parts
from testbed.arrays import BoolArray, FloatArray, IntArray
from testbed.fabric.compiled import kernel, njit


class State(NamedTuple):
    """A hypothesis and what follows from it, as the compiled functions of a search change it.

    Attributes:
        listed, pairs: The groups, in the state of the hypothesis.
        failed: The hypothesis, bool[n_components].
        delta: What flipping each component adds to the log-likelihood, float64[n_components].
        scratch: Zeros between two calls, int32[n_components].
        prior: Log-odds of each component's failure, float64[n_components].
        posterior: Log posterior relative to no failure, float64[1].
    """

    listed: Listed
    pairs: Pairs
    failed: BoolArray
    delta: FloatArray
    scratch: IntArray
    prior: FloatArray
    posterior: FloatArray


def accumulate(listed: Listed, pairs: Pairs, failed: BoolArray) -> FloatArray:
    """What flipping each component adds to the log-likelihood of all groups."""
    n = len(failed)
    shares = in_parts(len(listed.components), accumulate_listed, listed, failed, n)
    if len(pairs.bad):
        for down in (0, 1):  # one after the other, so that a group is in one part
            shares += in_parts(len(pairs.components), accumulate_pairs, pairs, down, failed, n)
    return np.sum(shares, axis=0)


@njit
def flip(component, s):
    """Flip a component and bring delta up to date; not the posterior."""
    flip_listed(component, s.listed, s.failed, s.delta, s.scratch)
    flip_pairs(component, s.pairs, s.failed, s.delta)
    s.failed[component] = not s.failed[component]


@kernel
def place(components, s):
    """Flip many components at once, without keeping delta."""
    for component in components:
        step_pairs(component, s.pairs, -1 if s.failed[component] else 1)
        step(component, s.listed, s.failed)
    place_pairs(s.pairs)


@kernel
def likelihood(s):
    """Log-likelihood of all groups, relative to that of no failure."""
    total = 0.0
    for g in range(len(s.listed.bad)):
        total += value(s.listed.values, g, s.listed.bad[g])
    for g in range(len(s.pairs.bad)):
        total += value(s.pairs.values, g, s.pairs.bad[g])
    return total
