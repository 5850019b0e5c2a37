/* SPDX-License-Identifier: Apache-2.0 */
/* Greedy search (algorithms 1 and 2) with the gain of every flip kept up to date. Gains are in
 * blocks, and after a flip only the blocks that it changed are updated; see likelihood.py. */
#include "likelihood.h"

enum { BLOCK = 256 };

/* The change of the log posterior for each allowed flip, and the highest in each block; see `Gains`
 * in likelihood.py. */
typedef struct {
    int64_t n_blocks;
    double *gain;        /* [n_components], in nats; -inf for a flip that is not allowed */
    double *most;        /* [n_blocks] */
    bool *stale;         /* [n_blocks]: whether a block's gains must be computed again */
    const bool *allowed; /* [n_components] */
    bool remove;         /* whether failed components may be flipped back */
    double better;       /* nats that a gain must exceed; less is rounding */
} Gains;

/* Return into how many blocks the gains of so many components are divided. */
KERNEL int64_t gain_blocks(int64_t n_components) {
    return (n_components + BLOCK - 1) / BLOCK;
}

static int64_t block_end(int64_t block, const State *s) {
    return least((block + 1) * BLOCK, s->n_components);
}

/* Mark as stale the blocks of all components that share a group with a component. */
static void touched(int64_t component, const Gains *gains, const State *s) {
    const Listed *listed = &s->listed;
    const int64_t *in_lists = s->pairs.climbs.component_ptr, *ptr = listed->component_ptr;
    gains->stale[component / BLOCK] = true;
    if (in_lists[component] < in_lists[component + 1]) {
        for (int64_t block = 0; block < gains->n_blocks; block++)
            gains->stale[block] = true; /* its flip takes far longer than the update of all gains */
        return;
    }
    for (int64_t at = ptr[component]; at < ptr[component + 1]; at++) {
        int64_t g = listed->groups[at];
        int64_t first = listed->path_ptr[listed->group_ptr[g]];
        int64_t end = listed->path_ptr[listed->group_ptr[g + 1]];
        for (int64_t e = first; e < end; e++)
            gains->stale[listed->components[e] / BLOCK] = true;
    }
}

/* Update all stale gains; return the highest gain, or 0 if no flip gains. `but` is a component that
 * may not be flipped, -1 if there is none. */
static double most_gained(const Gains *gains, int64_t but, const State *s) {
    double highest = 0.0;
    for (int64_t block = 0; block < gains->n_blocks; block++) {
        if (gains->stale[block]) {
            gains->stale[block] = false;
            double top = -INFINITY;
            for (int64_t c = block * BLOCK; c < block_end(block, s); c++) {
                bool failed = s->failed[c];
                if (!gains->allowed[c] || (failed && !gains->remove) || c == but) {
                    gains->gain[c] = -INFINITY;
                    continue;
                }
                gains->gain[c] = failed ? s->delta[c] - s->prior[c] : s->delta[c] + s->prior[c];
                if (gains->gain[c] > top)
                    top = gains->gain[c];
            }
            gains->most[block] = top;
        }
        if (gains->most[block] > highest)
            highest = gains->most[block];
    }
    return highest;
}

/* Return the log posterior plus all positive gains: an optimistic estimate of what further flips
 * can reach. */
static double hope(const Gains *gains, const State *s) {
    double total = s->posterior[0];
    for (int64_t block = 0; block < gains->n_blocks; block++)
        if (gains->most[block] > 0)
            for (int64_t c = block * BLOCK; c < block_end(block, s); c++)
                if (gains->gain[c] > 0)
                    total += gains->gain[c];
    return total;
}

/* Return the first component whose gain equals `highest`, the highest gain, up to rounding; -1 if
 * that is no more than rounding. */
static int64_t first_best(const Gains *gains, double highest, const State *s) {
    if (highest <= gains->better)
        return -1;
    double enough = highest - 1e-9 * highest;
    if (gains->better > enough)
        enough = gains->better;
    for (int64_t block = 0; block < gains->n_blocks; block++)
        if (gains->most[block] >= enough)
            for (int64_t c = block * BLOCK; c < block_end(block, s); c++)
                if (gains->gain[c] >= enough)
                    return c;
    return -1;
}

/* Flip a component and mark the gains that this changes as stale. */
KERNEL void flip_among(int64_t component, const Gains *gains, const State *state) {
    flip_with_posterior(component, state);
    touched(component, gains, state);
}

/* Mark all gains as stale that are in a block with a component or share a group with it. */
KERNEL void make_stale(int64_t component, const Gains *gains, const State *state) {
    touched(component, gains, state);
}

/* Flip the component with the highest gain, except for `but`, and return it; return -1 if none
 * gains, or if not even the sum of all gains makes the log posterior higher than `before`. */
KERNEL int64_t flip_best(int64_t but, double before, const Gains *gains, const State *state) {
    int64_t pick = first_best(gains, most_gained(gains, but, state), state);
    if (pick < 0 || (before > -INFINITY && hope(gains, state) <= before))
        return -1;
    flip_among(pick, gains, state);
    return pick;
}

/* Return whether two values of delta are equal up to rounding. */
static bool nearly_equal(double a, double b) {
    return fabs(a - b) <= 1e-7 * (1 + fabs(b));
}

/* Return the last failed component before this one whose delta has changed since its last trial; -1
 * if there is none. */
KERNEL int64_t next_failed(int64_t component, int64_t n, const double tried[n],
                           const State *state) {
    for (int64_t c = component - 1; c >= 0; c--)
        if (state->failed[c] && !nearly_equal(tried[c], state->delta[c]))
            return c;
    return -1;
}

/* Search greedily without joint likelihood exploration: compute the gain of every component again
 * from its groups after each flip. Return the log posterior of the hypothesis found. */
KERNEL double plain_greedy(const Listed *listed, int64_t n, bool failed[n], const double prior[n],
                           double gain[n], double better) {
    double total = 0.0;
    for (;;) {
        double highest = -INFINITY;
        for (int64_t c = 0; c < n; c++) {
            gain[c] = failed[c] ? -INFINITY : gain_of(c, listed, failed) + prior[c];
            if (gain[c] > highest)
                highest = gain[c];
        }
        if (highest <= better)
            return total;
        double enough = highest - 1e-9 * highest;
        if (better > enough)
            enough = better;
        int64_t pick = 0;
        while (gain[pick] < enough)
            pick++;
        total += gain[pick];
        step(pick, listed, failed);
    }
}
