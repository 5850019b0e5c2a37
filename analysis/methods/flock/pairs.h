/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of flows between pairs of ToRs over climbs: their contributions to delta, and their update
 * after a flip (see likelihood.py for what a climb is). */
#include "flow_values.h"

/* Lists of climbs; see `Climbs` in pairs.py. */
typedef struct {
    int64_t n_lists;
    const int64_t *list_ptr;      /* [n_lists + 1]: list l has the climbs from list_ptr[l] on */
    const int64_t *climb_ptr;     /* [n_climbs + 1] */
    const int32_t *components;    /* of climb a from climb_ptr[a] on */
    const int64_t *word_ptr;      /* [n_lists + 1]: list l has the words from word_ptr[l] on */
    const int32_t *first_word;    /* [n_lists]: the first stands for tops from 64 first_word on */
    const int32_t *climb_at;      /* [n_words][64]: the climb of each bit */
    const int32_t *top;           /* [n_climbs]: the bit of each climb */
    const int64_t *component_ptr; /* [n_components + 1] */
    const int32_t *lists;         /* in which component c occurs, from component_ptr[c] on */
} Climbs;

/* Groups of ToR pairs over lists of climbs, and the state of a hypothesis on them; see `Pairs` in
 * pairs.py. */
typedef struct {
    Climbs climbs;
    int64_t n_groups;
    const int32_t *up; /* [n_groups]: the list of each group's source */
    const int32_t *down;
    const int64_t *group_ptr; /* [n_lists + 1]: list l has the groups from group_ptr[l] on */
    const int32_t *groups;
    const int32_t *others; /* the other list of each of these groups */
    FlowValues values;
    int32_t *failures; /* [n_climbs]: failed components of each climb */
    uint64_t *good;    /* [n_words]: the tops that a climb without failed component reaches */
    uint64_t *single;  /* [n_words]: those that a climb with just one reaches */
    bool by_ways;      /* whether several climbs of a list lead to one top: ways, not words */
    int64_t n_tops;
    int32_t *ways; /* [n_lists][n_tops]: climbs without failed component to each top */
    int32_t *bad;  /* [n_groups]: bad paths of each group */
} Pairs;

/* Return the word of a list's bits for the tops from 64 * index on; 0 if it has no such word. */
static inline uint64_t word_of(const uint64_t *bits, const Pairs *pairs, int64_t list,
                               int64_t index) {
    const Climbs *climbs = &pairs->climbs;
    int64_t at = climbs->word_ptr[list] + index - climbs->first_word[list];
    if (at < climbs->word_ptr[list] || at >= climbs->word_ptr[list + 1])
        return 0;
    return bits[at];
}

/* Return how many pairs of good climbs, one of each list, end at the same top: the good paths of a
 * pair of ToRs. */
static int64_t shared_tops(const Pairs *pairs, int64_t a, int64_t b) {
    const Climbs *climbs = &pairs->climbs;
    int64_t shared = 0;
    if (pairs->by_ways) {
        const int32_t *of_a = pairs->ways + a * pairs->n_tops;
        const int32_t *of_b = pairs->ways + b * pairs->n_tops;
        for (int64_t top = 0; top < pairs->n_tops; top++)
            shared += (int64_t)of_a[top] * of_b[top];
        return shared;
    }
    for (int64_t at = climbs->word_ptr[a]; at < climbs->word_ptr[a + 1]; at++) {
        int64_t index = climbs->first_word[a] + at - climbs->word_ptr[a];
        shared += __builtin_popcountll(pairs->good[at] & word_of(pairs->good, pairs, b, index));
    }
    return shared;
}

/* Scratch of `list_share`, zero (`mark`: -1) between its calls.
 *
 * By component: `usual`, the paths of a pair that turn if it flips (negative: turn good) where the
 * other list reaches every top; `missing`, how many of them do not where it does not; and the
 * components where these are not 0, `members` and `touched`. By such a number, from minus to plus
 * the most climbs of a list: `total`, the change in log-likelihood summed over pairs, and `known`,
 * that of the pair `mark`; `numbers` are those in use. */
typedef struct {
    int32_t *usual;
    int32_t *members;
    int32_t *missing;
    int32_t *touched;
    int64_t n_numbers; /* twice the most climbs, and 1 */
    double *total;
    double *known;
    int64_t *mark;
    int64_t *numbers;
} ShareScratch;

/* Count a climb for each component whose flip would make it bad (1) or good (-1).
 *
 * touched[0] to touched[n - 1] are the components counted so far; return their number after this
 * climb. */
static int64_t count_turning(const Pairs *pairs, int64_t climb, const bool *failed, int32_t *turned,
                             int32_t *touched, int64_t n) {
    const int64_t *climb_ptr = pairs->climbs.climb_ptr;
    int32_t failures = pairs->failures[climb];
    if (failures <= 1) {
        for (int64_t e = climb_ptr[climb]; e < climb_ptr[climb + 1]; e++) {
            int32_t c = pairs->climbs.components[e];
            if (failures == failed[c]) {
                if (turned[c] == 0)
                    touched[n++] = c;
                turned[c] += 1 - 2 * failures;
            }
        }
    }
    return n;
}

/* Count the climbs of a list to tops that another list does not reach, in `missing` and `touched`.
 * Return the number of components touched. */
static int64_t count_missing(const Pairs *pairs, int64_t list, int64_t other, const bool *failed,
                             const ShareScratch *s) {
    const Climbs *climbs = &pairs->climbs;
    int64_t n = 0;
    for (int64_t word = climbs->word_ptr[list]; word < climbs->word_ptr[list + 1]; word++) {
        int64_t index = climbs->first_word[list] + word - climbs->word_ptr[list];
        uint64_t lacks = (pairs->good[word] | pairs->single[word])
                         & ~word_of(pairs->good, pairs, other, index);
        for (; lacks; lacks &= lacks - 1) {
            int64_t climb = climbs->climb_at[64 * word + __builtin_ctzll(lacks)];
            n = count_turning(pairs, climb, failed, s->missing, s->touched, n);
        }
    }
    return n;
}

/* Add the contribution of a list's pairs to the delta of the list's components, times `sign`. If
 * `chosen` is given, count only pairs whose other list is chosen. */
static void list_share(const Pairs *pairs, int64_t list, double sign, const bool *chosen,
                       const bool *failed, double *delta, const ShareScratch *s) {
    const Climbs *climbs = &pairs->climbs;
    int64_t zero = s->n_numbers / 2;
    double *total = s->total + zero, *known = s->known + zero;
    int64_t *mark = s->mark + zero;
    int64_t n_members = 0, n_numbers = 0;
    for (int64_t climb = climbs->list_ptr[list]; climb < climbs->list_ptr[list + 1]; climb++)
        n_members = count_turning(pairs, climb, failed, s->usual, s->members, n_members);
    for (int64_t i = 0; i < n_members; i++) {
        int64_t n = s->usual[s->members[i]];
        if (mark[n] != -2) {
            mark[n] = -2;
            s->numbers[n_numbers++] = n;
        }
    }
    for (int64_t i = 0; i < n_numbers; i++) {
        mark[s->numbers[i]] = -1;
        total[s->numbers[i]] = 0.0;
    }
    for (int64_t at = pairs->group_ptr[list]; at < pairs->group_ptr[list + 1]; at++) {
        int64_t other = pairs->others[at];
        if (chosen && !chosen[other])
            continue;
        int64_t g = pairs->groups[at], bad = pairs->bad[g];
        double now = value(&pairs->values, g, bad);
        for (int64_t i = 0; i < n_numbers; i++) {
            int64_t n = s->numbers[i];
            known[n] = value(&pairs->values, g, bad + n) - now;
            mark[n] = g;
            total[n] += known[n];
        }
        int64_t n_touched = count_missing(pairs, list, other, failed, s);
        for (int64_t i = 0; i < n_touched; i++) {
            int32_t c = s->touched[i];
            int64_t n = s->usual[c] - s->missing[c];
            s->missing[c] = 0;
            if (mark[n] != g) {
                known[n] = value(&pairs->values, g, bad + n) - now;
                mark[n] = g;
            }
            delta[c] += sign * (known[n] - known[s->usual[c]]);
        }
    }
    for (int64_t i = 0; i < s->n_numbers; i++)
        s->mark[i] = -1;
    for (int64_t i = 0; i < n_members; i++) {
        int32_t c = s->members[i];
        delta[c] += sign * total[s->usual[c]];
        s->usual[c] = 0;
    }
}

/* Do what `list_share` does, pair by pair, for lists in which several climbs lead to a top. */
static void list_share_by_ways(const Pairs *pairs, int64_t list, double sign, const bool *chosen,
                               const bool *failed, double *delta, const ShareScratch *s) {
    const Climbs *climbs = &pairs->climbs;
    for (int64_t at = pairs->group_ptr[list]; at < pairs->group_ptr[list + 1]; at++) {
        int64_t other = pairs->others[at];
        if (chosen && !chosen[other])
            continue;
        int64_t g = pairs->groups[at], n_touched = 0;
        for (int64_t climb = climbs->list_ptr[list]; climb < climbs->list_ptr[list + 1]; climb++) {
            int32_t ways = pairs->ways[other * pairs->n_tops + climbs->top[climb]];
            int32_t failures = pairs->failures[climb];
            if (ways == 0 || failures > 1)
                continue;
            for (int64_t e = climbs->climb_ptr[climb]; e < climbs->climb_ptr[climb + 1]; e++) {
                int32_t c = climbs->components[e];
                if (failures == failed[c]) {
                    if (s->usual[c] == 0)
                        s->touched[n_touched++] = c;
                    s->usual[c] += ways * (1 - 2 * failures);
                }
            }
        }
        int64_t bad = pairs->bad[g];
        double now = value(&pairs->values, g, bad);
        for (int64_t i = 0; i < n_touched; i++) {
            int32_t c = s->touched[i];
            delta[c] += sign * (value(&pairs->values, g, bad + s->usual[c]) - now);
            s->usual[c] = 0;
        }
    }
}

/* Call whichever of these two fits the lists. */
static void share(const Pairs *pairs, int64_t list, double sign, const bool *chosen,
                  const bool *failed, double *delta, const ShareScratch *s) {
    if (pairs->by_ways)
        list_share_by_ways(pairs, list, sign, chosen, failed, delta, s);
    else
        list_share(pairs, list, sign, chosen, failed, delta, s);
}

/* Mark the lists that a component is in, and those that share a group with one of them. */
static void meet(int64_t component, const Pairs *pairs, bool *mine, bool *others) {
    const int64_t *ptr = pairs->climbs.component_ptr;
    for (int64_t at = ptr[component]; at < ptr[component + 1]; at++) {
        int64_t list = pairs->climbs.lists[at];
        mine[list] = true;
        for (int64_t i = pairs->group_ptr[list]; i < pairs->group_ptr[list + 1]; i++)
            others[pairs->others[i]] = true;
    }
}

/* Add the contribution of all pairs with a list in `mine` to delta, times `sign`. */
static void shares(const Pairs *pairs, double sign, const bool *mine, const bool *others,
                   const bool *failed, double *delta, const ShareScratch *s) {
    for (int64_t list = 0; list < pairs->climbs.n_lists; list++)
        if (mine[list] || others[list])
            share(pairs, list, sign, mine[list] ? NULL : mine, failed, delta, s);
}

/* Recompute the number of bad paths of a group. */
static void recount_group(const Pairs *pairs, int64_t g) {
    pairs->bad[g]
        = (int32_t)(pairs->values.width[g] - shared_tops(pairs, pairs->up[g], pairs->down[g]));
}

/* Recompute the number of bad paths of all pairs with a list that contains a component. */
static void recount(int64_t component, const Pairs *pairs) {
    const int64_t *ptr = pairs->climbs.component_ptr;
    for (int64_t at = ptr[component]; at < ptr[component + 1]; at++) {
        int64_t list = pairs->climbs.lists[at];
        for (int64_t i = pairs->group_ptr[list]; i < pairs->group_ptr[list + 1]; i++)
            recount_group(pairs, pairs->groups[i]);
    }
}

/* Count a component's failure (`by` 1) or release (-1) on the climbs of a list. */
static void step_list(const Pairs *pairs, int64_t list, int64_t component, int by) {
    const Climbs *climbs = &pairs->climbs;
    for (int64_t climb = climbs->list_ptr[list]; climb < climbs->list_ptr[list + 1]; climb++) {
        for (int64_t e = climbs->climb_ptr[climb]; e < climbs->climb_ptr[climb + 1]; e++) {
            if (climbs->components[e] != component)
                continue;
            int64_t top = climbs->top[climb];
            int32_t failures = pairs->failures[climb] += by;
            if (pairs->by_ways) {
                if (failures == 0 || (failures == 1 && by == 1))
                    pairs->ways[list * pairs->n_tops + top] -= by;
                continue;
            }
            int64_t at = climbs->word_ptr[list] + top / 64 - climbs->first_word[list];
            uint64_t bit = UINT64_C(1) << (top % 64);
            pairs->good[at] &= ~bit;
            pairs->single[at] &= ~bit;
            if (failures == 0)
                pairs->good[at] |= bit;
            else if (failures == 1)
                pairs->single[at] |= bit;
        }
    }
}

/* Count a component's failure (`by` 1) or release (-1) on all climbs; the pairs' numbers of bad
 * paths are not updated. */
static void step_pairs(int64_t component, const Pairs *pairs, int by) {
    const int64_t *ptr = pairs->climbs.component_ptr;
    for (int64_t at = ptr[component]; at < ptr[component + 1]; at++)
        step_list(pairs, pairs->climbs.lists[at], component, by);
}

/* Update the pairs of a component, and their contributions to delta, for its flip. `failed` is the
 * same after the call as before. `mine` and `others`, one for each list, are scratch. */
static void flip_pairs(int64_t component, const Pairs *pairs, bool *failed, double *delta,
                       bool *mine, bool *others, const ShareScratch *s) {
    const int64_t *ptr = pairs->climbs.component_ptr;
    if (ptr[component] == ptr[component + 1])
        return;
    memset(mine, 0, (size_t)pairs->climbs.n_lists * sizeof *mine);
    memset(others, 0, (size_t)pairs->climbs.n_lists * sizeof *others);
    meet(component, pairs, mine, others);
    bool fails = !failed[component];
    shares(pairs, -1.0, mine, others, failed, delta, s);
    failed[component] = fails;
    step_pairs(component, pairs, fails ? 1 : -1);
    recount(component, pairs);
    shares(pairs, 1.0, mine, others, failed, delta, s);
    failed[component] = !fails;
}
