/* SPDX-License-Identifier: Apache-2.0 */
/* Flows that took one of several paths: similar flows merged, the paths of pairs of ToRs over links
 * that may be blamed, and the paths of loss-free flows, estimated; see hidden.py. */
#include "hidden.h"

/* ---- similar flows ---- */

/* Return how many kinds of flows there are. */
KERNEL int64_t n_kinds(void) {
    return 64 * 64;
}

/* Return the number of a flow's kind, which encodes the packets it lost (up to 4, then in steps of
 * a half of log2) and those that arrived (1 and the integer part of log2). */
static int64_t kind_of(double arrived, double lost) {
    int size = 0;
    if (arrived > 0.0) {
        frexp(arrived > 1.0 ? arrived : 1.0, &size);
        size = size < 63 ? size : 63;
    }
    int64_t lossy = (int64_t)lost + 1;
    if (lost > 4.0)
        lossy = least(5 + (int64_t)(2.0 * log2(lost / 4.0)), 63);
    return lossy * 64 + size;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Put the flows of each set one after another: write their arrived and lost packets to `flows`,
 * from free_place[set] on. */
KERNEL void sort_by_set(int64_t n_flows, const int64_t set_of[n_flows],
                        const double arrived[n_flows], const double lost[n_flows], int64_t n_sets,
                        int64_t free_place[n_sets], double flows[n_flows][2]) {
    for (int64_t f = 0; f < n_flows; f++) {
        int64_t at = free_place[set_of[f]]++;
        flows[at][0] = arrived[f];
        flows[at][1] = lost[f];
    }
}

/* Merge the flows of each set that are of one kind; set g has those from ptr[g] on. Write the mean
 * packets that arrived and were lost and the number of flows, each `weight` times, to `merged`, and
 * where those of each set begin to `flow_ptr`. Return their number. `kinds` and `sums` (0 before
 * and after) are scratch. */
KERNEL int64_t merge_similar(int64_t n_sets, const int64_t ptr[n_sets + 1], int64_t n_flows,
                             const double flows[n_flows][2], double weight, int64_t kinds[n_flows],
                             int64_t most_kinds, double sums[most_kinds][3],
                             int64_t flow_ptr[n_sets + 1], double merged_arrived[n_flows],
                             double merged_lost[n_flows], double times[n_flows]) {
    int64_t at = 0;
    flow_ptr[0] = 0;
    for (int64_t g = 0; g < n_sets; g++) {
        int64_t n = 0;
        for (int64_t f = ptr[g]; f < ptr[g + 1]; f++) {
            int64_t kind = kind_of(flows[f][0], flows[f][1]);
            if (sums[kind][2] == 0.0)
                kinds[n++] = kind;
            sums[kind][0] += weight * flows[f][0];
            sums[kind][1] += weight * flows[f][1];
            sums[kind][2] += weight;
        }
        qsort(kinds, (size_t)n, sizeof *kinds, ascending);
        for (int64_t nth = 0; nth < n; nth++) {
            double *sum = sums[kinds[nth]];
            times[at] = sum[2];
            merged_arrived[at] = sum[0] / sum[2];
            merged_lost[at] = sum[1] / sum[2];
            sum[0] = sum[1] = sum[2] = 0.0;
            at++;
        }
        flow_ptr[g + 1] = at;
    }
    return at;
}

/* ---- climbs of ToRs ---- */

/* Climbs: those of a ToR to a tier are climb tier_ptr[tor][tier] to tier_ptr[tor][tier + 1] - 1,
 * and climb c has the links from ptr[c] on, the other direction of which is the way down. Lists are
 * numbered tor * tiers + tier. */

/* Add to the marks of links what tells the climbs of the lists `on` apart. */
KERNEL void mark_climbs(int64_t way, int64_t n_tors, int64_t n_ends,
                        const int64_t tier_ptr[n_tors][n_ends], int64_t n_climbs,
                        const int64_t ptr[n_climbs + 1], int64_t n_entries,
                        const int32_t links[n_entries], int64_t n_lists, const bool on[n_lists],
                        int64_t n_links, uint64_t marks[n_links]) {
    int64_t tiers = n_ends - 1;
    for (int64_t tor = 0; tor < n_tors; tor++) {
        for (int64_t tier = 1; tier < tiers; tier++) {
            int64_t list = tor * tiers + tier;
            if (!on[list])
                continue;
            uint64_t of_list = scramble(scramble((uint64_t)(2 * list + way)));
            for (int64_t c = tier_ptr[tor][tier]; c < tier_ptr[tor][tier + 1]; c++) {
                uint64_t of_climb = scramble(of_list + (uint64_t)c);
                for (int64_t e = ptr[c]; e < ptr[c + 1]; e++)
                    marks[links[e] ^ way] += of_climb;
            }
        }
    }
}

/* Add to `arrived` the packets over each link if each climb of a list carries `total`. */
KERNEL void add_arrivals(int64_t way, int64_t n_tors, int64_t n_ends,
                         const int64_t tier_ptr[n_tors][n_ends], int64_t n_climbs,
                         const int64_t ptr[n_climbs + 1], int64_t n_entries,
                         const int32_t links[n_entries], int64_t n_lists,
                         const double total[n_lists], int64_t n_links, double arrived[n_links]) {
    int64_t tiers = n_ends - 1;
    for (int64_t tor = 0; tor < n_tors; tor++)
        for (int64_t tier = 1; tier < tiers; tier++)
            for (int64_t c = tier_ptr[tor][tier]; c < tier_ptr[tor][tier + 1]; c++)
                for (int64_t e = ptr[c]; e < ptr[c + 1]; e++)
                    arrived[links[e] ^ way] += total[tor * tiers + tier];
}

/* Write the climbs over units that may be blamed: where those of each list begin, the last switch
 * of each, where its units begin, and these units. Return their number. */
KERNEL int64_t lossy_climbs(int64_t way, int64_t n_tors, int64_t n_ends,
                            const int64_t tier_ptr[n_tors][n_ends], int64_t n_climbs,
                            const int32_t end[n_climbs], const int64_t ptr[n_climbs + 1],
                            int64_t n_entries, const int32_t links[n_entries], int64_t n_links,
                            const int32_t of_link[n_links], int64_t n_units,
                            const bool candidate[n_units], int64_t n_lists,
                            int64_t list_ptr[n_lists + 1], int32_t tops[n_climbs],
                            int64_t unit_ptr[n_climbs + 1], int32_t units[n_entries]) {
    int64_t tiers = n_ends - 1, n = 0, at = 0;
    list_ptr[0] = unit_ptr[0] = 0;
    for (int64_t tor = 0; tor < n_tors; tor++) {
        for (int64_t tier = 0; tier < tiers; tier++) {
            for (int64_t c = tier_ptr[tor][tier]; c < tier_ptr[tor][tier + 1]; c++) {
                int64_t begin = at;
                for (int64_t e = ptr[c]; e < ptr[c + 1]; e++) {
                    int32_t i = of_link[links[e] ^ way];
                    if (i >= 0 && candidate[i])
                        units[at++] = i;
                }
                if (at > begin) {
                    tops[n] = end[c];
                    unit_ptr[++n] = at;
                }
            }
            list_ptr[tor * tiers + tier + 1] = n;
        }
    }
    return n;
}

/* The climbs of one way over units that may be blamed, ascending in their tops; see `_Side`. */
typedef struct {
    const int64_t *list_ptr; /* list l has the climbs from list_ptr[l] on */
    const int32_t *tops;     /* the last switch of each climb */
    const int64_t *unit_ptr; /* climb c is over the units from unit_ptr[c] on */
    const int32_t *units;
} Side;

/* The lists of each pair of ToRs, and how many climbs each ToR has to each switch. */
typedef struct {
    int64_t tiers;        /* lists of each ToR */
    int64_t n_switches;
    const int64_t *up;    /* [n_pairs]: the list of the source */
    const int64_t *down;  /* [n_pairs]: that of the destination */
    const int16_t *reach; /* [n_tors][n_switches] */
} PairLists;

/* The climbs of a pair to one top switch: i to end_i - 1 of its source and j to end_j - 1 of its
 * destination, over units that may be blamed, and `ups` and `downs` in all. */
typedef struct {
    int64_t i, end_i, last_i;
    int64_t j, end_j, last_j;
    int64_t ups, downs;
} Meeting;

/* Return the end of the run of climbs from `i` on that lead to `top`. */
static int64_t run_end(const int32_t *tops, int64_t i, int64_t last, int64_t top) {
    while (i < last && tops[i] == top)
        i++;
    return i;
}

static Meeting before_first(const PairLists *lists, int64_t p, const Side *a, const Side *b) {
    return (Meeting){
        .end_i = a->list_ptr[lists->up[p]],
        .last_i = a->list_ptr[lists->up[p] + 1],
        .end_j = b->list_ptr[lists->down[p]],
        .last_j = b->list_ptr[lists->down[p] + 1],
    };
}

/* Move on to the next top switch; return whether there is one. */
static bool next_top(Meeting *m, const PairLists *lists, int64_t p, const Side *a, const Side *b) {
    int64_t src = lists->up[p] / lists->tiers, dst = lists->down[p] / lists->tiers;
    int64_t top = INT64_MAX;
    m->i = m->end_i;
    m->j = m->end_j;
    if (m->i < m->last_i)
        top = a->tops[m->i];
    if (m->j < m->last_j)
        top = least(top, b->tops[m->j]);
    if (top == INT64_MAX)
        return false;
    m->end_i = run_end(a->tops, m->i, m->last_i, top);
    m->end_j = run_end(b->tops, m->j, m->last_j, top);
    m->ups = lists->reach[src * lists->n_switches + top];
    m->downs = lists->reach[dst * lists->n_switches + top];
    return true;
}

/* Count for each pair its distinct paths over units, the units on them, and the paths that they
 * stand for. */
KERNEL void count_paths(const PairLists *lists, const Side *a, const Side *b, int64_t n_pairs,
                        int64_t count[n_pairs], int64_t entries[n_pairs],
                        int64_t covered[n_pairs]) {
    for (int64_t p = 0; p < n_pairs; p++) {
        Meeting m = before_first(lists, p, a, b);
        while (next_top(&m, lists, p, a, b)) {
            if (m.ups <= 0 || m.downs <= 0)
                continue;
            int64_t n = m.end_i - m.i, k = m.end_j - m.j;
            int64_t more_n = m.ups > n, more_k = m.downs > k; /* those of all others, as one */
            count[p] += n * k + n * more_k + k * more_n;
            entries[p] += (a->unit_ptr[m.end_i] - a->unit_ptr[m.i]) * (k + more_k);
            entries[p] += (b->unit_ptr[m.end_j] - b->unit_ptr[m.j]) * (n + more_n);
            covered[p] += m.ups * m.downs - (m.ups - n) * (m.downs - k);
        }
    }
}

/* Write the units of a climb to `over` from `at` on; return the end. */
static int64_t write_climb(const Side *side, int64_t climb, int32_t *over, int64_t at) {
    for (int64_t e = side->unit_ptr[climb]; e < side->unit_ptr[climb + 1]; e++)
        over[at++] = side->units[e];
    return at;
}

/* Write the paths of each pair over units; its last path stands for the `rest` of its paths. */
KERNEL void write_paths(const PairLists *lists, const Side *a, const Side *b, int64_t n_pairs,
                        const int64_t rest[n_pairs], int64_t n_paths,
                        int32_t path_ptr[n_paths + 1], float many[n_paths], int64_t room,
                        int32_t over[room]) {
    int64_t at = 0, path = 0;
    path_ptr[0] = 0;
    for (int64_t p = 0; p < n_pairs; p++) {
        Meeting m = before_first(lists, p, a, b);
        while (next_top(&m, lists, p, a, b)) {
            if (m.ups <= 0 || m.downs <= 0)
                continue;
            int64_t ups = m.ups - (m.end_i - m.i), downs = m.downs - (m.end_j - m.j);
            for (int64_t climb = m.i; climb < m.end_i; climb++) {
                for (int64_t other = m.j; other < m.end_j; other++) {
                    at = write_climb(b, other, over, write_climb(a, climb, over, at));
                    path_ptr[++path] = (int32_t)at;
                }
                if (downs > 0) {
                    at = write_climb(a, climb, over, at);
                    many[path] = (float)downs;
                    path_ptr[++path] = (int32_t)at;
                }
            }
            if (ups > 0) {
                for (int64_t other = m.j; other < m.end_j; other++) {
                    at = write_climb(b, other, over, at);
                    many[path] = (float)ups;
                    path_ptr[++path] = (int32_t)at;
                }
            }
        }
        if (rest[p] > 0) {
            many[path] = (float)rest[p];
            path_ptr[++path] = (int32_t)at;
        }
    }
}

/* ---- loss-free flows ---- */

/* Add to `arrived` the packets of loss-free flows that are expected to have arrived over each unit,
 * given the rates x. Flow f took path p with the share exp(-a X_p) / sum_p' exp(-a X_p'). `rate`,
 * `over` and `through` are scratch, of the paths of a set. */
KERNEL void share_out(const HiddenFlows *hidden, int64_t n_units, const double x[n_units],
                      int64_t widest, double rate[widest], double over[widest],
                      double through[widest], double arrived[n_units]) {
    for (int64_t g = 0; g < hidden->n_sets; g++) {
        int64_t first = hidden->set_ptr[g], n = hidden->set_ptr[g + 1] - first;
        const int32_t *path_ptr = hidden->path_ptr + first;
        const float *many = hidden->many + first;
        double lowest = 1e300;
        for (int64_t p = 0; p < n; p++) {
            rate[p] = over[p] = 0.0;
            for (int64_t e = path_ptr[p]; e < path_ptr[p + 1]; e++)
                rate[p] += x[hidden->units[e]];
            if (rate[p] < lowest)
                lowest = rate[p];
        }
        for (int64_t f = hidden->flow_ptr[g]; f < hidden->flow_ptr[g + 1]; f++) {
            double whole = 0.0;
            for (int64_t p = 0; p < n; p++) {
                through[p] = exp(-hidden->arrived[f] * (rate[p] - lowest));
                whole += (double)many[p] * through[p];
            }
            double each = hidden->times[f] * hidden->arrived[f] / whole;
            for (int64_t p = 0; p < n; p++)
                over[p] += each * through[p];
        }
        for (int64_t p = 0; p < n; p++) {
            double total = (double)many[p] * over[p];
            for (int64_t e = path_ptr[p]; e < path_ptr[p + 1]; e++)
                arrived[hidden->units[e]] += total;
        }
    }
}
