/* SPDX-License-Identifier: Apache-2.0 */
/* The equal-cost paths of pairs of switches, found by a merge of both switches' climbs. */

/* `testbed.fabric.climbs.Climbs`, with the links of climb a at links[link_ptr[a]:link_ptr[a + 1]]. */
typedef struct {
    const int64_t *ptr;
    const int32_t *end;
    const int64_t *link_ptr;
    const int32_t *link;
} Climbs;

static int64_t path_length(const Climbs *climbs, int64_t up, int64_t down) {
    const int64_t *ptr = climbs->link_ptr;
    return ptr[up + 1] - ptr[up] + ptr[down + 1] - ptr[down];
}

/* Write the number and the length in links of each pair's shortest paths; 0 if it has none. */
KERNEL void count(const Climbs *climbs, int64_t n_pairs, const int32_t src[n_pairs],
                  const int32_t dst[n_pairs], int64_t width[n_pairs], int64_t hops[n_pairs]) {
    const int32_t *end = climbs->end;
    for (int64_t pair = 0; pair < n_pairs; pair++) {
        int64_t best = INT64_MAX, found = 0;
        int64_t a = climbs->ptr[src[pair]], a_end = climbs->ptr[src[pair] + 1];
        int64_t b = climbs->ptr[dst[pair]], b_end = climbs->ptr[dst[pair] + 1];
        while (a < a_end && b < b_end) {
            if (end[a] < end[b]) {
                a++;
            } else if (end[a] > end[b]) {
                b++;
            } else {
                for (int64_t other = b; other < b_end && end[other] == end[a]; other++) {
                    int64_t total = path_length(climbs, a, other);
                    if (total < best) best = total, found = 0;
                    if (total == best) found++;
                }
                a++;
            }
        }
        width[pair] = found;
        hops[pair] = found ? best : 0;
    }
}

/* Write the links of a path up one climb and down another; return the place behind them. */
static int64_t write_path(const Climbs *climbs, int64_t up, int64_t down, int32_t *out,
                          int64_t at) {
    const int64_t *ptr = climbs->link_ptr;
    for (int64_t e = ptr[up]; e < ptr[up + 1]; e++) out[at++] = climbs->link[e];
    for (int64_t e = ptr[down + 1] - 1; e >= ptr[down]; e--) out[at++] = climbs->link[e] ^ 1;
    return at;
}

/* Write each pair's paths from out[start[pair]] on, ascending in the switch where they turn. */
KERNEL void fill(const Climbs *climbs, int64_t n_pairs, const int32_t src[n_pairs],
                 const int32_t dst[n_pairs], const int64_t hops[n_pairs],
                 const int64_t start[n_pairs], int32_t *out) {
    const int32_t *end = climbs->end;
    for (int64_t pair = 0; pair < n_pairs; pair++) {
        int64_t at = start[pair];
        int64_t a = climbs->ptr[src[pair]], a_end = climbs->ptr[src[pair] + 1];
        int64_t b = climbs->ptr[dst[pair]], b_end = climbs->ptr[dst[pair] + 1];
        while (a < a_end && b < b_end) {
            if (end[a] < end[b]) {
                a++;
            } else if (end[a] > end[b]) {
                b++;
            } else {
                for (int64_t other = b; other < b_end && end[other] == end[a]; other++)
                    if (path_length(climbs, a, other) == hops[pair])
                        at = write_path(climbs, a, other, out, at);
                a++;
            }
        }
    }
}
