# SPDX-License-Identifier: Apache-2.0
"""The core of Flock: log-likelihoods of a hypothesis, and the change that a flip makes.

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
pairs, with a correction for each missing top. It takes no time that grows with the paths. What the
climbs of a list count is kept until they change, and which tops are missing is counted once for all
ToRs of a pod that miss the same.

**Gains** are kept in blocks, and after a flip only the blocks that it changed are updated. Greedy
search needs the flip with the highest gain after each flip; of a hundred thousand components, a
flip changes the gains of some hundred.

**Directions.** Which direction of a link failed, or both, is decided by all groups, one link after
the other, since probes that bounce do not tell. `turn` computes this from the groups over the link
alone, without the update of every component's delta that a flip makes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.methods.flock.listed import Listed
from analysis.methods.flock.pairs import Met, Pairs, ShareScratch
from analysis.solvers.parts import in_parts
from testbed.arrays import BoolArray, FloatArray, FloatMatrix, IntArray, LongArray, WordArray
from testbed.kernels import Bound, Kernels

KERNELS = Kernels.beside(__file__)
_DIRECTIONS = Kernels.beside(__file__, "directions.c")


class State(NamedTuple):
    """A hypothesis with the quantities that follow from it; kernels modify it.

    Attributes:
        listed, pairs: The groups, in the state of the hypothesis.
        failed: The hypothesis, bool[n_components].
        delta: Change of the log-likelihood in nats if a component is flipped,
            float64[n_components].
        scratch: Scratch memory, all 0 between two calls, int32[n_components].
        prior: Log-odds of each component's failure, float64[n_components].
        posterior: Log posterior relative to no failure, float64[1].
        met, shares: Scratch memory.
    """

    listed: Listed
    pairs: Pairs
    failed: BoolArray
    delta: FloatArray
    scratch: IntArray
    prior: FloatArray
    posterior: FloatArray
    met: Met
    shares: ShareScratch

    @classmethod
    def of(cls, listed: Listed, pairs: Pairs, prior: FloatArray) -> State:
        """Return the hypothesis of no failure, with a delta of 0; the groups, in its state, are
        modified from then on."""
        n = len(prior)
        return cls(
            listed=listed,
            pairs=pairs,
            failed=np.zeros(n, np.bool_),
            delta=np.zeros(n),
            scratch=np.zeros(n, np.int32),
            prior=prior,
            posterior=np.zeros(1),
            met=Met.of(pairs),
            shares=ShareScratch.of(pairs.climbs, n),
        )

    @property
    def n_components(self) -> int:
        """Return the number of links and switches that may fail."""
        return len(self.failed)

    def bound(self) -> Bound:
        """Return this hypothesis in the form that the functions below take."""
        return KERNELS.bound("State", self)


def accumulate(listed: Listed, pairs: Pairs, failed: BoolArray) -> FloatArray:
    """Return the change of the log-likelihood of all groups if each component is flipped:
    float64[n_components]."""
    n = len(failed)

    def of_listed(part: int, parts: int) -> FloatArray:
        """Return the share of one part of the listed groups."""
        delta, scratch = np.zeros(n), np.zeros(n, np.int32)
        KERNELS.accumulate_listed(
            part=part, parts=parts, listed=listed, failed=failed, delta=delta, scratch=scratch
        )
        return delta

    def of_pairs(part: int, parts: int, way: int) -> FloatArray:
        """Return the share of one part of the lists of one way, 0 up or 1 down."""
        delta, scratch = np.zeros(n), ShareScratch.of(pairs.climbs, n)
        KERNELS.accumulate_pairs(
            part=part,
            parts=parts,
            pairs=pairs,
            way=way,
            failed=failed,
            delta=delta,
            scratch=scratch,
        )
        return delta

    shares = in_parts(len(listed.components), of_listed)
    if len(pairs.bad):
        for way in (0, 1):  # one after the other, so that a group is in one part
            shares += in_parts(len(pairs.climbs.components), of_pairs, way)
    return np.sum(shares, axis=0)


def flip(component: int, state: Bound) -> None:
    """Flip a component of the hypothesis and update delta and the posterior."""
    KERNELS.flip_one(component=component, state=state)


def place(components: LongArray, state: Bound) -> None:
    """Flip many components (int64[n]) at once, without updating delta and the posterior."""
    KERNELS.place(components=components, state=state)


def likelihood(state: Bound) -> float:
    """Return the log-likelihood of all groups in nats, relative to that of no failure."""
    return KERNELS.likelihood(state=state)


BETTER = 1e-6
"""Nats by which a hypothesis must be better than another; smaller differences are rounding."""


class Room(NamedTuple):
    """Scratch memory of `turn`.

    Attributes:
        at: Indices of the words, or of the tops, to which the climbs lead whose state a flip
            changes, int64[].
        tops: The bits of these tops in each word, uint64[].
        near: A cache of the log-likelihood of each group with one bad path less than now, with as
            many, and with one more, float64[n_groups, 4]; nan = unknown. Most flips need only
            these.
    """

    at: LongArray
    tops: WordArray
    near: FloatMatrix

    @classmethod
    def of(cls, pairs: Pairs) -> Room:
        """Return memory for the longest list of climbs of ``pairs``, with nothing cached."""
        most = int(np.diff(pairs.climbs.list_ptr).max(initial=0))
        near = np.full((len(pairs.bad), 4), np.nan)
        return cls(np.zeros(most, np.int64), np.zeros(most, np.uint64), near)


def turn(links: LongArray, room: Room, state: Bound) -> None:
    """Set each of the directed ``links``, int64[n] in ascending order, and its other direction to
    their most likely state with all other components fixed; repeat that once. Delta is not
    updated."""
    _DIRECTIONS.turn(links=links, room=room, state=state)
