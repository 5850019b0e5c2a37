/* SPDX-License-Identifier: Apache-2.0 */
/* Random equal-cost paths, drawn from the climbs of their ends. */

/* The arrays of `testbed.fabric.ecmp.Ecmp`. */
typedef struct {
    int64_t n_tiers;
    int64_t n_switches;
    const int64_t *ptr;   /* [n_tors, n_tiers + 1] */
    const int32_t *end;
    const int64_t *climb_ptr;
    const int32_t *climb_links;
    const int16_t *ways;  /* [n_tors, n_switches] */
    const int32_t *first; /* [n_tors, n_switches] */
} Ecmp;

/* Write one path for each pair into `links`, from ptr[i] on.
 *
 * A climb of the source is drawn in proportion to the number of the destination's climbs to the
 * same switch, then one of these uniformly; so each path is equally likely. `largest` is the
 * largest number of climbs from a ToR to a switch of each tier. */
KERNEL void draw(const Random *rng, const Ecmp *ecmp, int64_t n_pairs, const int32_t src[n_pairs],
                 const int32_t dst[n_pairs], const int8_t turn[n_pairs], const double *largest,
                 const int64_t ptr[n_pairs + 1], int32_t *links) {
    const int64_t *climb_ptr = ecmp->climb_ptr;
    for (int64_t i = 0; i < n_pairs; i++) {
        int64_t tier = turn[i], up, ways;
        if (tier == 0) continue;
        const int64_t *climbs = ecmp->ptr + src[i] * (ecmp->n_tiers + 1) + tier;
        const int16_t *ways_to = ecmp->ways + dst[i] * ecmp->n_switches;
        int64_t low = climbs[0], number = climbs[1] - low;
        do {
            up = low + (int64_t)(uniform(rng) * number);
            ways = ways_to[ecmp->end[up]];
        } while (ways != largest[tier] && uniform(rng) * largest[tier] >= ways);
        int64_t down = ecmp->first[dst[i] * ecmp->n_switches + ecmp->end[up]];
        down += (int64_t)(uniform(rng) * ways);
        int64_t at = ptr[i];
        for (int64_t e = climb_ptr[up]; e < climb_ptr[up + 1]; e++)
            links[at++] = ecmp->climb_links[e];
        for (int64_t e = climb_ptr[down + 1] - 1; e >= climb_ptr[down]; e--)
            links[at++] = ecmp->climb_links[e] ^ 1;
    }
}
