/* SPDX-License-Identifier: Apache-2.0 */
/* deTector's greedy selection of probe paths (PMC, algorithm 1), for
 * `testbed.fabric.probe_matrix.greedy_selection`. */

#define DONE INT64_MAX /* the score of a candidate that is selected, or useless */

typedef struct {
    const int32_t *first;
    const int32_t *second;
    const int32_t *edges; /* [climbs, width] */
    const int32_t *length;
    int64_t width;
    int64_t n_links;
    int64_t alpha;
    int64_t beta;
} Choice;

/* `_State` in Python, which says what each array is. */
typedef struct {
    int32_t *weight;
    int32_t *group;
    int32_t *size;
    int32_t *hits;
    int32_t *seen;
    int64_t *on;
    int32_t *links;
    int32_t *rank;
} State;

/* Write the sets of up to `beta` links that a path crosses to `state->on`, the physical and virtual
 * links on the path (section 4.2); return their number. Its m links are `state->links`. */
static int64_t extend(const Choice *choice, const State *state, int64_t m) {
    int64_t n = choice->n_links, count = m, *out = state->on;
    int32_t *rank = state->rank;
    for (int64_t i = 0; i < m; i++) {
        out[i] = state->links[i];
        rank[state->links[i]] = (int32_t)i + 1;
    }
    if (choice->beta >= 2)
        for (int64_t i = 0; i < m; i++)
            for (int64_t a = state->links[i], b = 0; b < n; b++)
                if (rank[b] == 0 || rank[b] > i + 1) {
                    int64_t low = least(a, b), high = most(a, b);
                    out[count++] = n + high * (high - 1) / 2 + low;
                }
    if (choice->beta >= 3)
        for (int64_t i = 0; i < m; i++)
            for (int64_t a = state->links[i], c = 0; c < n; c++) {
                if (0 < rank[c] && rank[c] <= i + 1) continue;
                for (int64_t b = 0; b < c; b++) {
                    if (0 < rank[b] && rank[b] <= i + 1) continue;
                    int64_t low = least(a, b), high = most(a, c), middle = a + b + c - low - high;
                    out[count++] = n + n * (n - 1) / 2 + high * (high - 1) * (high - 2) / 6 +
                                   middle * (middle - 1) / 2 + low;
                }
            }
    for (int64_t i = 0; i < m; i++) rank[state->links[i]] = 0;
    return count;
}

/* Write a candidate's sets to `state->on`; return how many there are, and its number of links. */
static int64_t cross(int64_t candidate, const Choice *choice, const State *state, int64_t *m) {
    int32_t climbs[] = {choice->first[candidate], choice->second[candidate]};
    *m = 0;
    for (int c = 0; c < 2; c++)
        for (int32_t h = 0; h < choice->length[climbs[c]]; h++)
            state->links[(*m)++] = choice->edges[climbs[c] * choice->width + h];
    return extend(choice, state, *m);
}

/* Count the sets on a path by their groups; return how many groups those are, in `state->seen`. */
static int64_t count_hits(const State *state, int64_t count) {
    int64_t groups = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t g = state->group[state->on[i]];
        if (state->hits[g]++ == 0) state->seen[groups++] = g;
    }
    return groups;
}

/* Return the score of a path by equation 1; DONE if selecting it would change nothing.
 *
 * Only groups that the path would split count as a gain, not those that lie on it as a whole. The
 * score never falls: if a group is split into two that this path splits, the selected path and
 * this one share a link of the group, whose weight rose. */
static int64_t score(int64_t candidate, const Choice *choice, const State *state) {
    int64_t m, count = cross(candidate, choice, state, &m), sum = 0, split = 0;
    bool useful = false;
    for (int64_t i = 0; i < m; i++) useful |= state->weight[state->on[i]] < choice->alpha;
    for (int64_t i = 0; i < count; i++) sum += state->weight[state->on[i]];
    int64_t groups = count_hits(state, count);
    for (int64_t i = 0; i < groups; i++) {
        int32_t g = state->seen[i];
        split += choice->beta > 0 && state->hits[g] < state->size[g];
        state->hits[g] = 0;
    }
    return useful || split > 0 ? sum - split : DONE;
}

/* Select a path: add 1 to the weights of its sets and split the groups that it divides. Return the
 * new number of groups. */
static int64_t take(int64_t candidate, const Choice *choice, const State *state,
                    int64_t n_groups) {
    int64_t m, count = cross(candidate, choice, state, &m);
    for (int64_t i = 0; i < count; i++) state->weight[state->on[i]]++;
    int64_t groups = count_hits(state, count);
    for (int64_t i = 0; i < groups; i++) {
        int32_t g = state->seen[i];
        if (state->hits[g] < state->size[g]) {
            state->size[n_groups] = state->hits[g];
            state->size[g] -= state->hits[g];
            state->hits[g] = (int32_t)-n_groups++;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        int32_t hits = state->hits[state->group[state->on[i]]];
        if (hits < 0) state->group[state->on[i]] = -hits;
    }
    for (int64_t i = 0; i < groups; i++) state->hits[state->seen[i]] = 0;
    return n_groups;
}

static int32_t path_length(const Choice *choice, int64_t candidate) {
    return choice->length[choice->first[candidate]] + choice->length[choice->second[candidate]];
}

/* Write the selected candidates to `chosen`, in order, and return how many there are. `bound` is
 * the score of each candidate when it was last computed, at first -1, below every score; with
 * `lazy` a score is computed again only when it may be the lowest (section 4.3). */
KERNEL int64_t select_paths(const Choice *choice, const State *state, bool lazy, int64_t n,
                      int64_t bound[n], int64_t chosen[n]) {
    int64_t n_chosen = 0, n_groups = 1, stop;
    for (int64_t begin = 0; begin < n; begin = stop) { /* all of one length after each other */
        int32_t length = path_length(choice, begin);
        for (stop = begin; stop < n && path_length(choice, stop) == length;) stop++;
        while (true) {
            int64_t lowest = DONE;
            for (int64_t c = begin; c < stop; c++) {
                if (!lazy && bound[c] < DONE) bound[c] = score(c, choice, state);
                lowest = least(lowest, bound[c]);
            }
            if (lowest == DONE) break;
            for (int64_t c = begin; c < stop; c++) {
                if (bound[c] > lowest) continue;
                bound[c] = score(c, choice, state);
                if (bound[c] != lowest) continue;
                n_groups = take(c, choice, state, n_groups);
                chosen[n_chosen++] = c;
                bound[c] = DONE;
                if (!lazy) break;
            }
        }
    }
    return n_chosen;
}
