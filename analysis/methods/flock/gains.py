"""What each flip would gain, in blocks: after a flip only blocks that it touched are looked at.

Greedy search asks for the flip that gains most after each flip, of a hundred thousand components of
which a flip changes some hundred.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.methods.flock.likelihood import State
from testbed.arrays import BoolArray, FloatArray, LongArray
from testbed.fabric.compiled import kernel

BETTER = 1e-6
"""Nats by which a hypothesis must be better: less is rounding."""

_BLOCK = 256


class Gains(NamedTuple):
    """What each allowed flip adds to the log posterior, and the most of each block of them.

    ``gain`` float64[n_components], -inf where a flip is not ``allowed`` (bool[n_components]), or
    takes back a failure without ``remove``, or is of component ``but[0]`` (-1: none); ``most``
    float64[blocks]; both are out of date in ``stale`` blocks, bool[blocks].
    """

    gain: FloatArray
    most: FloatArray
    stale: BoolArray
    allowed: BoolArray
    remove: bool
    but: LongArray

    @classmethod
    def of(cls, allowed: BoolArray, *, remove: bool) -> Gains:
        """Nothing known yet."""
        blocks = -(-len(allowed) // _BLOCK)
        return cls(
            gain=np.empty(len(allowed)),
            most=np.empty(blocks),
            stale=np.ones(blocks, np.bool_),
            allowed=allowed,
            remove=remove,
            but=np.full(1, -1),
        )


@kernel
def touched(component, gains: Gains, s: State):
    """What shares a group with a component is out of date."""
    gains.stale[component // _BLOCK] = True
    pairs, listed = s.pairs, s.listed
    if pairs.component_ptr[component] < pairs.component_ptr[component + 1]:
        gains.stale[:] = True  # a flip of it takes far longer than to look at all
        return
    for at in range(listed.component_ptr[component], listed.component_ptr[component + 1]):
        g = listed.groups[at]
        first, last = listed.group_ptr[g], listed.group_ptr[g + 1]
        for e in range(listed.path_ptr[first], listed.path_ptr[last]):
            gains.stale[listed.components[e] // _BLOCK] = True


@kernel
def most_gained(gains: Gains, s: State):
    """The most that a flip adds, 0 if none does; brings all up to date."""
    most, n = 0.0, len(gains.gain)
    failed, delta, prior = s.failed, s.delta, s.prior
    for block in range(len(gains.most)):
        if gains.stale[block]:
            gains.stale[block] = False
            top = -np.inf
            for c in range(block * _BLOCK, min((block + 1) * _BLOCK, n)):
                if not gains.allowed[c] or (failed[c] and not gains.remove) or c == gains.but[0]:
                    gains.gain[c] = -np.inf
                    continue
                gains.gain[c] = delta[c] - prior[c] if failed[c] else delta[c] + prior[c]
                top = max(top, gains.gain[c])
            gains.most[block] = top
        most = max(most, gains.most[block])
    return most


@kernel
def hope(gains: Gains, s: State):
    """The log posterior if all that now adds to it could be had together."""
    total = s.posterior[0]
    for block in range(len(gains.most)):
        if gains.most[block] > 0:
            for gain in gains.gain[block * _BLOCK : (block + 1) * _BLOCK]:
                if gain > 0:
                    total += gain
    return total


@kernel
def first_best(gains: Gains, most):
    """The first component whose gain is ``most``, the greatest, but for rounding; -1 if that is
    none."""
    if most <= BETTER:
        return -1
    least = max(most - 1e-9 * most, BETTER)
    for block in range(len(gains.most)):
        if gains.most[block] >= least:
            for c in range(block * _BLOCK, min((block + 1) * _BLOCK, len(gains.gain))):
                if gains.gain[c] >= least:
                    return c
    return -1
