/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons of paths, for `analysis.telemetry.telemetry`. */

/* Return whether every path has the opposite of each of its links. */
KERNEL bool go_both_ways(int64_t n, const int64_t ptr[n + 1], const int32_t *links) {
    for (int64_t p = 0; p < n; p++)
        for (int64_t e = ptr[p]; e < ptr[p + 1]; e++) {
            int64_t o = ptr[p];
            while (o < ptr[p + 1] && links[o] != (links[e] ^ 1)) o++;
            if (o == ptr[p + 1]) return false;
        }
    return true;
}

/* Add the scrambled number of each link of a path to the path's key. */
KERNEL void sum_links(int64_t n, const int64_t ptr[n + 1], const int32_t *links,
                      uint64_t key[n]) {
    for (int64_t p = 0; p < n; p++)
        for (int64_t e = ptr[p]; e < ptr[p + 1]; e++) key[p] += scramble((uint64_t)links[e]);
}
