/* SPDX-License-Identifier: Apache-2.0 */
/* Canary's meters (section III-C), for `scenarios.papers.sketches.meters`. */

/* Count packets of flows, which are given in the order of their first packets. Row f of `places` is
 * the buckets of flow f, one in each row of the meter. */
KERNEL void add(int64_t n, const int64_t flows[n], const int64_t packets[n], int64_t n_flows,
                int64_t rows, const int32_t places[n_flows][rows], int64_t width,
                int64_t owner[rows][width], int64_t count[rows][width], bool dirty[rows][width]) {
    for (int64_t i = 0; i < n; i++) {
        if (packets[i] <= 0) continue;
        for (int64_t row = 0; row < rows; row++) {
            int32_t at = places[flows[i]][row];
            if (owner[row][at] < 0)
                owner[row][at] = flows[i];
            else if (owner[row][at] != flows[i])
                dirty[row][at] = true;
            count[row][at] += packets[i];
        }
    }
}
