/* SPDX-License-Identifier: Apache-2.0 */
/* FlowRadar's counting table and flow filter, for `testbed.measurements.sketches.flow_radar`. */
#include "hashing.h"

enum { FILTER_ROW = 1000 }; /* the filter's hashes are numbered from here, apart from the table's */

/* Count packets of flows, which are given in the order of their first packets. */
KERNEL void add(int64_t n, const uint64_t hi[n], const uint64_t lo[n], const uint32_t packets[n],
                int64_t rows, int64_t width, uint64_t flow_xor[2][rows][width],
                uint8_t flow_count[rows][width], uint32_t packet_count[rows][width],
                int64_t n_filter, bool seen[n_filter], int64_t hashes, int64_t seed) {
    for (int64_t i = 0; i < n; i++) {
        bool new = false;
        for (int64_t h = 0; h < hashes; h++) {
            int64_t at = bucket(hi[i], lo[i], FILTER_ROW + h, n_filter, seed);
            new |= !seen[at];
            seen[at] = true;
        }
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = bucket(hi[i], lo[i], row, width, seed);
            if (new) {
                flow_xor[0][row][at] ^= hi[i];
                flow_xor[1][row][at] ^= lo[i];
                flow_count[row][at]++;
            }
            packet_count[row][at] += packets[i];
        }
    }
}
