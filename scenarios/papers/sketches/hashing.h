/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of IDs of up to 128 bits, two words: `hi` and `lo`. */

#define GOLDEN 0x9E3779B97F4A7C15u

/* The finaliser of SplitMix64: each bit of x changes half of the bits. */
static inline uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Return the bucket, 0 to width - 1, of an ID in a row; the hashes of any two rows or seeds are
 * independent. */
static inline int64_t bucket(uint64_t hi, uint64_t lo, int64_t row, int64_t width, int64_t seed) {
    uint64_t start = mixed(((uint64_t)seed << 32) + (uint64_t)row + GOLDEN);
    uint64_t x = mixed(mixed(lo ^ start) + hi * GOLDEN);
    return (int64_t)(((x >> 32) * (uint64_t)width) >> 32);
}
