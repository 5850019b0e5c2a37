/* SPDX-License-Identifier: Apache-2.0 */
/* Types of the run-time system and the helpers generated code is made of. */
#include "abi.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __PCLMUL__
#include <immintrin.h>
#endif

typedef unsigned __int128 u128;
typedef __int128 i128;
/* Without optimization it is the compiler's time that counts: half of it would go into copies. */
#ifdef __OPTIMIZE__
#define SS_INLINE static inline __attribute__((always_inline, unused))
#else
#define SS_INLINE static __attribute__((unused))
#endif
#define SS_UNUSED __attribute__((unused))
/* Whether the compiler can tell that a condition holds. */
#define SS_SURELY(x) (__builtin_constant_p(x) && (x))
#define SS_ONES(n) ((n) >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << ((n) & 63)) - 1)
#define SS_ONES128(n) ((n) >= 128 ? ~(u128)0 : ((u128)1 << ((n) & 127)) - 1)

/* An index, n if it is beyond the end; and a number of which a too large one is the largest. */
SS_INLINE uint64_t ss_index(uint64_t i, uint64_t n) { return i < n ? i : n; }
SS_INLINE uint64_t ss_narrow(u128 v) { return v >> 64 ? UINT64_MAX : (uint64_t)v; }

/* ---- bytes in network order ---- */
SS_INLINE uint64_t ss_ld2(const uint8_t *p) {
    uint16_t x;
    memcpy(&x, p, 2);
    return __builtin_bswap16(x);
}
SS_INLINE uint64_t ss_ld4(const uint8_t *p) {
    uint32_t x;
    memcpy(&x, p, 4);
    return __builtin_bswap32(x);
}
SS_INLINE uint64_t ss_ld8(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, 8);
    return __builtin_bswap64(x);
}
SS_INLINE uint64_t ss_ld(const uint8_t *p, unsigned n) { /* n <= 8, a constant */
    switch (n) {
    case 1: return p[0];
    case 2: return ss_ld2(p);
    case 3: return ss_ld2(p) << 8 | p[2];
    case 4: return ss_ld4(p);
    case 5: return ss_ld4(p) << 8 | p[4];
    case 6: return ss_ld4(p) << 16 | ss_ld2(p + 4);
    case 7: return ss_ld4(p) << 24 | ss_ld2(p + 4) << 8 | p[6];
    case 8: return ss_ld8(p);
    default: return 0;
    }
}
SS_INLINE u128 ss_ld128(const uint8_t *p, unsigned n) { /* n <= 16 */
    if (n <= 8) return ss_ld(p, n);
    return (u128)ss_ld(p, n - 8) << 64 | ss_ld(p + n - 8, 8);
}
SS_INLINE void ss_st(uint8_t *p, unsigned n, uint64_t v) {
    if (n == 1) p[0] = (uint8_t)v;
    else if (n == 2) { uint16_t x = __builtin_bswap16((uint16_t)v); memcpy(p, &x, 2); }
    else if (n == 4) { uint32_t x = __builtin_bswap32((uint32_t)v); memcpy(p, &x, 4); }
    else if (n == 8) { uint64_t x = __builtin_bswap64(v); memcpy(p, &x, 8); }
    else if (n > 4) {
        uint32_t x = __builtin_bswap32((uint32_t)(v >> (8 * (n - 4))));
        memcpy(p, &x, 4);
        for (unsigned i = 4; i < n; i++) p[i] = (uint8_t)(v >> (8 * (n - 1 - i)));
    } else if (n == 3) { p[0] = (uint8_t)(v >> 16); p[1] = (uint8_t)(v >> 8); p[2] = (uint8_t)v; }
}
SS_INLINE void ss_st128(uint8_t *p, unsigned n, u128 v) {
    if (n <= 8) { ss_st(p, n, (uint64_t)v); return; }
    ss_st(p, n - 8, (uint64_t)(v >> 64));
    ss_st(p + n - 8, 8, (uint64_t)v);
}
/* n bits at bit offset `bit` of p; any alignment */
static SS_UNUSED u128 ss_get_bits(const uint8_t *p, unsigned bit, unsigned n) {
    u128 v = 0;
    for (unsigned i = 0; i < n;) {
        unsigned room = 8 - ((bit + i) & 7), take = n - i < room ? n - i : room;
        uint8_t byte = (uint8_t)(p[(bit + i) >> 3] >> (room - take));
        v = v << take | (byte & ((1u << take) - 1));
        i += take;
    }
    return v;
}
/* ORs the n low bits of v into p at bit offset `bit`; the target bits must be 0 */
static SS_UNUSED void ss_put_bits(uint8_t *p, unsigned bit, unsigned n, u128 v) {
    while (n) {
        unsigned room = 8 - (bit & 7), take = n < room ? n : room;
        unsigned part = (unsigned)(v >> (n - take)) & ((1u << take) - 1);
        p[bit >> 3] |= (uint8_t)(part << (room - take));
        bit += take;
        n -= take;
    }
}
/* wide fields (more than 128 bits) are right-aligned big-endian byte arrays */
static SS_UNUSED void ss_get_wide(uint8_t *dst, const uint8_t *p, unsigned bit, unsigned n) {
    unsigned bytes = (n + 7) / 8, head = n - 8 * (bytes - 1);
    for (unsigned i = 0; i < bytes; i++) {
        dst[i] = (uint8_t)ss_get_bits(p, bit, head);
        bit += head;
        head = 8;
    }
}
static SS_UNUSED void ss_put_wide(uint8_t *p, unsigned bit, const uint8_t *src, unsigned n) {
    unsigned bytes = (n + 7) / 8, head = n - 8 * (bytes - 1);
    for (unsigned i = 0; i < bytes; i++) {
        ss_put_bits(p, bit, head, src[i]);
        bit += head;
        head = 8;
    }
}
/* n whole bytes at bit offset `bit` of p, the value of a varbit field; the target is zero */
static SS_UNUSED void ss_get_bytes(uint8_t *dst, const uint8_t *p, unsigned bit, uint32_t n) {
    p += bit / 8;
    if (bit % 8 == 0 && n) memcpy(dst, p, n);
    else for (uint32_t i = 0; i < n; i++) dst[i] = (uint8_t)ss_get_bits(p + i, bit % 8, 8);
}
static SS_UNUSED void ss_put_bytes(uint8_t *p, unsigned bit, const uint8_t *src, uint32_t n) {
    p += bit / 8;
    if (bit % 8 == 0 && n) memcpy(p, src, n);
    else for (uint32_t i = 0; i < n; i++) ss_put_bits(p + i, bit % 8, 8, src[i]);
}
/* Whether byte strings are the same number; their lengths may differ. */
static SS_UNUSED int ss_same_number(const uint8_t *a, uint32_t n, const uint8_t *b, uint32_t m) {
    for (; n > m; n--) if (*a++) return 0;
    for (; m > n; m--) if (*b++) return 0;
    return !n || !memcmp(a, b, n);
}

/* low 128 bits of a wide value shifted right */
static SS_UNUSED u128 ss_wide(const uint8_t *a, unsigned bytes, uint64_t shift) {
    u128 v = 0;
    for (unsigned i = 0; i < 17; i++) {
        uint64_t byte = shift / 8 + i;
        unsigned up = 8 * i, down = shift & 7;
        if (shift >= 8 * (uint64_t)bytes || byte >= bytes) break;
        u128 x = a[bytes - 1 - byte];
        if (up >= down) v |= up - down < 128 ? x << (up - down) : 0;
        else v |= x >> (down - up);
    }
    return v;
}

/* ---- arithmetic whose C form would be undefined ---- */
#define SS_SHIFTS(T, U, tag, bits)                                                             \
    SS_INLINE U ss_shl_##tag(U a, uint64_t n) { return n >= bits ? 0 : a << n; }               \
    SS_INLINE U ss_shr_##tag(U a, uint64_t n) { return n >= bits ? 0 : a >> n; }               \
    SS_INLINE T ss_sar_##tag(T a, uint64_t n) { return a >> (n >= bits ? bits - 1 : n); }      \
    SS_INLINE T ss_sext_##tag(U a, unsigned w) {                                               \
        return (T)(a << (bits - w)) >> (bits - w);                                             \
    }                                                                                          \
    SS_INLINE U ss_div_##tag(U a, U b) { return b ? a / b : 0; }                               \
    SS_INLINE U ss_mod_##tag(U a, U b) { return b ? a % b : 0; }
SS_SHIFTS(int64_t, uint64_t, 64, 64)
SS_SHIFTS(i128, u128, 128, 128)

/* ---- random numbers: xoshiro256**, seeded by splitmix64 ---- */
SS_INLINE uint64_t ss_rotl(uint64_t x, int k) { return x << k | x >> (64 - k); }
static SS_UNUSED void ss_seed(uint64_t s[4], uint64_t seed) {
    for (int i = 0; i < 4; i++) {
        uint64_t z = (seed += UINT64_C(0x9E3779B97F4A7C15));
        z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
        s[i] = z ^ z >> 31;
    }
}
SS_INLINE uint64_t ss_next_random(uint64_t s[4]) {
    uint64_t r = ss_rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3];
    s[2] ^= t; s[3] = ss_rotl(s[3], 45);
    return r;
}
/* uniform in lo..hi inclusive, lo <= hi; rejection keeps it unbiased */
SS_INLINE uint64_t ss_uniform(uint64_t s[4], uint64_t lo, uint64_t hi) {
    uint64_t span = hi - lo + 1, limit, r;
    if (!span) return ss_next_random(s);
    limit = (0 - span) % span; /* 2^64 mod span */
    do r = ss_next_random(s); while (r < limit);
    return lo + r % span;
}

/* ---- hash algorithms of v1model, as BMv2 computes them ---- */
static uint32_t ss_crc32_table[16][256];
static uint16_t ss_crc16_table[16][256];
static __attribute__((constructor)) void ss_hash_init(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        uint16_t d = (uint16_t)i;
        for (int k = 0; k < 8; k++) {
            c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
            d = (uint16_t)(d & 1 ? d >> 1 ^ 0xA001u : d >> 1);
        }
        ss_crc32_table[0][i] = c;
        ss_crc16_table[0][i] = d;
    }
    for (int t = 1; t < 16; t++)
        for (int i = 0; i < 256; i++) {
            uint32_t c = ss_crc32_table[t - 1][i];
            uint16_t d = ss_crc16_table[t - 1][i];
            ss_crc32_table[t][i] = ss_crc32_table[0][c & 255] ^ c >> 8;
            ss_crc16_table[t][i] = (uint16_t)(ss_crc16_table[0][d & 255] ^ d >> 8);
        }
}
static SS_UNUSED uint64_t ss_crc32(const uint8_t *p, size_t n) {
    uint32_t c = ~0u;
    for (; n >= 8; p += 8, n -= 8) { /* eight bytes a step */
        uint32_t a, b;
        memcpy(&a, p, 4);
        memcpy(&b, p + 4, 4);
        a ^= c;
        c = ss_crc32_table[7][a & 255] ^ ss_crc32_table[6][a >> 8 & 255] ^
            ss_crc32_table[5][a >> 16 & 255] ^ ss_crc32_table[4][a >> 24] ^
            ss_crc32_table[3][b & 255] ^ ss_crc32_table[2][b >> 8 & 255] ^
            ss_crc32_table[1][b >> 16 & 255] ^ ss_crc32_table[0][b >> 24];
    }
    while (n--) c = ss_crc32_table[0][(c ^ *p++) & 255] ^ c >> 8;
    return (uint32_t)~c;
}
#ifdef __PCLMUL__
/* CRC of 32 bits of a value of 16 bytes by carry-less multiplication, bits reflected (Intel, Fast CRC
 * Computation for Generic Polynomials Using PCLMULQDQ, 2009): 128 bits to 96, to 64, and Barrett's
 * reduction. `by_96`, `by_64`: x^96 and x^64 modulo the polynomial; `quotient`: x^64 by it. */
SS_INLINE uint32_t ss_crc_multiplied(u128 v, int64_t by_96, int64_t by_64, int64_t quotient,
                                     int64_t polynomial) {
    const __m128i low = _mm_cvtsi32_si128(-1);
    const __m128i barrett = _mm_set_epi64x(quotient, polynomial);
    uint64_t first = __builtin_bswap64((uint64_t)(v >> 64)), last = __builtin_bswap64((uint64_t)v);
    __m128i x = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)first), _mm_cvtsi64_si128(by_96), 0);
    x = _mm_xor_si128(x, _mm_cvtsi64_si128((int64_t)last));
    x = _mm_xor_si128(_mm_srli_si128(x, 4), _mm_clmulepi64_si128(_mm_and_si128(x, low),
                                                                 _mm_cvtsi64_si128(by_64), 0));
    __m128i y = _mm_clmulepi64_si128(_mm_and_si128(x, low), barrett, 0x10);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(_mm_and_si128(y, low), barrett, 0));
    return (uint32_t)((uint64_t)_mm_cvtsi128_si64(x) >> 32);
}
#endif
/* CRC of the n low bytes of a value, in network order: n <= 16, a constant. Each byte has a table
 * of its own, so that none waits for another. */
SS_INLINE uint64_t ss_crc32_value(u128 v, unsigned n) {
#ifdef __PCLMUL__
    if (n >= 4)
        return (uint32_t)~ss_crc_multiplied(v ^ (u128)0xFFFFFFFF << 8 * (n - 4), 0xccaa009e,
                                            0x163cd6124, 0x1f7011641, 0x1db710641);
#endif
    uint32_t c = n < 4 ? ~0u >> 8 * n : 0;
#pragma GCC unroll 16
    for (unsigned i = 0; i < n; i++)
        c ^= ss_crc32_table[n - 1 - i][(uint8_t)((uint8_t)(v >> 8 * (n - 1 - i)) ^ (i < 4 ? 255 : 0))];
    return (uint32_t)~c;
}
SS_INLINE uint64_t ss_crc16_value(u128 v, unsigned n) {
#ifdef __PCLMUL__
    /* its polynomial times x^16 is one of 32 bits, whose remainder is this one's times x^16 */
    (void)n;
    return ss_crc_multiplied(v, 0x18cc2, 0x1bc02, 0x1cfffbfff, 0x14003);
#else
    uint32_t c = 0;
#pragma GCC unroll 16
    for (unsigned i = 0; i < n; i++)
        c ^= ss_crc16_table[n - 1 - i][(uint8_t)(v >> 8 * (n - 1 - i))];
    return c;
#endif
}
static SS_UNUSED uint64_t ss_crc16(const uint8_t *p, size_t n) {
    uint16_t c = 0;
    while (n--) c = (uint16_t)(ss_crc16_table[0][(c ^ *p++) & 255] ^ c >> 8);
    return c;
}
static SS_UNUSED uint64_t ss_crcCCITT(const uint8_t *p, size_t n) {
    uint16_t c = 0xFFFF;
    while (n--) {
        c ^= (uint16_t)(*p++ << 8);
        for (int k = 0; k < 8; k++) c = (uint16_t)(c & 0x8000 ? c << 1 ^ 0x1021 : c << 1);
    }
    return c;
}
static SS_UNUSED uint64_t ss_csum16(const uint8_t *p, size_t n) {
    u128 wide = 0;
    uint64_t sum;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t x;
        memcpy(&x, p, 8);
        wide += x;
    }
    sum = (uint64_t)wide + (uint64_t)(wide >> 64);
    if (sum < (uint64_t)wide) sum++;
    sum = (sum >> 32) + (sum & 0xFFFFFFFFu);
    for (; n >= 2; p += 2, n -= 2) {
        uint16_t x;
        memcpy(&x, p, 2);
        sum += x;
    }
    if (n) sum += *p;
    while (sum >> 16) sum = (sum >> 16) + (sum & 0xFFFF);
    return __builtin_bswap16((uint16_t)~sum);
}
/* Internet checksum of words of 16 or 32 bits that were added up, fewer than 65,536. */
SS_INLINE uint64_t ss_csum16_sum(uint64_t sum) {
    uint32_t half = (uint32_t)sum, all = half + (uint32_t)(sum >> 32);
    all += all < half;
    all += all << 16 | all >> 16; /* the upper half gets the carry of the lower one */
    return (uint16_t)~(all >> 16);
}
static SS_UNUSED uint64_t ss_xor16(const uint8_t *p, size_t n) {
    uint16_t x = 0;
    for (; n >= 2; p += 2, n -= 2) x ^= (uint16_t)(p[0] << 8 | p[1]);
    return n ? x ^ (uint16_t)(p[0] << 8) : x;
}
static SS_UNUSED uint64_t ss_xor32(const uint8_t *p, size_t n) {
    uint32_t x = 0;
    for (size_t i = 0; i < n; i++) x ^= (uint32_t)p[i] << (24 - 8 * (i & 3));
    return x;
}
static SS_UNUSED uint64_t ss_identity(const uint8_t *p, size_t n) {
    uint64_t x = 0;
    for (size_t i = 0; i < n && i < 8; i++) x = x << 8 | p[i];
    return x;
}
