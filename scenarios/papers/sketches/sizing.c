/* SPDX-License-Identifier: Apache-2.0 */
/* Whether items can be peeled, for `analysis.sketches.sizing`. */
#include "hashing.h"

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
