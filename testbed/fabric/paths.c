/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of rows of a CSR array, for `testbed.fabric.paths`. */

/* Write the path at links[first[p]] to taken[ptr[p]:ptr[p + 1]]. */
KERNEL void copy(int64_t n_paths, const int64_t first[n_paths], const int32_t *links,
                 const int64_t ptr[n_paths + 1], int32_t *taken) {
    for (int64_t p = 0; p < n_paths; p++)
        for (int64_t e = ptr[p]; e < ptr[p + 1]; e++) taken[e] = links[first[p] + e - ptr[p]];
}
