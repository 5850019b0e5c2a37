/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over 007's ballots, for `analysis.methods.vigil.vigil`. Ballots of large fabrics have some
 * 10^8 entries, which NumPy would copy several times. */

/* Add each value to the total of its index. */
KERNEL void add(int64_t n, const int32_t index[n], const double value[n], double *total) {
    for (int64_t e = 0; e < n; e++) total[index[e]] += value[e];
}

/* Add the votes of each voter, 1/h for a link of its h (section 5.1), to the links' totals. */
KERNEL void add_votes(int64_t n, const int32_t link[n], const int32_t voter[n],
                      const double share[n], const double *links, double *total) {
    for (int64_t e = 0; e < n; e++) total[link[e]] += share[e] / links[voter[e]];
}

/* Write to `cause` the blamed link that each voter most likely crossed, and of equals the one
 * blamed first. `largest`, zeros, is scratch memory. */
KERNEL void find_likeliest(int64_t n, const int32_t link[n], const int32_t voter[n],
                           const double share[n], const int64_t *rank, int64_t n_blamed,
                           int64_t n_connections, int32_t cause[n_connections],
                           double largest[n_connections]) {
    for (int64_t e = 0; e < n; e++) {
        int32_t i = link[e], v = voter[e];
        if (rank[i] >= n_blamed || share[e] < largest[v]) continue;
        if (share[e] > largest[v] || cause[v] < 0 || rank[i] < rank[cause[v]]) {
            cause[v] = i;
            largest[v] = share[e];
        }
    }
}
