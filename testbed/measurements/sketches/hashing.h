/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of IDs of up to 128 bits, two words: `hi` and `lo`. */

#define GOLDEN 0x9E3779B97F4A7C15u

/* The finaliser of SplitMix64: each bit of x changes half of the bits. */
static inline uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

enum { SWITCH = -1 }; /* in place of a seed: the hash of the switch programs, which have one */

/* Continue a reflected CRC over the 8 bytes of a word, the highest first. */
static inline uint32_t crc_of_word(uint32_t crc, uint64_t word, const uint32_t of_nibble[16]) {
    for (int shift = 56; shift >= 0; shift -= 8) {
        crc ^= (uint32_t)(word >> shift) & 0xFF;
        crc = crc >> 4 ^ of_nibble[crc & 15];
        crc = crc >> 4 ^ of_nibble[crc & 15];
    }
    return crc;
}

/* Return the hash of an ID, 16 bytes, as in `p4/include/link.p4`: CRC-16 and CRC-32, multiplied so
 * that its parts are no linear functions of each other. */
static inline uint64_t switch_hash(uint64_t hi, uint64_t lo) {
    static const uint32_t of_16[16] = {0x0000, 0xCC01, 0xD801, 0x1400, 0xF001, 0x3C00,
                                       0x2800, 0xE401, 0xA001, 0x6C00, 0x7800, 0xB401,
                                       0x5000, 0x9C01, 0x8801, 0x4400};
    static const uint32_t of_32[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC,
                                       0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
                                       0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
                                       0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
    uint64_t crc_16 = crc_of_word(crc_of_word(0, hi, of_16), lo, of_16);
    uint64_t crc_32 = ~crc_of_word(crc_of_word(~0u, hi, of_32), lo, of_32);
    return (crc_16 << 32 | (crc_32 & 0xFFFFFFFF)) * GOLDEN;
}

/* Return the bucket, 0 to width - 1, of an ID in a row; the hashes of any two rows or seeds are
 * independent. */
static inline int64_t bucket(uint64_t hi, uint64_t lo, int64_t row, int64_t width, int64_t seed) {
    if (seed == SWITCH) {
        uint64_t part = switch_hash(hi, lo) >> (48 - 16 * row) & 0xFFFF;
        return (int64_t)(part * (uint64_t)width >> 16);
    }
    uint64_t start = mixed(((uint64_t)seed << 32) + (uint64_t)row + GOLDEN);
    uint64_t x = mixed(mixed(lo ^ start) + hi * GOLDEN);
    return (int64_t)(((x >> 32) * (uint64_t)width) >> 32);
}
