/* SPDX-License-Identifier: Apache-2.0 */
/* The likelihood of a hypothesis and of its neighbours; see likelihood.py. */
#include "likelihood.h"

/* Add the contribution to delta of one part of the listed groups. `scratch` is all 0. */
KERNEL void accumulate_listed(int64_t part, int64_t parts, const Listed *listed,
                              int64_t n_components, const bool failed[n_components],
                              double delta[n_components], int32_t scratch[n_components]) {
    int64_t n = listed->n_groups;
    for (int64_t g = part_begin(n, part, parts); g < part_end(n, part, parts); g++)
        listed_share(listed, g, 1.0, failed, delta, scratch);
}

/* Add the contribution to delta of one part of the lists of one way, 0 up or 1 down. */
KERNEL void accumulate_pairs(int64_t part, int64_t parts, const Pairs *pairs, int64_t way,
                             int64_t n_components, const bool failed[n_components],
                             double delta[n_components], const ShareScratch *scratch) {
    int64_t half = pairs->climbs.n_lists / 2;
    for (int64_t list = way * half + part; list < (1 + way) * half; list += parts) {
        Chosen chosen = all_groups(pairs, list);
        share(pairs, list, 1.0, &chosen, failed, delta, scratch);
    }
}

/* Flip a component and update delta and the posterior. */
KERNEL void flip_one(int64_t component, const State *state) {
    flip_with_posterior(component, state);
}

/* Flip many components at once, without updating delta. */
KERNEL void place(int64_t n, const int64_t components[n], const State *state) {
    for (int64_t i = 0; i < n; i++) {
        step_pairs(components[i], &state->pairs, state->failed[components[i]] ? -1 : 1);
        step(components[i], &state->listed, state->failed);
    }
    for (int64_t g = 0; g < state->pairs.n_groups; g++)
        recount_group(&state->pairs, g);
}

/* Return the log-likelihood of all groups in nats, relative to that of no failure. */
KERNEL double likelihood(const State *state) {
    const Listed *listed = &state->listed;
    const Pairs *pairs = &state->pairs;
    double total = 0.0;
    for (int64_t g = 0; g < listed->n_groups; g++)
        total += value(&listed->values, g, listed->bad[g]);
    for (int64_t g = 0; g < pairs->n_groups; g++)
        total += value(&pairs->values, g, pairs->bad[g]);
    return total;
}
