/* SPDX-License-Identifier: Apache-2.0 */
/* Which direction of a link failed, or both: decided by all groups over the link, one link after
 * the other, without the update of every component's delta that a flip makes; see likelihood.py. */
#include "likelihood.h"

enum { TURNS = 2 };
static const double LEAST = 1e-6; /* nats; smaller gains are rounding */

/* Working memory; see `Room` in likelihood.py. */
typedef struct {
    int64_t *at;    /* words, or tops, to which climbs lead whose state a flip changes */
    uint64_t *tops; /* the bits of these tops in each word */
    double *near;   /* [n_groups][4]: log-likelihoods with one bad path less, as many, one more */
} Room;

/* Return the log-likelihood of a group with `by` (-1, 0 or 1) more bad paths, cached in `near`. */
static double known(const Pairs *pairs, int64_t g, int by, double *near) {
    double *cached = near + 4 * g + 1 + by;
    if (isnan(*cached))
        *cached = value(&pairs->values, g, pairs->bad[g] + by);
    return *cached;
}

/* Add `by` to the number of bad paths of a group, and shift its cached values. */
static void moved(int32_t *bad, int64_t g, int64_t by, double *near) {
    double *cached = near + 4 * g;
    double less = cached[0], now = cached[1], more = cached[2];
    bad[g] += (int32_t)by;
    cached[0] = by == 1 ? now : NAN;
    cached[1] = by == 1 ? more : by == -1 ? less : NAN;
    cached[2] = by == -1 ? now : NAN;
}

/* Write to `room` the tops of those climbs of a list that become good or bad by the flip of a
 * component: as words and their indices, or as single tops if several climbs lead to one. Return
 * how many entries were written. */
static int64_t turning(const Pairs *pairs, int64_t list, int64_t component, bool released,
                       const Room *room) {
    const Climbs *climbs = &pairs->climbs;
    int64_t n = 0;
    for (int64_t climb = climbs->list_ptr[list]; climb < climbs->list_ptr[list + 1]; climb++) {
        if (pairs->failures[climb] != released)
            continue;
        for (int64_t e = climbs->climb_ptr[climb]; e < climbs->climb_ptr[climb + 1]; e++) {
            if (climbs->components[e] != component)
                continue;
            int64_t top = climbs->top[climb];
            if (pairs->by_ways) {
                room->at[n++] = top;
                continue;
            }
            if (n == 0 || room->at[n - 1] != top / 64) {
                room->at[n] = top / 64;
                room->tops[n++] = 0;
            }
            room->tops[n - 1] |= UINT64_C(1) << (top % 64);
        }
    }
    return n;
}

/* Return the change of the log-likelihood of pairs of ToRs for the flip of a directed link. With
 * `flips`, update their numbers of bad paths instead, and return 0. */
static double over_pairs(int64_t component, bool flips, const Room *room, const State *s) {
    const Pairs *pairs = &s->pairs;
    const int64_t *ptr = pairs->climbs.component_ptr;
    double gain = 0.0;
    bool released = s->failed[component];
    for (int64_t at = ptr[component]; at < ptr[component + 1]; at++) {
        int64_t list = pairs->climbs.lists[at];
        int64_t n = turning(pairs, list, component, released, room);
        for (int64_t i = pairs->group_ptr[list]; i < pairs->group_ptr[list + 1]; i++) {
            int64_t other = pairs->others[i], turned = 0;
            if (pairs->by_ways) {
                for (int64_t k = 0; k < n; k++)
                    turned += pairs->ways[other * pairs->n_tops + room->at[k]];
            } else {
                for (int64_t k = 0; k < n; k++) {
                    uint64_t good = word_of(pairs->good, pairs, other, room->at[k]);
                    turned += __builtin_popcountll(room->tops[k] & good);
                }
            }
            if (!turned)
                continue;
            int64_t g = pairs->groups[i], by = released ? -turned : turned;
            if (flips)
                moved(pairs->bad, g, by, room->near);
            else if (turned == 1)
                gain += known(pairs, g, (int)by, room->near) - known(pairs, g, 0, room->near);
            else
                gain += value(&pairs->values, g, pairs->bad[g] + by)
                        - known(pairs, g, 0, room->near);
        }
    }
    return gain;
}

/* Return the change of the log-likelihood of listed groups and of the prior for a flip. */
static double over_listed(int64_t component, const State *s) {
    return prior_of_flip(component, s) + gain_of(component, &s->listed, s->failed);
}

/* Flip a component and update the pairs' caches, but not delta. */
static void flip_direction(int64_t component, const Room *room, const State *s) {
    over_pairs(component, true, room, s);
    step_pairs(component, &s->pairs, s->failed[component] ? -1 : 1);
    step(component, &s->listed, s->failed);
}

/* Flip one, both or neither of two directions of a link, whichever is likeliest; return whether
 * anything changed. A flow of a pair of ToRs crosses a link in one direction only, so the gains of
 * the two directions add up for pairs. */
static bool turn_link(int64_t one, int64_t other, const Room *room, const State *s) {
    double first = over_pairs(one, false, room, s), second = over_pairs(other, false, room, s);
    double alone = first + over_listed(one, s), instead = second + over_listed(other, s);
    step(one, &s->listed, s->failed);
    double both = alone + second + over_listed(other, s);
    step(one, &s->listed, s->failed);
    double highest = alone;
    if (instead > highest)
        highest = instead;
    if (both > highest)
        highest = both;
    if (highest <= LEAST)
        return false;
    if (highest != instead)
        flip_direction(one, room, s);
    if (highest != alone)
        flip_direction(other, room, s);
    s->posterior[0] += highest;
    return true;
}

/* Set each of the directed `links`, in ascending order, and its other direction to their most
 * likely state with all other components fixed; repeat up to TURNS times. Delta is not updated. */
KERNEL void turn(int64_t n, const int64_t links[n], const Room *room, const State *state) {
    for (int round = 0; round < TURNS; round++) {
        bool changed = false;
        int64_t before = -1;
        for (int64_t i = 0; i < n; i++) {
            if ((links[i] ^ 1) != before) /* otherwise both directions have just been set */
                changed |= turn_link(links[i], links[i] ^ 1, room, state);
            before = links[i];
        }
        if (!changed)
            return;
    }
}
