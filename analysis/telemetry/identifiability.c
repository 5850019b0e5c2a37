/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of keys over paths, for `analysis.telemetry.identifiability`. */

/* Add the key of each path, and a second one derived from it, to the marks of its links. */
KERNEL void add_keys(int64_t n, const int64_t ptr[n + 1], const int32_t *links,
                     const uint64_t key[n], int64_t n_links, uint64_t marks[n_links][2]) {
    for (int64_t p = 0; p < n; p++) {
        uint64_t other = key[p] * (key[p] | 1);
        for (int64_t e = ptr[p]; e < ptr[p + 1]; e++) {
            marks[links[e]][0] += key[p];
            marks[links[e]][1] += other;
        }
    }
}
