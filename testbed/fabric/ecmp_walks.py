# SPDX-License-Identifier: Apache-2.0
"""Compiled walks over the equal-cost paths through a link: the votes that its connections cast.

``up`` and ``under`` are the upward links that begin and that end at each switch; ``ways_to`` are
the ways from every switch to every ToR, as in `testbed.fabric.ecmp_probabilities`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from testbed.arrays import FloatArray, IntArray
from testbed.compiled import kernel, njit

FAR = 255
"""The number of hops that marks a ToR without a path."""


class _Room(NamedTuple):
    """Working arrays, allocated once.

    Attributes:
        by_switch: Six float64[n_switches] that are zero between two calls.
        queues: Four int32[n_switches].
        on: The links that were met, int32[n_links], and what crosses each, float64[n_links].
    """

    by_switch: tuple[FloatArray, ...]
    queues: tuple[IntArray, ...]
    on: tuple[IntArray, FloatArray]


@njit
def _room(n_switches, n_links):
    n = n_switches
    return _Room(
        (np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)),
        (
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            np.empty(n, np.int32),
        ),
        (np.empty(n_links, np.int32), np.empty(n_links)),
    )


@njit
def shares(links, src, dst, up, under, ways_to):
    """Return the links that share votes with each of ``links``, as CSR, and their shares."""
    votes, room = np.zeros(len(src)), _room(ways_to[0].shape[1], len(src))
    ptr = np.zeros(len(links) + 1, np.int64)
    shared, share = np.empty(1024, np.int32), np.empty(1024)
    for i in range(len(links)):
        _shared(links[i], src, dst, up, under, ways_to, room, votes)
        end = ptr[i] + _shared_by(links[i], votes, *room.on)
        if end > len(shared):
            more = max(end, 2 * len(shared)) - len(shared)
            shared = np.concatenate((shared, np.empty(more, np.int32)))
            share = np.concatenate((share, np.empty(more)))
        shared[ptr[i] : end], share[ptr[i] : end] = (
            room.on[0][: end - ptr[i]],
            room.on[1][: end - ptr[i]],
        )
        ptr[i + 1] = end
    return ptr, shared, share


@kernel
def _shared_by(link, votes, on, share):
    """Write the links with votes to ``on`` and their votes per vote for ``link`` to ``share``.

    ``votes`` is set to zero. Return how many links were written.
    """
    own = votes[link] if votes[link] > 0 else 1.0
    votes[link] = own
    count = 0
    for other in range(len(votes)):
        if votes[other] != 0:
            on[count], share[count] = other, votes[other] / own
            votes[other] = 0.0
            count += 1
    return count


# Long: one sum, with a case for each relative position of the two links.
@njit
def _shared(link, src, dst, up, under, ways_to, room, votes):
    """Add the votes that connections over ``link`` are expected to cast.

    A path over the link u->v is a way from its source to u and one from v to its ToR. Ways are
    counted back from u (``ways``); ``weight`` sums, over the sources whose ways meet in a switch,
    a path's vote times its probability.
    """
    up_ptr, up_link, _ = up
    under_ptr, under_link, _ = under
    hops, down_hops, routes, descents, _ = ways_to
    n_tors = len(hops)
    u, v, climbs = src[link], dst[link], link % 2 == 0
    ways_up, ways_down, weight_up, weight_down = room.by_switch[:4]
    climbing, falling = room.queues[:2]
    mass, queues, (on, on_mass) = room.by_switch[4:], room.queues[2:], room.on
    for t in range(n_tors):
        h, d = hops[t], down_hops[t]
        a_end = b_end = a = b = 0
        if climbs:
            if h[v] == FAR or h[v] + 1 != h[u]:
                continue
            climbing[0], a_end, ways_up[u] = u, 1, 1.0
            onward = routes[t, v]
        else:
            if d[v] == FAR or d[v] + 1 != d[u]:
                continue
            falling[0], b_end, ways_down[u] = u, 1, 1.0
            onward = descents[t, v]
        while a < a_end or b < b_end:
            stop = b_end
            while b < stop:
                x = falling[b]
                b += 1
                if h[x] == d[x]:
                    if ways_up[x] == 0:
                        climbing[a_end] = x
                        a_end += 1
                    ways_up[x] += ways_down[x]
                for e in range(up_ptr[x], up_ptr[x + 1]):
                    z = dst[up_link[e]]
                    if d[z] == d[x] + 1:
                        if ways_down[z] == 0:
                            falling[b_end] = z
                            b_end += 1
                        ways_down[z] += ways_down[x]
            stop = a_end
            while a < stop:
                x = climbing[a]
                a += 1
                for e in range(under_ptr[x], under_ptr[x + 1]):
                    z = src[under_link[e]]
                    if h[z] == h[x] + 1:
                        if ways_up[z] == 0:
                            climbing[a_end] = z
                            a_end += 1
                        ways_up[z] += ways_up[x]
        for i in range(a_end - 1, -1, -1):
            x = climbing[i]
            if x < n_tors and x != t:
                weight_up[x] = 1.0 / (h[x] * routes[t, x])
            for e in range(under_ptr[x], under_ptr[x + 1]):
                z = src[under_link[e]]
                if h[z] == h[x] + 1:
                    weight_up[x] += weight_up[z]
                    votes[under_link[e]] += weight_up[z] * ways_up[x] * onward
        for i in range(b_end - 1, -1, -1):
            x = falling[i]
            if h[x] == d[x]:
                weight_down[x] = weight_up[x]
            for e in range(up_ptr[x], up_ptr[x + 1]):
                z = dst[up_link[e]]
                if d[z] == d[x] + 1:
                    weight_down[x] += weight_down[z]
                    votes[up_link[e] ^ 1] += weight_down[z] * ways_down[x] * onward
        cast = (weight_up[u] if climbs else weight_down[u]) * onward
        votes[link] += cast
        count = forward(v, not climbs, cast, t, up, under, ways_to, mass, queues, on, on_mass)
        for i in range(count):
            votes[on[i]] += on_mass[i]
        for i in range(a_end):
            ways_up[climbing[i]] = weight_up[climbing[i]] = 0.0
        for i in range(b_end):
            ways_down[falling[i]] = weight_down[falling[i]] = 0.0


@kernel
def forward(start, descending, amount, t, up, under, ways_to, mass, queues, on, on_mass):
    """Spread ``amount`` from a switch over the paths to ToR ``t``; return how many links it met.

    Writes them to ``on`` and what crosses each to ``on_mass``. ``mass`` is zeros, before and after.
    """
    up_ptr, up_link, above = up
    under_ptr, under_link, below = under
    hops, down_hops, routes, descents, only = ways_to
    h, d, r, c = hops[t], down_hops[t], routes[t], descents[t]
    mass_up, mass_down = mass
    climbing, falling = queues
    a = b = a_end = b_end = count = 0
    if descending:
        falling[0], b_end, mass_down[start] = start, 1, amount
    else:
        climbing[0], a_end, mass_up[start] = start, 1, amount
    while a < a_end or b < b_end:
        stop = a_end
        while a < stop:
            x = climbing[a]
            a += 1
            share = mass_up[x] / r[x]
            mass_up[x] = 0.0
            if h[x] == d[x]:
                if mass_down[x] == 0:
                    falling[b_end] = x
                    b_end += 1
                mass_down[x] += share * c[x]
            for e in range(up_ptr[x], up_ptr[x + 1]):
                y = above[up_link[e]]
                if h[y] + 1 == h[x]:
                    if mass_up[y] == 0:
                        climbing[a_end] = y
                        a_end += 1
                    mass_up[y] += share * r[y]
                    on[count], on_mass[count] = up_link[e], share * r[y]
                    count += 1
        stop = b_end
        while b < stop:
            x = falling[b]
            b += 1
            share = mass_down[x] / c[x]
            mass_down[x] = 0.0
            link = only[t, x]
            first, last = (0, 1) if link >= 0 else (under_ptr[x], under_ptr[x + 1])
            for e in range(first, last):
                if only[t, x] < 0:
                    link = under_link[e]
                y = below[link]
                if d[y] + 1 == d[x]:
                    if mass_down[y] == 0:
                        falling[b_end] = y
                        b_end += 1
                    mass_down[y] += share * c[y]
                    on[count], on_mass[count] = link ^ 1, share * c[y]
                    count += 1
    return count
