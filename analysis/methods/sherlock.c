/* SPDX-License-Identifier: Apache-2.0 */
/* Ferret (SIGCOMM 2007, section 3.2): the hypotheses of at most k failures, depth first. */
#include "flock/likelihood.h"

/* Return the change of the log-likelihood if a component is flipped. */
static double gain_of_flip(int64_t component, bool jle, const State *s) {
    return jle ? s->delta[component] : gain_of(component, &s->listed, s->failed);
}

static void flip_either_way(int64_t component, bool jle, const State *s) {
    if (jle)
        flip(component, s);
    else
        step(component, &s->listed, s->failed);
}

/* Search the sets of at most `deepest` components depth first, in ascending order; score the
 * children of each set. Write the best set to `best` and return its log posterior.
 *
 * With `jle`, all children of a set are scored at once. A set must be better by more than `better`
 * nats. `chosen`, `following` and `values`, by depth, are scratch. */
KERNEL double ferret(int64_t deepest, bool jle, double better, int64_t n, bool best[n],
                     int64_t depths, int64_t chosen[depths], int64_t following[depths],
                     double values[depths], const State *state) {
    double value = 0.0, highest = 0.0;
    int64_t depth = 0;
    bool unexplored = true;
    memset(best, 0, (size_t)n * sizeof *best);
    following[0] = 0;
    while (depth >= 0) {
        if (unexplored) {
            for (int64_t c = following[depth]; c < n; c++) {
                double found = value + gain_of_flip(c, jle, state) + state->prior[c];
                if (found > highest + better) {
                    highest = found;
                    memcpy(best, state->failed, (size_t)n * sizeof *best);
                    best[c] = true;
                }
            }
        }
        int64_t c = following[depth];
        if (depth == deepest - 1 || c == n) {
            depth--;
            if (depth >= 0) {
                flip_either_way(chosen[depth], jle, state);
                value = values[depth];
            }
            unexplored = false;
            continue;
        }
        values[depth] = value;
        value += gain_of_flip(c, jle, state) + state->prior[c];
        flip_either_way(c, jle, state);
        chosen[depth] = c;
        following[depth] = c + 1;
        depth++;
        following[depth] = c + 1;
        unexplored = true;
    }
    return highest;
}
