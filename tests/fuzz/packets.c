/* SPDX-License-Identifier: Apache-2.0 */
/* Appended to a program's C: pushes packets through a switch, each in memory of its own, so that a
 * sanitizer sees every byte that is read or written beside it. */
#include <stdlib.h>

static uint64_t fz_next(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

/* `frames`: n_frames templates of 64 bytes. A packet is noise, or a template with some bytes changed
 * and cut or filled up to any length. Returns the outputs' bytes, which are read to the last. */
uint64_t fz_packets(ss_switch *sw, uint64_t seed, uint32_t n, const uint8_t *frames,
                    uint32_t n_frames) {
    static ss_result result;
    uint64_t sum = 0, now = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t r = fz_next(&seed);
        uint32_t length = r % 97, change;
        if (r >> 58 == 0) length = fz_next(&seed) % 9000;
        if (r >> 54 == 0) length = fz_next(&seed) % 65536;
        uint8_t *data = malloc(length ? length : 1);
        for (uint32_t k = 0; k < length; k += 8) {
            uint64_t word = fz_next(&seed);
            for (uint32_t b = 0; b < 8 && k + b < length; b++) data[k + b] = (uint8_t)(word >> 8 * b);
        }
        if (n_frames && r >> 8 & 3) {
            const uint8_t *frame = frames + 64 * (r >> 16 & 0xFFFF) % (64 * n_frames) / 64 * 64;
            for (uint32_t k = 0; k < length && k < 64; k++) data[k] = frame[k];
            for (change = r >> 32 & 7; change > 0 && length; change--) {
                uint64_t c = fz_next(&seed);
                data[c % (length < 64 ? length : 64)] = (uint8_t)(c >> 32);
            }
        }
        now += fz_next(&seed) >> (r >> 40 & 63);
        ss_process(sw, (uint32_t)(r >> 48) & 511, data, length, now, NULL, NULL, &result);
        for (uint32_t k = 0; k < result.n; k++)
            for (uint32_t b = 0; b < result.packets[k].length; b++) sum += result.packets[k].data[b];
        free(data);
    }
    return sum;
}
