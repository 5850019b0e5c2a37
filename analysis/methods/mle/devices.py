# SPDX-License-Identifier: Apache-2.0
"""Failed devices: one statement about a switch in place of many about its links.

The search blames links one by one, and each pays in nats for having been picked among all links. A
failed device pays this price once, plus the cost of one more rate. The model assumes that half of
all failed devices have no healthy link (ln 2 nats), and that in the others every number m of faulty
links out of n is equally likely, so that naming them costs ln 2 + ln n + ln C(n, m). With most
links of a device blamed, little evidence is then needed to blame the rest. The links outside are
counted in the same way, at ln(n + 1) + ln C(n, m): where a tenth of all links are faulty, three
faulty ones among a switch's sixteen are no evidence for a failed device.

Each link of a failed device has a rate of its own, whose cost is the difference between its
likelihood and its evidence. For a faulty link, with a rate log-uniform from the least of a fault to
1, this is the logarithm of that range over the width of the likelihood's peak in ln x; for a
healthy link it is the same under its law (`analysis.methods.mle.likelihood.evidence`).

Each path through a device has one link in and one link out. If all links in lose more and all links
out lose less, no such path shows a difference, and a search that adds links one by one ends where
some of them lose nothing. So the two sides are balanced, until their lowest rates are equal, before
the search decides which of the links are healthy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from analysis.methods.mle.likelihood import PENALTY, STATE, Problem
from analysis.methods.mle.moves import LENIENT, finish
from analysis.methods.mle.problem import Units
from analysis.methods.mle.search import RATE, penalty_of
from testbed.arrays import BoolArray, FloatArray, IntArray
from testbed.fabric.clos import Fabric
from testbed.kernels import Kernels

KERNELS = Kernels.beside(__file__)

FEWEST = 2
"""The least number of links of a device that must look faulty before it is considered."""


class Failed(NamedTuple):
    """The failed switches, ``devices``, and those of them without an observed healthy link,
    ``whole``: ascending ids, int32[]."""

    devices: IntArray
    whole: IntArray


def failed_devices(
    s: Problem,
    fabric: Fabric,
    units: Units,
    *,
    penalty: float | None = None,
    counted: FloatArray | None = None,
) -> Failed:
    """Blame devices, and those of their links that are more likely faulty than healthy, as long as
    this improves the explanation ``s``, which is modified. Return the failed devices.

    ``penalty`` is that of `analysis.methods.mle.search.explain`. If the packets that arrived are
    partly estimates, ``counted``, float64[U], has those that were counted, and only these can clear
    a link of a failed device: a missing trace is no evidence of a healthy link, as it may be lost
    or the switches too busy to answer.
    """
    free = np.ones(len(units.size), np.bool_)  # units of no failed device
    members = _members(fabric, units)
    failed: list[int] = []
    changed = True
    while changed:
        changed = False
        for device in _candidates(s, members, free):
            own = members[device][free[members[device]]]
            if _explains(s, own, free):
                failed.append(device)
                free[own] = False
                changed = True
                if penalty is None:  # a device's links do not make others likelier to be faulty
                    blamed = int(s.blamed[free].sum())
                    s.law[PENALTY] = penalty_of(int(free.sum()), max(blamed - 1, 0))
                KERNELS.release_around(outside=free, s=s.bound)
    if counted is not None:
        for own in (members[device] for device in failed):
            s.arrived[own] = counted[own]
            KERNELS.fail_device(own=own, side=_sides(own, s), s=s.bound)
    if failed:
        finish(s)
    whole = [device for device in failed if s.blamed[members[device]].all()]
    return Failed(*(np.array(sorted(each), np.int32) for each in (failed, whole)))


def _members(fabric: Fabric, units: Units) -> list[IntArray]:
    """Return, for each switch, the units all of whose links begin or end at it: int32[] each."""
    observed = np.flatnonzero(units.of_link >= 0)
    unit_of = units.of_link[observed]
    ends = np.concatenate((fabric.link_src[observed], fabric.link_dst[observed])).astype(np.int64)
    pair, count = np.unique(ends * len(units.size) + np.tile(unit_of, 2), return_counts=True)
    device, unit = np.divmod(pair, max(len(units.size), 1))
    whole = count == units.size[unit]
    device, unit = device[whole], unit[whole].astype(np.int32)
    return np.split(unit, np.searchsorted(device, np.arange(1, fabric.n_switches)))


def _candidates(s: Problem, members: list[IntArray], free: BoolArray) -> list[int]:
    """Return the devices of which at least `FEWEST` links and a quarter of all look faulty, those
    with most evidence first."""
    looks = np.where(free, np.maximum(s.gains - LENIENT, 0.0), 0.0)
    worth = np.array([looks[own].sum() for own in members])
    many = np.array([(looks[own] > 0).sum() >= max(FEWEST, len(own) / 4) for own in members])
    chosen = np.flatnonzero(many & (worth > math.log(max(len(members), 1))))
    return chosen[np.argsort(-worth[chosen], kind="stable")].tolist()


def _explains(s: Problem, own: IntArray, free: BoolArray) -> bool:
    """Blame the device with the units ``own`` if this makes the whole explanation more likely, and
    return whether it did; otherwise ``s`` is unchanged."""
    before = [getattr(s, name).copy() for name in STATE]
    total, faulty, mine = int(free.sum()), int(s.blamed[free].sum()), int(s.blamed[own].sum())
    paid = rates(own, s)
    gained = KERNELS.fail_device(own=own, side=_sides(own, s), s=s.bound)
    now = int(s.blamed[own].sum())
    cost = max(s.law[PENALTY], penalty_of(total)) + RATE + _share(len(own), now)
    cost += choice(total - len(own), faulty - mine) - choice(total, faulty)
    if now >= FEWEST and gained - (rates(own, s) - paid) > cost:
        return True
    for name, array in zip(STATE, before, strict=True):
        getattr(s, name)[:] = array
    return False


def choice(n: int, m: int) -> float:
    """Return the cost in nats of naming m faulty ones of n, if every m is equally likely:
    ln(n + 1) + ln C(n, m)."""
    return math.lgamma(n + 2) - math.lgamma(m + 1) - math.lgamma(n - m + 1)


def _share(n: int, m: int) -> float:
    """Return the same cost for a failed device, of which half are assumed to have no healthy
    link."""
    return KERNELS.device_share(n=n, m=m)


def rates(own: IntArray, s: Problem) -> float:
    """Return by how many nats the evidence of the rates of the units ``own``, int32[], is below
    their likelihood."""
    return KERNELS.rate_costs(own=own, s=s.bound)


def _sides(own: IntArray, s: Problem) -> IntArray:
    """Return the side of each unit of a device, int32[len(own)]: 1 or -1, so that no two units of a
    side share a row, as its links in and its links out do; 0 for units without such a division."""
    place = {int(unit): nth for nth, unit in enumerate(own)}
    near: list[set[int]] = [set() for _ in own]
    for nth, unit in enumerate(own):
        for row in s.rows[s.unit_ptr[unit] : s.unit_ptr[unit + 1]]:
            near[nth].update(
                place[int(j)] for j in s.units[s.ptr[row] : s.ptr[row + 1]] if int(j) in place
            )
        near[nth].discard(nth)
    side = np.zeros(len(own), np.int32)
    for first in range(len(own)):
        if side[first] or not near[first]:
            continue
        side[first], waiting = 1, [first]
        while waiting:
            here = waiting.pop()
            for there in near[here]:
                if side[there] == side[here]:
                    return np.zeros(len(own), np.int32)
                if not side[there]:
                    side[there] = -side[here]
                    waiting.append(there)
    return side
