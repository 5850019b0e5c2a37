/* SPDX-License-Identifier: Apache-2.0 */
/* Groups whose possible paths are listed: their contributions to delta, and their update after a
 * flip (joint likelihood exploration, section 3.3). */
#include "flow_values.h"

/* Groups with their paths, and the state of a hypothesis on them; see `Listed` in listed.py. */
typedef struct {
    int64_t n_groups;
    const int64_t *group_ptr;     /* [n_groups + 1]: group g has the paths from group_ptr[g] on */
    const int64_t *path_ptr;      /* [n_paths + 1] */
    const int32_t *components;    /* of path p from path_ptr[p] on, each once */
    const int64_t *component_ptr; /* [n_components + 1] */
    const int32_t *groups;        /* in which component c occurs, from component_ptr[c] on */
    FlowValues values;
    int32_t *failures; /* [n_paths]: failed components of each path */
    int32_t *bad;      /* [n_groups]: bad paths of each group */
} Listed;

/* Add group g's contribution to every component's delta, times `sign`.
 *
 * If a component fails, its paths without a failed component become bad; if it is released, those
 * on which it is the only failed one become good. `scratch`, one number for each component, is 0
 * before and after. */
static void listed_share(const Listed *listed, int64_t g, double sign, const bool *failed,
                         double *delta, int32_t *scratch) {
    const int64_t *path_ptr = listed->path_ptr;
    const int32_t *components = listed->components, *failures = listed->failures;
    int64_t first = listed->group_ptr[g], end = listed->group_ptr[g + 1];
    if (end == first + 1) {
        if (failures[first] <= 1) {
            double change = sign * (value(&listed->values, g, 1) - value(&listed->values, g, 0));
            for (int64_t e = path_ptr[first]; e < path_ptr[first + 1]; e++) {
                int32_t c = components[e];
                if (failures[first] == 0)
                    delta[c] += change;
                else if (failed[c])
                    delta[c] -= change;
            }
        }
        return;
    }
    for (int64_t p = first; p < end; p++) {
        if (failures[p] <= 1) {
            for (int64_t e = path_ptr[p]; e < path_ptr[p + 1]; e++) {
                int32_t c = components[e];
                if (failures[p] == failed[c])
                    scratch[c]++;
            }
        }
    }
    int64_t bad = listed->bad[g];
    double now = value(&listed->values, g, bad);
    for (int64_t e = path_ptr[first]; e < path_ptr[end]; e++) {
        int32_t c = components[e];
        if (scratch[c]) {
            int64_t then = failed[c] ? bad - scratch[c] : bad + scratch[c];
            delta[c] += sign * (value(&listed->values, g, then) - now);
            scratch[c] = 0;
        }
    }
}

/* Count a component's failure (`by` 1) or release (-1) on the paths of group g. */
static void step_listed(const Listed *listed, int64_t g, int64_t component, int by) {
    for (int64_t p = listed->group_ptr[g]; p < listed->group_ptr[g + 1]; p++) {
        for (int64_t e = listed->path_ptr[p]; e < listed->path_ptr[p + 1]; e++) {
            if (listed->components[e] == component) {
                if (by == 1 && listed->failures[p] == 0)
                    listed->bad[g]++;
                else if (by == -1 && listed->failures[p] == 1)
                    listed->bad[g]--;
                listed->failures[p] += by;
            }
        }
    }
}

/* Update the groups of a component, and their contributions to delta, for its flip. `failed` is the
 * same after the call as before. */
static void flip_listed(int64_t component, const Listed *listed, bool *failed, double *delta,
                        int32_t *scratch) {
    bool fails = !failed[component];
    const int64_t *ptr = listed->component_ptr;
    for (int64_t at = ptr[component]; at < ptr[component + 1]; at++) {
        int64_t g = listed->groups[at];
        listed_share(listed, g, -1.0, failed, delta, scratch);
        step_listed(listed, g, component, fails ? 1 : -1);
        failed[component] = fails;
        listed_share(listed, g, 1.0, failed, delta, scratch);
        failed[component] = !fails;
    }
}

/* Return the change of the log-likelihood of listed groups if a component is flipped, computed from
 * its groups and not from delta. */
SHARED double gain_of(int64_t component, const Listed *listed, const bool *failed) {
    double gain = 0.0;
    int32_t turns = failed[component] ? 1 : 0; /* failures of a path that turns good or bad */
    const int64_t *ptr = listed->component_ptr;
    for (int64_t at = ptr[component]; at < ptr[component + 1]; at++) {
        int64_t g = listed->groups[at], turned = 0;
        for (int64_t p = listed->group_ptr[g]; p < listed->group_ptr[g + 1]; p++) {
            if (listed->failures[p] != turns)
                continue;
            for (int64_t e = listed->path_ptr[p]; e < listed->path_ptr[p + 1]; e++)
                turned += listed->components[e] == component;
        }
        if (turned) {
            int64_t bad = listed->bad[g], then = turns ? bad - turned : bad + turned;
            gain += value(&listed->values, g, then) - value(&listed->values, g, bad);
        }
    }
    return gain;
}

/* Flip a component and update the listed groups, but not delta. */
static void step(int64_t component, const Listed *listed, bool *failed) {
    int by = failed[component] ? -1 : 1;
    const int64_t *ptr = listed->component_ptr;
    for (int64_t at = ptr[component]; at < ptr[component + 1]; at++)
        step_listed(listed, listed->groups[at], component, by);
    failed[component] = by == 1;
}
