/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets of IDs, and the decoding of invertible tables, for `testbed.measurements.sketches.hashing`. */
#include "hashing.h"

/* Write the bucket of each ID in each row. */
KERNEL void write_buckets(int64_t n, const uint64_t hi[n], const uint64_t lo[n], int64_t width,
                          int64_t seed, int64_t rows, int32_t out[n][rows]) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t row = 0; row < rows; row++)
            out[i][row] = (int32_t)bucket(hi[i], lo[i], row, width, seed);
}

/* Decode the ID of each cell that holds one flow and remove it from the flow's other cells, until
 * no cell holds a single flow; return how many were found. Row r of a table is the cells r * width
 * to (r + 1) * width. Counts have the bits of a switch's counters: those of the masks. */
KERNEL int64_t peel(int64_t rows, int64_t width, int64_t seed, int64_t n_cells,
                    uint64_t hi_xor[n_cells], uint64_t lo_xor[n_cells],
                    int32_t flow_count[n_cells], int32_t flow_mask, int64_t packet_count[n_cells],
                    int64_t packet_mask, uint64_t found_hi[n_cells], uint64_t found_lo[n_cells],
                    int64_t found_packets[n_cells], int64_t n_queue, int64_t queue[n_queue]) {
    int64_t end = 0, found = 0;
    for (int64_t cell = 0; cell < n_cells; cell++)
        if (flow_count[cell] == 1) queue[end++] = cell;
    for (int64_t begin = 0; begin < end; begin++) {
        int64_t cell = queue[begin];
        if (flow_count[cell] != 1) continue;
        uint64_t hi = hi_xor[cell], lo = lo_xor[cell];
        /* A count of 8 bits wraps at 256: of 257 flows, too, it says 1. */
        if (bucket(hi, lo, cell / width, width, seed) != cell % width || found == n_cells) continue;
        int64_t packets = packet_count[cell];
        found_hi[found] = hi, found_lo[found] = lo, found_packets[found++] = packets;
        for (int64_t row = 0; row < rows; row++) {
            int64_t other = row * width + bucket(hi, lo, row, width, seed);
            hi_xor[other] ^= hi;
            lo_xor[other] ^= lo;
            flow_count[other] = (flow_count[other] - 1) & flow_mask;
            packet_count[other] = (packet_count[other] - packets) & packet_mask;
            if (flow_count[other] == 1 && end < n_queue) queue[end++] = other;
        }
    }
    return found;
}

/* Return whether items 0 to n can all be decoded by peeling. `degree` and `members`, zeros, are the
 * number and the sum of the items in a bucket; the other arrays are scratch memory. */
KERNEL bool peel_all(int64_t items, int64_t rows, int64_t width, int64_t seed,
                     int32_t degree[rows][width], int64_t members[rows][width],
                     int32_t places[items][rows], int64_t *queue) {
    int64_t end = 0, left = items;
    for (int64_t item = 0; item < items; item++)
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = bucket(0, (uint64_t)item, row, width, seed);
            places[item][row] = (int32_t)at;
            degree[row][at]++;
            members[row][at] += item;
        }
    for (int64_t cell = 0; cell < rows * width; cell++)
        if (degree[cell / width][cell % width] == 1) queue[end++] = cell;
    for (int64_t begin = 0; begin < end; begin++) {
        int64_t row = queue[begin] / width, at = queue[begin] % width;
        if (degree[row][at] != 1) continue;
        int64_t item = members[row][at];
        left--;
        for (int64_t other = 0; other < rows; other++) {
            int32_t there = places[item][other];
            members[other][there] -= item;
            if (--degree[other][there] == 1) queue[end++] = other * width + there;
        }
    }
    return left == 0;
}
