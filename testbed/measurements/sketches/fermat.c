/* SPDX-License-Identifier: Apache-2.0 */
/* FermatSketch (ChameleMon, SIGCOMM 2023), for `testbed.measurements.sketches.fermat`. Cell row * width + at is
 * bucket `at` of a row; its ID sum is four limbs of 26 bits modulo a prime. */
#include "hashing.h"

enum { LIMBS = 4 };
#define PRIME 67108879 /* the least prime above 2^26 */
#define MASK ((1u << 26) - 1)

/* Write the limbs of an ID; limb 0 holds the lowest bits. */
static void split(uint64_t hi, uint64_t lo, uint64_t limbs[LIMBS]) {
    limbs[0] = lo & MASK;
    limbs[1] = (lo >> 26) & MASK;
    limbs[2] = ((lo >> 52) | (hi << 12)) & MASK;
    limbs[3] = (hi >> 14) & MASK;
}

/* Return a count, which may be negative, modulo the prime. */
static uint64_t residue(int64_t count) {
    int64_t rest = count % PRIME;
    return (uint64_t)(rest < 0 ? rest + PRIME : rest);
}

/* Return x^(p - 2), which is 1 / x modulo the prime p (Fermat's little theorem). */
static uint64_t inverse(uint64_t x) {
    uint64_t result = 1;
    for (uint64_t exponent = PRIME - 2; exponent; exponent >>= 1) {
        if (exponent & 1) result = result * x % PRIME;
        x = x * x % PRIME;
    }
    return result;
}

/* Add packets of a flow to one bucket. */
static void add_to(const uint64_t limbs[LIMBS], int64_t packets, int64_t *count,
                   uint64_t id_sum[LIMBS]) {
    uint64_t times = residue(packets);
    *count += packets;
    for (int limb = 0; limb < LIMBS; limb++)
        id_sum[limb] = (id_sum[limb] + limbs[limb] * times % PRIME) % PRIME;
}

/* Add packets of flows; a negative number is subtracted. */
KERNEL void add(int64_t n, const uint64_t hi[n], const uint64_t lo[n], const int64_t packets[n],
                int64_t rows, int64_t width, int64_t count[rows][width],
                uint64_t id_sum[rows][width][4], int64_t seed) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t limbs[LIMBS];
        split(hi[i], lo[i], limbs);
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = bucket(hi[i], lo[i], row, width, seed);
            add_to(limbs, packets[i], &count[row][at], id_sum[row][at]);
        }
    }
}

/* Return whether a bucket can hold a single flow, and write that flow's ID. */
static bool candidate(int64_t count, const uint64_t id_sum[LIMBS], uint64_t *hi, uint64_t *lo) {
    uint64_t limbs[LIMBS], over = inverse(residue(count));
    for (int limb = 0; limb < LIMBS; limb++) {
        limbs[limb] = id_sum[limb] * over % PRIME;
        if (limbs[limb] > MASK) return false;
    }
    *lo = limbs[0] | limbs[1] << 26 | limbs[2] << 52;
    *hi = limbs[2] >> 12 | limbs[3] << 14;
    return true;
}

/* Decode buckets of a single flow and subtract it everywhere, until there are none or `room` flows
 * were found; return how many were. */
KERNEL int64_t decode(int64_t rows, int64_t width, int64_t count[rows][width],
                      uint64_t id_sum[rows][width][4], int64_t seed, int64_t room,
                      uint64_t found_hi[room], uint64_t found_lo[room],
                      int64_t found_packets[room], int64_t n_queue, int64_t queue[n_queue]) {
    int64_t end = 0, found = 0;
    for (int64_t cell = 0; cell < rows * width; cell++)
        if (count[cell / width][cell % width] % PRIME) queue[end++] = cell;
    for (int64_t begin = 0; begin < end && found < room; begin++) {
        int64_t row = queue[begin] / width, at = queue[begin] % width, packets = count[row][at];
        uint64_t hi, lo, limbs[LIMBS];
        if (packets % PRIME == 0 || !candidate(packets, id_sum[row][at], &hi, &lo)) continue;
        if (bucket(hi, lo, row, width, seed) != at) continue;
        found_hi[found] = hi, found_lo[found] = lo, found_packets[found++] = packets;
        split(hi, lo, limbs);
        for (int64_t other = 0; other < rows; other++) {
            int64_t there = bucket(hi, lo, other, width, seed);
            add_to(limbs, -packets, &count[other][there], id_sum[other][there]);
            if (count[other][there] % PRIME && end < n_queue) queue[end++] = other * width + there;
        }
    }
    return found;
}
