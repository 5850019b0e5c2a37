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
    const int64_t *member_ptr;    /* [n_lists + 1]: list l has the members from member_ptr[l] on */
    const int32_t *members;       /* the components of a list, each once */
    const int32_t *nth;           /* which member of its list each of `components` is */
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
    bool *counted; /* [n_lists]: whether the next three are of the list's climbs as they are */
    int32_t *usual;     /* of each member: the climbs that its flip turns (negative: good) */
    int32_t *numbers;   /* the different ones of these numbers, from member_ptr[l] on */
    int32_t *n_numbers; /* [n_lists]: how many there are */
} Pairs;

/* Some groups of a list, and the other list of each. */
typedef struct {
    const int32_t *groups;
    const int32_t *others;
    int64_t n;
    int64_t n_near; /* entries of the arrays from here on: these groups, and those visited next */
} Chosen;

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

/* Scratch of `list_share`.
 *
 * By component, or by member of the list: `missing`, 0 between its calls: how many of the climbs
 * that turn if it flips lead to a top that the other list does not reach; `touched` are those with
 * some. By the number of paths that turn, from minus to plus the most climbs of a list: `total`,
 * the change in log-likelihood summed over pairs, and `gain`, that of each of the latest pairs that
 * miss the same tops (0 for the number 0); `mark` is `stamp` where a number has been met. `lacks`
 * are these tops, and `more` the numbers that only they bring. */
enum { ALIKE = 32 };
typedef struct {
    int32_t *missing;
    int32_t *touched;
    int64_t size; /* twice the most climbs, and 1 */
    double *total;
    double *gain; /* [size][ALIKE] */
    int64_t *mark;
    int64_t *more;
    int64_t *stamp;  /* [1] */
    uint64_t *lacks; /* a word for each of a list's */
} ShareScratch;

/* Count, for each member of a list, the climbs that would become bad (1) or good (-1) by its flip,
 * and note the different numbers. */
static void count_usual(const Pairs *pairs, int64_t list, const bool *failed,
                        const ShareScratch *s) {
    const Climbs *climbs = &pairs->climbs;
    const int64_t *climb_ptr = climbs->climb_ptr;
    int64_t first = climbs->member_ptr[list], n = climbs->member_ptr[list + 1] - first;
    const int32_t *members = climbs->members + first;
    int32_t *usual = pairs->usual + first, *numbers = pairs->numbers + first;
    memset(usual, 0, (size_t)n * sizeof *usual);
    for (int64_t climb = climbs->list_ptr[list]; climb < climbs->list_ptr[list + 1]; climb++) {
        int32_t failures = pairs->failures[climb];
        if (failures > 1)
            continue;
        for (int64_t e = climb_ptr[climb]; e < climb_ptr[climb + 1]; e++) {
            int32_t i = climbs->nth[e];
            if (failures == 0)
                usual[i]++;
            else if (failed[members[i]])
                usual[i]--;
        }
    }
    int64_t *mark = s->mark + s->size / 2, stamp = ++s->stamp[0];
    mark[0] = stamp; /* of a component whose flip turns nothing */
    int32_t n_numbers = 0;
    for (int64_t i = 0; i < n; i++) {
        if (mark[usual[i]] != stamp) {
            mark[usual[i]] = stamp;
            numbers[n_numbers++] = usual[i];
        }
    }
    pairs->n_numbers[list] = n_numbers;
    pairs->counted[list] = true;
}

/* Write to `lacks` the tops of a list's climbs, if good or turned good by one flip, that another
 * list does not reach. Return whether they are others than before. */
static bool lacks_others(const Pairs *pairs, int64_t list, int64_t other, uint64_t *lacks) {
    const Climbs *climbs = &pairs->climbs;
    int64_t first = climbs->word_ptr[list], n = climbs->word_ptr[list + 1] - first;
    uint64_t differ = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t reached = word_of(pairs->good, pairs, other, climbs->first_word[list] + i);
        uint64_t now = (pairs->good[first + i] | pairs->single[first + i]) & ~reached;
        differ |= now ^ lacks[i];
        lacks[i] = now;
    }
    return differ != 0;
}

/* Count the climbs of a list to the tops in `lacks`, in `missing` and `touched`. Return the number
 * of members touched. */
static int64_t count_missing(const Pairs *pairs, int64_t list, const bool *failed,
                             const ShareScratch *s) {
    const Climbs *climbs = &pairs->climbs;
    const int64_t *climb_ptr = climbs->climb_ptr;
    const int32_t *members = climbs->members + climbs->member_ptr[list];
    int32_t *missing = s->missing, *touched = s->touched;
    int64_t n = 0, first = climbs->word_ptr[list];
    for (int64_t word = first; word < climbs->word_ptr[list + 1]; word++) {
        for (uint64_t lacks = s->lacks[word - first]; lacks; lacks &= lacks - 1) {
            int bit = __builtin_ctzll(lacks);
            int64_t climb = climbs->climb_at[64 * word + bit];
            bool is_good = pairs->good[word] >> bit & 1;
            for (int64_t e = climb_ptr[climb]; e < climb_ptr[climb + 1]; e++) {
                int32_t i = climbs->nth[e];
                if (!is_good && !failed[members[i]])
                    continue;
                if (missing[i] == 0)
                    touched[n++] = i;
                missing[i] += is_good ? 1 : -1;
            }
        }
    }
    return n;
}

/* Load what the next groups of a list need into the processor's caches. */
static inline void fetch_ahead(const Pairs *pairs, const Chosen *chosen, int64_t k) {
    enum { NEAR = 5, FAR = 12, LINE = 4 /* entries of a memo in a cache line */ };
    if (k + FAR < chosen->n_near) {
        int32_t g = chosen->groups[k + FAR];
        __builtin_prefetch(pairs->bad + g);
        __builtin_prefetch(pairs->values.width + g);
        __builtin_prefetch(pairs->values.memo_ptr + g);
    }
    if (k + NEAR < chosen->n_near) {
        const int64_t *ptr = pairs->values.memo_ptr + chosen->groups[k + NEAR];
        for (int64_t at = ptr[0]; at < ptr[1] && at < ptr[0] + 4 * LINE; at += LINE)
            __builtin_prefetch(pairs->values.memo + 2 * at);
    }
}

/* Correct the delta of the members touched for the tops that the latest `n_pairs` pairs miss, one
 * pair after the other. */
static void correct(int64_t n_pairs, int64_t n_touched, const int32_t *members,
                    const int32_t *usual, double sign, double *delta, const ShareScratch *s) {
    const double *gain = s->gain + s->size / 2 * ALIKE;
    for (int64_t i = 0; i < n_touched; i++) {
        int32_t member = s->touched[i];
        const double *due = gain + (usual[member] - s->missing[member]) * ALIKE;
        const double *counted = gain + usual[member] * ALIKE;
        double corrected = delta[members[member]];
        for (int64_t k = 0; k < n_pairs; k++)
            corrected += sign * (due[k] - counted[k]);
        delta[members[member]] = corrected;
        s->missing[member] = 0;
    }
}

/* Add the contribution of a list's chosen pairs to the delta of the list's members, times `sign`.
 *
 * Pairs that follow each other mostly miss the same tops, as the ToRs of a pod do: these tops are
 * counted once for them. */
static void list_share(const Pairs *pairs, int64_t list, double sign, const Chosen *chosen,
                       const bool *failed, double *delta, const ShareScratch *s) {
    if (!pairs->counted[list])
        count_usual(pairs, list, failed, s);
    const Climbs *climbs = &pairs->climbs;
    int64_t first = climbs->member_ptr[list], n_members = climbs->member_ptr[list + 1] - first;
    const int32_t *members = climbs->members + first;
    const int32_t *usual = pairs->usual + first, *numbers = pairs->numbers + first;
    int64_t n_numbers = pairs->n_numbers[list], zero = s->size / 2;
    double *total = s->total + zero, *gain = s->gain + zero * ALIKE;
    int64_t *mark = s->mark + zero, n_alike = 0, n_touched = 0, n_more = 0;
    total[0] = 0.0;
    for (int64_t i = 0; i < n_numbers; i++)
        total[numbers[i]] = 0.0;
    for (int64_t k = 0; k < chosen->n; k++, n_alike++) {
        fetch_ahead(pairs, chosen, k);
        bool others = lacks_others(pairs, list, chosen->others[k], s->lacks);
        if (others || k == 0 || n_alike == ALIKE) {
            correct(n_alike, n_touched, members, usual, sign, delta, s);
            n_touched = count_missing(pairs, list, failed, s);
            n_alike = n_more = 0;
            int64_t stamp = ++s->stamp[0];
            mark[0] = stamp;
            for (int64_t i = 0; i < n_numbers; i++)
                mark[numbers[i]] = stamp;
            for (int64_t i = 0; i < n_touched; i++) {
                int64_t n = usual[s->touched[i]] - s->missing[s->touched[i]];
                if (mark[n] != stamp) {
                    mark[n] = stamp;
                    s->more[n_more++] = n;
                }
            }
        }
        int64_t g = chosen->groups[k], bad = pairs->bad[g];
        double now = value(&pairs->values, g, bad);
        for (int64_t i = 0; i < n_numbers; i++) {
            double of_pair = value(&pairs->values, g, bad + numbers[i]) - now;
            total[numbers[i]] += of_pair;
            gain[numbers[i] * ALIKE + n_alike] = of_pair;
        }
        for (int64_t i = 0; i < n_more; i++)
            gain[s->more[i] * ALIKE + n_alike]
                = value(&pairs->values, g, bad + s->more[i]) - now;
    }
    correct(n_alike, n_touched, members, usual, sign, delta, s);
    for (int64_t i = 0; i < n_members; i++)
        delta[members[i]] += sign * total[usual[i]];
}

/* Do what `list_share` does, pair by pair, for lists in which several climbs lead to a top. */
static void list_share_by_ways(const Pairs *pairs, int64_t list, double sign, const Chosen *chosen,
                               const bool *failed, double *delta, const ShareScratch *s) {
    const Climbs *climbs = &pairs->climbs;
    int32_t *turned = s->missing;
    for (int64_t k = 0; k < chosen->n; k++) {
        int64_t g = chosen->groups[k], other = chosen->others[k], n_touched = 0;
        for (int64_t climb = climbs->list_ptr[list]; climb < climbs->list_ptr[list + 1]; climb++) {
            int32_t ways = pairs->ways[other * pairs->n_tops + climbs->top[climb]];
            int32_t failures = pairs->failures[climb];
            if (ways == 0 || failures > 1)
                continue;
            for (int64_t e = climbs->climb_ptr[climb]; e < climbs->climb_ptr[climb + 1]; e++) {
                int32_t c = climbs->components[e];
                if (failures == failed[c]) {
                    if (turned[c] == 0)
                        s->touched[n_touched++] = c;
                    turned[c] += ways * (1 - 2 * failures);
                }
            }
        }
        int64_t bad = pairs->bad[g];
        double now = value(&pairs->values, g, bad);
        for (int64_t i = 0; i < n_touched; i++) {
            int32_t c = s->touched[i];
            delta[c] += sign * (value(&pairs->values, g, bad + turned[c]) - now);
            turned[c] = 0;
        }
    }
}

/* Call whichever of these two fits the lists. */
static void share(const Pairs *pairs, int64_t list, double sign, const Chosen *chosen,
                  const bool *failed, double *delta, const ShareScratch *s) {
    if (pairs->by_ways)
        list_share_by_ways(pairs, list, sign, chosen, failed, delta, s);
    else
        list_share(pairs, list, sign, chosen, failed, delta, s);
}

/* Return all groups of a list. */
static Chosen all_groups(const Pairs *pairs, int64_t list) {
    int64_t first = pairs->group_ptr[list], n = pairs->group_ptr[list + 1] - first;
    return (Chosen){pairs->groups + first, pairs->others + first, n, n};
}

/* The lists that a flip concerns: `mine` contain its component; list l of the others shares with
 * them the groups from ptr[l] on, ascending, and `others` are those lists. */
typedef struct {
    bool *mine; /* [n_lists] */
    int64_t *ptr; /* [n_lists + 2] */
    int32_t *groups; /* [n_groups] */
    int32_t *others;
} Met;

/* Write the lists that a component's flip concerns to `met`. */
static void meet(int64_t component, const Pairs *pairs, const Met *met) {
    const Climbs *climbs = &pairs->climbs;
    int64_t first = climbs->component_ptr[component], end = climbs->component_ptr[component + 1];
    int64_t *free_place = met->ptr + 1; /* of list l is free_place[l], ptr[l + 1] in the end */
    memset(met->mine, 0, (size_t)climbs->n_lists * sizeof *met->mine);
    memset(met->ptr, 0, (size_t)(climbs->n_lists + 2) * sizeof *met->ptr);
    for (int64_t at = first; at < end; at++)
        met->mine[climbs->lists[at]] = true;
    for (int64_t at = first; at < end; at++) {
        int64_t list = climbs->lists[at];
        for (int64_t i = pairs->group_ptr[list]; i < pairs->group_ptr[list + 1]; i++)
            met->ptr[pairs->others[i] + 2] += !met->mine[pairs->others[i]];
    }
    for (int64_t list = 0; list < climbs->n_lists; list++)
        met->ptr[list + 2] += met->ptr[list + 1];
    for (int64_t at = first; at < end; at++) {
        int64_t list = climbs->lists[at];
        for (int64_t i = pairs->group_ptr[list]; i < pairs->group_ptr[list + 1]; i++) {
            int64_t other = pairs->others[i];
            if (!met->mine[other]) {
                met->groups[free_place[other]] = pairs->groups[i];
                met->others[free_place[other]++] = (int32_t)list;
            }
        }
    }
}

/* Add the contribution of all pairs with a list in `met->mine` to delta, times `sign`. */
static void shares(const Pairs *pairs, double sign, const Met *met, const bool *failed,
                   double *delta, const ShareScratch *s) {
    int64_t n_lists = pairs->climbs.n_lists, end = met->ptr[n_lists];
    for (int64_t list = 0; list < n_lists; list++) {
        int64_t first = met->ptr[list];
        Chosen chosen
            = {met->groups + first, met->others + first, met->ptr[list + 1] - first, end - first};
        if (met->mine[list])
            chosen = all_groups(pairs, list);
        if (chosen.n > 0)
            share(pairs, list, sign, &chosen, failed, delta, s);
    }
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
    if (!pairs->by_ways)
        pairs->counted[list] = false;
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
 * same after the call as before; `met` is scratch. */
static void flip_pairs(int64_t component, const Pairs *pairs, bool *failed, double *delta,
                       const Met *met, const ShareScratch *s) {
    const int64_t *ptr = pairs->climbs.component_ptr;
    if (ptr[component] == ptr[component + 1])
        return;
    meet(component, pairs, met);
    bool fails = !failed[component];
    shares(pairs, -1.0, met, failed, delta, s);
    failed[component] = fails;
    step_pairs(component, pairs, fails ? 1 : -1);
    recount(component, pairs);
    shares(pairs, 1.0, met, failed, delta, s);
    failed[component] = !fails;
}
