/* SPDX-License-Identifier: Apache-2.0 */
/* LossRadar's meter, for `testbed.measurements.sketches.loss_radar`. */
#include "hashing.h"

/* Count one packet for each signature. */
KERNEL void add(int64_t n, const uint64_t hi[n], const uint64_t lo[n], int64_t rows, int64_t width,
                int32_t count[rows][width], uint64_t xor_sum[2][rows][width], int64_t seed) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = bucket(hi[i], lo[i], row, width, seed);
            count[row][at]++;
            xor_sum[0][row][at] ^= hi[i];
            xor_sum[1][row][at] ^= lo[i];
        }
}
