# SPDX-License-Identifier: Apache-2.0
"""The setting MONITORS: which switches host Canary's meters (its section III-A).

Terms joined by ``+``; a switch is a monitor if one of them names it:

    tor, agg, core    a tier: the ToRs, the highest tier, those between
    50%core           a share of a tier, drawn by the seed
    core0             a switch by its name
    host              all hosts, whose adapters count at the other end of the ToRs' links to them

Every ToR must be among them, so that each link between switches lies on a segment. A smaller share
of the same seed is a part of a larger one.
"""

from __future__ import annotations

import re

import numpy as np

from testbed.arrays import BoolArray
from testbed.fabric.clos import Fabric, TopologyError
from testbed.fabric.names import nearest

TIERS = ("tor", "agg", "core")

HOSTS = "host"
"""The term for the hosts."""

PLACEMENT = r"[^+\s]+(\+[^+\s]+)*"
"""A regular expression of what may be a placement on some fabric."""

_SHARE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(%|pct)(?P<tier>.*)")


def monitor_switches(fabric: Fabric, text: str, seed: int) -> BoolArray:
    """Return which switches of a fabric host meters, bool[n_switches]; if the hosts do, as
    well, they follow: bool[n_switches + n_hosts].

    Args:
        fabric: The fabric.
        text: The value of MONITORS; see the module.
        seed: Draws the shares. Equal arguments give equal switches.

    Raises:
        TopologyError: A term is unknown, or a ToR is left out (one line).
    """
    found = np.zeros(fabric.n_switches, np.bool_)
    terms = text.split("+")
    for term in terms:
        if term != HOSTS:
            found |= _term(fabric, term, text, seed)
    left_out = np.flatnonzero(~found[: fabric.n_tors])
    if len(left_out):
        raise TopologyError(
            f"MONITORS={text} leaves out {fabric.switch_names[left_out[0]]}: every ToR must be a "
            "monitor, so that all links are measured; add +tor"
        )
    return np.append(found, np.ones(fabric.n_hosts, np.bool_)) if HOSTS in terms else found


def _term(fabric: Fabric, term: str, text: str, seed: int) -> BoolArray:
    share = _SHARE.fullmatch(term)
    if share is not None:
        return _drawn(fabric, share["tier"], float(share["number"]), f"MONITORS={text}", seed)
    tiers = _tiers(fabric)
    if term in tiers:
        return tiers[term]
    if term not in fabric.switch_names:
        raise TopologyError(
            f"MONITORS={text}: {fabric.title} has no tier and no switch {term!r}: "
            f"{nearest(term, [*tiers, HOSTS, *_first_names(fabric)])}"
        )
    return np.arange(fabric.n_switches) == fabric.switch(term)


def _drawn(fabric: Fabric, tier: str, percent: float, option: str, seed: int) -> BoolArray:
    """Return the switches of a share of a tier: those with the smallest random numbers.

    The numbers are a bit generator's own, which are the same in every version of NumPy.
    """
    tiers = _tiers(fabric)
    if tier not in tiers:
        raise TopologyError(
            f"{option}: a share needs a tier, such as 50%core: {nearest(tier, tiers)}"
        )
    if not 0 < percent <= 100:
        raise TopologyError(
            f"{option}: {percent:g}% is out of range: use more than 0 and up to 100%"
        )
    switches = np.flatnonzero(tiers[tier])
    count = round(len(switches) * percent / 100)
    if count == 0:
        raise TopologyError(
            f"{option}: {percent:g}% of {len(switches)} switches rounds to none: use a larger share"
        )
    numbers = np.random.PCG64([seed, 0x304]).random_raw(fabric.n_switches)
    chosen = switches[np.argsort(numbers[switches], kind="stable")[:count]]
    return np.isin(np.arange(fabric.n_switches), chosen)


def _tiers(fabric: Fabric) -> dict[str, BoolArray]:
    """Return the switches of each tier that the fabric has, by the tier's word."""
    is_tor = np.arange(fabric.n_switches) < fabric.n_tors
    top = fabric.tier == fabric.tier.max()
    every = dict(zip(TIERS, (is_tor, ~is_tor & ~top, top), strict=True))
    return {word: switches for word, switches in every.items() if switches.any()}


def _first_names(fabric: Fabric) -> list[str]:
    """Return the name of the first switch of each tier."""
    _, first = np.unique(fabric.tier, return_index=True)
    return [fabric.switch_names[each] for each in first]
