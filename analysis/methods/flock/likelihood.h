/* SPDX-License-Identifier: Apache-2.0 */
/* A hypothesis with all that follows from it, the change that a flip makes, and the gains of flips
 * (joint likelihood exploration, section 3.3). */
#include "listed.h"
#include "pairs.h"

/* A hypothesis, and the scratch memory of its flips; see `State` in likelihood.py. */
typedef struct {
    Listed listed;
    Pairs pairs;
    int64_t n_components;
    bool *failed;
    double *delta;       /* change of the log-likelihood in nats if a component is flipped */
    int32_t *scratch;    /* [n_components]: all 0 between two calls */
    const double *prior; /* log-odds of each component's failure */
    double *posterior;   /* [1]: log posterior relative to no failure */
    Met met;
    ShareScratch shares;
} State;

/* Flip a component of the hypothesis and update delta, but not the posterior. */
static void flip(int64_t component, const State *s) {
    flip_listed(component, &s->listed, s->failed, s->delta, s->scratch);
    flip_pairs(component, &s->pairs, s->failed, s->delta, &s->met, &s->shares);
    s->failed[component] = !s->failed[component];
}

/* Return what a flip of a component adds to the log prior. */
static double prior_of_flip(int64_t component, const State *s) {
    return s->failed[component] ? -s->prior[component] : s->prior[component];
}

/* Flip a component and update delta and the posterior. */
SHARED void flip_with_posterior(int64_t component, const State *s) {
    s->posterior[0] += s->delta[component] + prior_of_flip(component, s);
    flip(component, s);
}
